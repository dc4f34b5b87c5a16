// Keep the course for use without a network, where its host and the browser allow it (offline.js).
navigator.serviceWorker?.register("../sw.js").catch(() => {});
