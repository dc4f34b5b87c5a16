// The service worker of a course: stores all files when the course is first opened, and serves them from then on. Put
// after FILES, their relative addresses, and VERSION, their hash, so that changes reinstall it (viz/saved/course.py).

const OURS = FILES.map((file) => new URL(file, location).href);

async function keep() {
  const cache = await caches.open(registration.scope);
  await Promise.all(OURS.map(async (file) => {
    const answer = await fetch(file, { cache: "no-cache" });
    if (!answer.ok) throw new Error(`${file}: ${answer.status}`);
    await cache.put(file, new Response(await answer.blob(), { headers: answer.headers })); // also if redirected
  }));
  for (const { url } of await cache.keys()) if (!OURS.includes(url)) await cache.delete(url);
}

async function answer(request) {
  const { origin, pathname } = new URL(request.url);
  const cache = await caches.open(registration.scope);
  return (await cache.match(origin + pathname.replace(/\/$/, "/index.html"))) ?? fetch(request);
}

addEventListener("install", (event) => event.waitUntil(keep()));
addEventListener("fetch", (event) => event.request.method === "GET" && event.respondWith(answer(event.request)));
