// Store the course for offline use if its host and the browser allow it (offline.js).
navigator.serviceWorker?.register("../sw.js").catch(() => {});
