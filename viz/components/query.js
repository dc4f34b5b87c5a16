// The query, the token that looks: chosen by a click and moved by keys, in every view alike. Put before what uses it. own: what
// a view remembers from one packet to the next; its `element`, its `query`, whether that is `held` or `waiting`, and what
// it has `sent` of each choice: first what the page had, then what it has not answered yet, and when the last went.

const REST = 250; // milliseconds after the last key until the page hears of a query that keys chose
const PATIENCE = 10000; // milliseconds after which what the page has is ours in any case
const QUERY_STEPS = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

// The position that a key leads to, of those from begin up to, without, end; null for a key that leads nowhere.
function steppedQuery(key, at, [begin, end]) {
  return key in QUERY_STEPS ? Math.min(Math.max(at + QUERY_STEPS[key], begin), end - 1) : null;
}

// Tell the page what was chosen, and remember that it has yet to answer.
function tell(own, choice, value, onPick) {
  const sent = (own.sent[choice] ||= { values: [], at: 0 });
  sent.values.push(String(value));
  sent.at = Date.now();
  onPick(choice, value);
}

// Take a choice as the page has it; not from an answer to what came before our last, nor while it has yet to hear of that.
function heed(own, choice, value) {
  const { values, at } = own.sent[choice] || { values: [], at: 0 };
  const [found, last] = [values.indexOf(String(value)), values.length - 1];
  if (found >= 0 && String(value) !== values[last] && Date.now() - at < PATIENCE) return;
  own.sent[choice] = { values: [String(value)], at: 0 };
  if (choice !== "query" || !(own.held || own.waiting)) own[choice] = value;
}

// Show another query at once, and tell the page after so many milliseconds without a further one.
function chooseSoon(own, position, rest, onPick) {
  own.query = position;
  clearTimeout(own.waiting);
  own.waiting = setTimeout(() => {
    own.waiting = null;
    if (own.element.isConnected) tell(own, "query", position, onPick);
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
