// The service worker of a course: all of its files are kept when it is opened first, and used from then on. FILES, their
// addresses from here, and VERSION, which changes with what is in them, stand before (viz/saved/course.py).

const OURS = `unmask ${registration.scope} `;
const root = new URL(".", location);

// Under its own address: what a host has answered by way of another is not taken for a page.
async function keep(cache, file) {
  const answer = await fetch(new URL(file, root), { cache: "no-cache" });
  if (!answer.ok) throw new Error(`${file}: ${answer.status}`);
  const { status, headers } = answer;
  await cache.put(new URL(file, root), new Response(await answer.blob(), { status, headers }));
}

addEventListener("install", (event) => event.waitUntil(
  caches.open(OURS + VERSION).then((cache) => Promise.all(FILES.map((file) => keep(cache, file)))),
));

addEventListener("activate", (event) => event.waitUntil(
  caches.keys().then((names) => Promise.all(
    names.filter((name) => name.startsWith(OURS) && name !== OURS + VERSION).map((name) => caches.delete(name)),
  )),
));

addEventListener("fetch", (event) => {
  const { origin, pathname } = new URL(event.request.url);
  const file = origin + pathname.replace(/\/$/, "/index.html");
  if (event.request.method !== "GET" || !file.startsWith(root.href)) return;
  event.respondWith(caches.open(OURS + VERSION).then((cache) => cache.match(file)).then((kept) => kept ?? fetch(event.request)));
});
