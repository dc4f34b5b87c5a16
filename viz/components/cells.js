// A head's cells as viz/heads/cells.py packs them, and the words for one. Put after packet.js, before what draws them.

async function readCells(data) {
  const { header, body } = await unpack(data);
  const count = body.length / 5; // four bytes of a weight, one of what blocks it
  return {
    ...header,
    rows: header.queries.length,
    columns: header.keys.length,
    weights: new Float32Array(body.slice(0, 4 * count).buffer),
    blocked: body.subarray(4 * count),
  };
}

const placeOf = (cells, query, key, head = 0) => (head * cells.rows + query) * cells.columns + key;
const queryName = (cells, query) => `${cells.first + query}: ${cells.queries[query]}`;
const keyName = (cells, key) => `${cells.firstKey + key}: ${cells.keys[key]}`;
const weightText = (weight) => weight.toFixed(4);

// What there is to say of a cell: its weight, or what blocks it.
function cellText(cells, query, key, head = 0) {
  const at = placeOf(cells, query, key, head);
  return cells.blocked[at] ? cells.reasons[cells.blocked[at] - 1].words : `weight ${weightText(cells.weights[at])}`;
}

const cellWords = (cells, query, key, head = 0) =>
  `${queryName(cells, query)} looks at ${keyName(cells, key)} · ${cellText(cells, query, key, head)}`;

// The hatching of each reason, as values of CSS's background-image.
function hatchImages(cells) {
  return cells.reasons.map(({ hatch }) => `url(${hatchTile(hatch, window.devicePixelRatio || 1).toDataURL()})`);
}

// An element with a class, a text and children.
function make(name, { text, children = [], ...attributes } = {}) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
}
