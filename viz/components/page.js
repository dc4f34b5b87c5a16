// The script of a page without a server. Each view's module has stored its draw in `canvases`; each packet is in a data
// block of the page, deflated and in base64.

const inlined = (id) => Uint8Array.from(atob(document.getElementById(id).textContent), (one) => one.charCodeAt(0));

for (const element of document.querySelectorAll("[data-view]")) {
  globalThis.canvases[element.dataset.view](element, inlined(element.dataset.packet), () => {});
}

// In a notebook the page is a frame: make it as high as its content, margins and a scrollbar included, if the notebook
// allows that.
try {
  const [frame, root] = [window.frameElement, document.documentElement];
  const fit = () => {
    const scrollbar = window.innerHeight - root.clientHeight;
    frame.style.height = `${Math.ceil(root.getBoundingClientRect().height) + scrollbar}px`;
  };
  if (frame) new ResizeObserver(fit).observe(document.body);
} catch {
  // the notebook isolates its frames: keep the given height
}
