// The link that a page writes before anybody touched it stands for the address that it was come to with: Streamlit would
// put both into the browser's history, and the first press of Back would change nothing.
if (!window.pushAddress) {
  window.pushAddress = history.pushState.bind(history);
  let untouched = true;
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => { untouched = false; }, true);
  history.pushState = (state, title, address) => {
    const moves = new URL(address, location.href).pathname !== location.pathname;
    if (untouched && !moves) history.replaceState(state, title, address);
    else window.pushAddress(state, title, address);
    untouched = moves;
  };
}
