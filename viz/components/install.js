// Keep the course for use without a network, where the page's host and the browser allow it (offline.js).

navigator.serviceWorker?.register("../sw.js").catch(() => {});

// In a frame (?frame) a page has no links to the others.
document.documentElement.toggleAttribute("data-framed", new URLSearchParams(location.search).has("frame"));
