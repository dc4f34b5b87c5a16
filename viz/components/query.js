// The query, the token that looks: chosen by a click and moved by keys, in every view alike. Put before what uses it. own: what
// a view remembers from one packet to the next; its `element`, its `query`, and whether that is `held` or `waiting`.

const REST = 250; // milliseconds after the last key until the page hears of a query that keys chose
const QUERY_STEPS = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

// The position that a key leads to, of those from begin up to, without, end; null for a key that leads nowhere.
function steppedQuery(key, at, [begin, end]) {
  return key in QUERY_STEPS ? Math.min(Math.max(at + QUERY_STEPS[key], begin), end - 1) : null;
}

// Whether the page has yet to hear of the query that is shown: what it sends meanwhile is of an earlier one.
const isAhead = (own) => Boolean(own.held || own.waiting);

// Show another query at once, and tell the page after so many milliseconds without a further one.
function chooseSoon(own, position, rest, onPick) {
  own.query = position;
  clearTimeout(own.waiting);
  own.waiting = setTimeout(() => {
    own.waiting = null;
    if (own.element.isConnected) onPick("query", position);
  }, rest);
}

// Let keys move the query while this element has the focus. stepped(key): the position that a key leads to, or null; show():
// shows own.query. Of a key that is held the page hears once, when it is let go.
function moveByKeys(element, own, stepped, show, onPick) {
  element.onkeydown = (event) => {
    if (event.target !== element || event.altKey || event.ctrlKey || event.metaKey) return;
    const position = stepped(event.key);
    if (position === null) return;
    event.preventDefault(); // nor does the page scroll at the ends
    if (position === own.query) return;
    clearTimeout(own.waiting);
    Object.assign(own, { query: position, held: true, waiting: null });
    show();
  };
  element.onkeyup = element.onblur = () => {
    if (!own.held) return;
    own.held = false;
    chooseSoon(own, own.query, REST, onPick);
  };
}
