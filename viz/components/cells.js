// Reads a head's cells from a packet of viz/heads/cells.py, and describes them in words. Put after packet.js and
// query.js, before the modules that draw cells.

function readCells({ header, body }) {
  const count = body.length / (header.scored ? 10 : 6); // bytes: 4 of a weight, 2 of its blocking reason, 4 of a score
  return {
    ...header,
    rows: header.queries.length,
    columns: header.keys.length,
    weights: new Float32Array(body.slice(0, 4 * count).buffer),
    blocked: new Uint16Array(body.slice(4 * count, 6 * count).buffer),
    scores: header.scored ? new Float32Array(body.slice(6 * count).buffer) : null,
  };
}

const cellIndex = (cells, query, key, head = 0) => (head * cells.rows + query) * cells.columns + key;
const queryName = (cells, query) => `${cells.first + query}: ${cells.queries[query]}`;
const keyName = (cells, key) => `${cells.firstKey + key}: ${cells.keys[key]}`;
const weightText = (weight) => weight.toFixed(4);

// A cell in words: its weight, or what blocks it.
function cellText(cells, query, key, head = 0) {
  const at = cellIndex(cells, query, key, head);
  return cells.blocked[at] ? cells.reasons[cells.blocked[at] - 1].words : fill(cells.words.weight, { weight: weightText(cells.weights[at]) });
}

const cellWords = (cells, query, key, cell) =>
  fill(cells.words.cell, { query: queryName(cells, query), key: keyName(cells, key), cell });

const MAX_NAMED = 4; // tokens named in a summary

// A row or a column in words: its largest weights, and how many cells are blocked.
function summary(cells, { side, at }, head = 0) {
  const others = side === "query" ? cells.columns : cells.rows;
  const found = [];
  let blocked = 0;
  for (let other = 0; other < others; other++) {
    const index = side === "query" ? cellIndex(cells, at, other, head) : cellIndex(cells, other, at, head);
    if (cells.blocked[index]) blocked++;
    else found.push([cells.weights[index], side === "query" ? keyName(cells, other) : queryName(cells, other)]);
  }
  const name = side === "query" ? queryName(cells, at) : keyName(cells, at);
  const verb = side === "query" ? "looks" : "looked";
  if (!found.length) return fill(cells.words[cells.part ? "blocked_here" : `${verb}_nowhere`], { token: name });
  found.sort((one, other) => other[0] - one[0]);
  const largest = found.slice(0, MAX_NAMED).map(([weight, other]) => `${other} ${weightText(weight)}`);
  const named = largest.join(cells.words.comma);
  const tokens = found.length > MAX_NAMED ? fill(cells.words.more, { tokens: named, count: found.length - MAX_NAMED }) : named;
  return fill(cells.words[blocked ? `${verb}_blocked` : verb], { token: name, tokens, count: blocked });
}

// The hatching of each reason, as values of CSS's background-image.
function hatchImages(cells) {
  return cells.reasons.map(({ hatch }) => `url(${hatchTile(hatch).toDataURL()})`);
}

const CHOICES = ["query", "pins", "towards", "values", "least", "hide_first"]; // user's choices that a packet may have

// Replace the parts of a view. If a control had the focus, the new control in its position gets it.
function replaceParts(element, ...parts) {
  const controls = () => [...element.querySelectorAll("button, input, [tabindex]")];
  const index = controls().indexOf(element.getRootNode().activeElement);
  element.replaceChildren(...parts);
  controls()[index]?.focus({ preventScroll: true });
}

// Unpack the cells and call show(cells, own). own: the state of the view, kept between packets, with the user's
// choices. Returns a function that ends the view.
function drawCells(element, data, show) {
  return receive(element, data, (packet) => { // a pending query is sent even after the end: another packet may follow
    const cells = readCells(packet);
    const own = (element.own ||= { element, held: false, waiting: null, sent: {} });
    for (const choice of CHOICES) if (choice in cells) takeChoice(own, choice, cells[choice]);
    element.style.setProperty("--tint", cells.tint);
    element.style.setProperty("--mark", cells.mark);
    show(cells, own);
    element.dataset.head = cells.name;
  });
}
