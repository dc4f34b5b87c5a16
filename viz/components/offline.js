// The service worker of a course: all of its files are kept when it is opened first, and used from then on. FILES, their
// addresses from here, and VERSION, which changes with what is in them, stand before (viz/saved/course.py).

const [OURS, ROOT] = [`unmask ${registration.scope} `, new URL(".", location).href];

// Under its own address: a browser takes no page that a host has answered by way of another address.
async function keep(cache, file) {
  const answer = await fetch(ROOT + file, { cache: "no-cache" });
  if (!answer.ok) throw new Error(`${file}: ${answer.status}`);
  await cache.put(ROOT + file, new Response(await answer.blob(), { headers: answer.headers }));
}

async function clear() {
  const old = (await caches.keys()).filter((name) => name.startsWith(OURS) && name !== OURS + VERSION);
  return Promise.all(old.map((name) => caches.delete(name)));
}

async function answer(request) {
  const { origin, pathname } = new URL(request.url);
  const cache = await caches.open(OURS + VERSION);
  return (await cache.match(origin + pathname.replace(/\/$/, "/index.html"))) ?? fetch(request);
}

addEventListener("install", (event) => event.waitUntil(
  caches.open(OURS + VERSION).then((cache) => Promise.all(FILES.map((file) => keep(cache, file)))),
));
addEventListener("activate", (event) => event.waitUntil(clear()));
addEventListener("fetch", (event) => event.request.method === "GET" && event.respondWith(answer(event.request)));
