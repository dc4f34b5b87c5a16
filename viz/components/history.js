// A page that opens writes its state into its address. Streamlit would put both addresses into the browser's history, and the
// first press of Back would change nothing: so until the page is touched, the new address replaces the old one. A fast page
// writes its state first, at the address of the page that is left. A lesson's answers are part of its address, but no step.
if (!window.pushAddress) {
  window.pushAddress = history.pushState.bind(history);
  const LEAVING = 2000; // milliseconds until a page that Back has not left goes on
  let [untouched, written] = [true, false];
  const at = ({ pathname, search }) => pathname + search;
  const withoutAnswers = (search) => {
    const values = new URLSearchParams(search);
    values.delete("answers");
    return values.toString();
  };
  // Streamlit may write an address before it draws its first element, this script: Back passes the entry that was opened
  const entered = performance.getEntriesByType("navigation")[0];
  const passed = entered && at(new URL(entered.name)) !== at(location) ? at(new URL(entered.name)) : null;
  let leaving = false;
  addEventListener("popstate", () => {
    leaving = at(location) === passed && !history.state?.pushed;
    if (!leaving) return;
    history.back();
    setTimeout(() => { leaving = false; }, LEAVING); // of the first page in a tab nothing is left for
  });
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => { untouched = written = false; }, true);
  history.pushState = (state, title, address) => {
    if (leaving) return; // Streamlit has run the page that is left: its address would end the way back
    const { pathname, search } = new URL(address, location.href);
    const moves = pathname !== location.pathname;
    const [after, before] = [search, location.search].map(moves ? String : withoutAnswers);
    const again = moves ? written && after === before : untouched || after === before;
    if (again) history.replaceState({ ...state, pushed: history.state?.pushed }, title, address);
    else window.pushAddress({ ...state, pushed: true }, title, address);
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
