// The query: a click selects it and keys move it, in the same way in every view. Put before the modules that use it.
// own: a view's state, kept between packets: its `element`, its `query`, whether a key is `held`, the timer `waiting`
// to send the query, and for each choice what was `sent`: the value that the page has, then the values that it has not
// answered yet, and the time of the last one.

const REST = 250; // milliseconds after the last key until the query is sent to the page
const PATIENCE = 10000; // milliseconds after the last choice from which on any value of the page is taken
const QUERY_STEPS = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

// Return the position that a key leads to, within [begin, end); null for other keys.
function steppedQuery(key, at, [begin, end]) {
  return key in QUERY_STEPS ? Math.min(Math.max(at + QUERY_STEPS[key], begin), end - 1) : null;
}

// Send a choice to the page, and note that its answer is pending.
function sendChoice(own, choice, value, onPick) {
  const sent = (own.sent[choice] ||= { values: [], at: 0 });
  sent.values.push(String(value));
  sent.at = Date.now();
  onPick(choice, value);
}

// Take a choice from the page, unless it answers a choice before our last one, or our last query has not been sent yet.
function takeChoice(own, choice, value) {
  const { values, at } = own.sent[choice] || { values: [], at: 0 };
  const [found, last] = [values.indexOf(String(value)), values.length - 1];
  if (found >= 0 && String(value) !== values[last] && Date.now() - at < PATIENCE) return;
  own.sent[choice] = { values: [String(value)], at: 0 };
  if (choice !== "query" || !(own.held || own.waiting)) own[choice] = value;
}

// Show another query immediately, and send it to the page after `rest` milliseconds without a further one.
function chooseSoon(own, position, rest, onPick) {
  own.query = position;
  clearTimeout(own.waiting);
  own.waiting = setTimeout(() => {
    own.waiting = null;
    if (own.element.isConnected) sendChoice(own, "query", position, onPick);
  }, rest);
}

// Let keys move the query while this element has the focus. stepped(key): the position that a key leads to, or null;
// show(): shows own.query. While a key is held nothing is sent; the query is sent once, when the key is released.
function moveByKeys(element, own, stepped, show, onPick) {
  element.onkeydown = (event) => {
    if (event.target !== element || event.altKey || event.ctrlKey || event.metaKey) return;
    const position = stepped(event.key);
    if (position === null) return;
    event.preventDefault(); // also at the ends, where the page would scroll
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
