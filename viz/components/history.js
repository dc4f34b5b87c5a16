// A page that opens writes its state into its address. Streamlit would add both addresses to the browser's history, and
// the first press of Back would change nothing. Therefore the new address replaces the old one until the first user
// input. A fast page writes its state earlier, at the address of the page being left. Changes of a lesson's answers,
// which are part of its address, add no entry to the history.
if (!window.pushAddress) {
  window.pushAddress = history.pushState.bind(history);
  const LEAVING = 2000; // milliseconds after which Back counts as having left no page
  let [untouched, written] = [true, false];
  const at = ({ pathname, search }) => pathname + search;
  const withoutAnswers = (search) => {
    const values = new URLSearchParams(search);
    values.delete("answers");
    return values.toString();
  };
  // Streamlit may write an address before this script, its first element, runs: Back then skips the entry opened first
  const entered = performance.getEntriesByType("navigation")[0];
  const passed = entered && at(new URL(entered.name)) !== at(location) ? at(new URL(entered.name)) : null;
  let leaving = false;
  addEventListener("popstate", () => {
    leaving = at(location) === passed && !history.state?.pushed;
    if (!leaving) return;
    history.back();
    setTimeout(() => { leaving = false; }, LEAVING); // on the first page of a tab, Back leads nowhere
  });
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => { untouched = written = false; }, true);
  history.pushState = (state, title, address) => {
    if (leaving) return; // Streamlit has run the page being left: pushing its address would undo Back
    const { pathname, search } = new URL(address, location.href);
    const moves = pathname !== location.pathname;
    const [after, before] = [search, location.search].map(moves ? String : withoutAnswers);
    const again = moves ? written && after === before : untouched || after === before;
    if (again) history.replaceState({ ...state, pushed: history.state?.pushed }, title, address);
    else window.pushAddress({ ...state, pushed: true }, title, address);
    [untouched, written] = [moves, !moves];
  };
  // Streamlit's links to the first page have no path: in a new tab they would open the page that contains them
  for (const kind of ["pointerover", "focusin"]) {
    addEventListener(kind, ({ target }) => {
      const link = target.closest?.('$page_link_anchor');
      const address = link?.getAttribute("href") ?? "";
      if (link && (!address || address.startsWith("?"))) link.setAttribute("href", "./" + address);
    }, true);
  }
}
