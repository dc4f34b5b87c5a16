// A page that opens writes its state into its address. Streamlit would put both addresses into the browser's history, and the
// first press of Back would change nothing: so until the page is touched, the new address replaces the old one. A fast page
// writes its state first, at the address of the page that is left.
if (!window.pushAddress) {
  window.pushAddress = history.pushState.bind(history);
  let [untouched, written] = [true, false];
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => { untouched = written = false; }, true);
  history.pushState = (state, title, address) => {
    const { pathname, search } = new URL(address, location.href);
    const moves = pathname !== location.pathname;
    const again = moves ? written && search === location.search : untouched;
    if (again) history.replaceState(state, title, address);
    else window.pushAddress(state, title, address);
    [untouched, written] = [moves, !moves];
  };
  // Streamlit's links to the first page have no path: a new tab would open the page that they are on
  for (const kind of ["pointerover", "focusin"]) {
    addEventListener(kind, ({ target }) => {
      const link = target.closest?.('$page_link_anchor');
      const address = link?.getAttribute("href") ?? "";
      if (link && (!address || address.startsWith("?"))) link.setAttribute("href", "./" + address);
    }, true);
  }
}
