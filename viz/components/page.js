// A page of its own, without any server. The module of each view on it has put its draw into `canvases`; the packet of each
// is in a data block of the page, deflated and in base64.

const inlined = (id) => Uint8Array.from(atob(document.getElementById(id).textContent), (one) => one.charCodeAt(0));

for (const place of document.querySelectorAll("[data-view]")) {
  globalThis.canvases[place.dataset.view](place, inlined(place.dataset.packet), () => {});
}

// In a notebook the page is a frame: as high as what is in it, margins and a scrollbar below included, where the notebook
// lets it be.
try {
  const [frame, root] = [window.frameElement, document.documentElement];
  const fit = () => {
    const scrollbar = window.innerHeight - root.clientHeight;
    frame.style.height = `${Math.ceil(root.getBoundingClientRect().height) + scrollbar}px`;
  };
  if (frame) new ResizeObserver(fit).observe(document.body);
} catch {
  // a notebook that keeps its frames apart: the height that it was given stays
}
