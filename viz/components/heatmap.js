// One head's heatmap: rows are queries, columns are keys. It draws the bytes of its packet and computes no mask.
// Packet: see viz/heads/cells.py. onPick("query", position) reports the selected row. A head that `grows` by a row per
// token has no selectable rows; its picture has the same size at every length, so that the page does not move.

const EDGE = 32; // css pixels beside and below the cells, without the tokens' names
const LETTER = 6.6; // css pixels of a letter of a name
const BAR = 74; // css pixels beside the cells, for the colour bar
const TALLEST = 600; // css pixels of all rows together
const LARGEST = 40; // css pixels of a cell
const LINE = 12; // css pixels that a token's name needs
const LONGEST = 12; // most letters of a name
// For narrow pictures, whose margins fit the names' widths. tall: css pixels that the upright axis title needs.
const NARROW = { below: 400, edge: 24, bar: 64, longest: 8, tall: 168 };
const COLOURS = 255;
const ABOVE = 470; // css pixels above a growing head: its newest row stays visible in a tall window
const GROUND = "rgba(140, 146, 158, 0.16)"; // the colour behind the hatching

// Return the layout of the cells: square, as large as fits. small: no token names, as a larger picture beside has them.
function layout(width, { rows, columns, queries, keys, grows, small, first, firstKey }, widthOf) {
  const narrow = width < NARROW.below && !grows;
  const longest = narrow ? NARROW.longest : LONGEST;
  const letters = (labels) => Math.min(grows ? LONGEST : Math.max(...labels.map(lettersOf)) + 4, LONGEST);
  const measured = (labels, from) => Math.max(...labels.map((label, at) => widthOf(axisLabel(label, from + at, 2, longest))));
  const beside = (labels, from) => (narrow ? NARROW.edge + measured(labels, from) : EDGE + LETTER * letters(labels));
  const [left, below] = small ? [1, 0] : [beside(queries, first), beside(keys, firstKey)];
  const room = width - left - (narrow ? NARROW.bar : BAR);
  const cell = grows
    ? Math.max(Math.min(room, Math.max(window.innerHeight - ABOVE, 420)), 60) / rows
    : Math.max(Math.min(room / columns, TALLEST / rows, LARGEST), 0.5);
  const [wide, tall] = [cell * columns, cell * rows];
  const height = Math.max(tall + below + 6, narrow && !small ? NARROW.tall : 0);
  return { left, top: 6, cell, wide, tall, longest, height };
}

// Return the palette index of a value. A weight's brightness is proportional to its square root, since most weights are
// small; a change has a linear scale on either side of 0.
function colourOf(cells, value) {
  const share = value / cells.most;
  const at = cells.what === "change" ? 0.5 + Math.min(Math.max(share, -1), 1) / 2 : Math.sqrt(Math.min(Math.max(share, 0), 1));
  return 3 * Math.round(at * (COLOURS - 1));
}

function reading(cells, { query, key }) {
  const at = cellIndex(cells, query, key);
  const [reason, value] = [cells.blocked[at], cells.weights[at]];
  const size = Math.abs(value).toFixed(4);
  const sign = cells.what !== "change" || size === "0.0000" ? "" : value < 0 ? "−" : "+";
  const what = reason ? cells.reasons[reason - 1].words : fill(cells.words[cells.what], { [cells.what]: sign + size });
  const cell = cells.scores ? fill(cells.words.scored, { cell: what, score: cells.scores[at].toFixed(3) }) : what;
  return cellWords(cells, query, key, cell);
}

// Draw all cells, one pixel each; blocked ones stay transparent.
function pixels(cells, palette) {
  const picture = sheet(cells.columns, cells.rows, 1);
  const image = new ImageData(cells.columns, cells.rows);
  for (let at = 0; at < cells.weights.length; at++) {
    if (cells.blocked[at]) continue;
    const colour = colourOf(cells, cells.weights[at]);
    image.data.set(palette.subarray(colour, colour + 3), 4 * at);
    image.data[4 * at + 3] = 255;
  }
  picture.getContext("2d").putImageData(image, 0, 0);
  return picture;
}

// Hatch each run of cells in a row that the same masks block.
function hatch(pen, cells, { left, top, cell }) {
  const patterns = cells.reasons.map(({ hatch }) => hatching(pen, hatch, GROUND));
  for (let query = 0; query < cells.rows; query++) {
    for (let key = 0; key < cells.columns; ) {
      const reason = cells.blocked[cellIndex(cells, query, key)];
      const begin = key;
      while (key < cells.columns && cells.blocked[cellIndex(cells, query, key)] === reason) key++;
      if (!reason) continue;
      pen.fillStyle = patterns[reason - 1];
      pen.fillRect(left + begin * cell, top + query * cell, (key - begin) * cell, cell);
    }
  }
}

// Write as many token names as fit; with their positions if some are left out.
function names(pen, cells, { left, top, cell, wide, tall, longest, height }) {
  const every = Math.ceil(LINE / cell);
  pen.textAlign = "right";
  for (let at = 0; at < cells.rows; at += every) pen.fillText(axisLabel(cells.queries[at], cells.first + at, every, longest), left - 5, top + (at + 0.5) * cell);
  for (let at = 0; at < cells.columns; at += every) {
    upright(pen, axisLabel(cells.keys[at], cells.firstKey + at, every, longest), left + (at + 0.5) * cell, top + tall + 5);
  }
  pen.textAlign = "center";
  pen.fillText(cells.titles[1], left + Math.max(wide, 160) / 2, height - 7);
  upright(pen, cells.titles[0], 7, top + Math.max(tall, 160) / 2);
}

function bar(pen, cells, palette, { left, top, wide, tall }, ink) {
  const [x, y, high] = [left + wide + 12, top + 18, Math.max(Math.min(tall - 24, 220), 60)];
  const least = cells.what === "change" ? -cells.most : 0;
  for (let down = 0; down < high; down++) {
    const colour = colourOf(cells, cells.most - ((cells.most - least) * down) / (high - 1));
    pen.fillStyle = `rgb(${palette.subarray(colour, colour + 3).join()})`;
    pen.fillRect(x, y + down, 10, 1.5);
  }
  pen.fillStyle = ink;
  pen.textAlign = "left";
  pen.fillText(cells.words[`bar_${cells.what}`], x, top + 6);
  for (const share of [0, 0.5, 1]) pen.fillText((cells.most - (cells.most - least) * share).toFixed(2), x + 14, y + share * high);
}

function picture(canvas, cells) {
  const width = canvas.parentElement.clientWidth || 400;
  const style = getComputedStyle(canvas);
  const ruler = Object.assign(sheet(1, 1).getContext("2d"), { font: `11px ${style.fontFamily}` });
  const geometry = layout(width, cells, (text) => ruler.measureText(text).width);
  const all = sheet(width, geometry.height);
  const pen = all.getContext("2d");
  const [red, green, blue] = style.color.match(/[\d.]+/g).map(Number);
  const dark = red + green + blue > 3 * 128; // the page is dark if its text is light
  const palette = Uint8Array.from(cells.palettes[dark ? 1 : 0].match(/../g), (pair) => parseInt(pair, 16));
  hatch(pen, cells, geometry);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(pixels(cells, palette), geometry.left, geometry.top, geometry.wide, geometry.tall);
  pen.font = `11px ${style.fontFamily}`;
  pen.textBaseline = "middle";
  bar(pen, cells, palette, geometry, style.color);
  if (!cells.small) names(pen, cells, geometry);
  return Object.assign(all, { geometry });
}

function paint(canvas, cells, all, cursor) {
  const { left, top, cell, wide, height } = all.geometry;
  canvas.style.height = `${height}px`;
  const pen = copy(canvas, all);
  const row = cells.query - cells.first;
  if (row >= 0 && row < cells.rows) frame(pen, cells.mark, 2, left, top + row * cell, wide, cell);
  if (cursor) frame(pen, getComputedStyle(canvas).color, 2, left + cursor.key * cell, top + cursor.query * cell, cell, cell);
}

function cellAt(canvas, cells, { geometry: { left, top, cell } }, event) {
  const { x, y } = pointOn(canvas, event);
  const [key, query] = [Math.floor((x - left) / cell), Math.floor((y - top) / cell)];
  return Math.min(key, query) >= 0 && key < cells.columns && query < cells.rows ? { query, key } : null;
}

const PARTS = `<canvas tabindex="0" role="application"></canvas><div class="cell" aria-live="polite"></div>`;

// Draw the cells, and handle pointer and keys. Returns a function that redraws them at the current size.
function show(element, cells, onPick) {
  const [canvas, said] = element.children;
  let all = null; // the picture and its layout, made once for a packet and a width
  const made = () => (all ||= picture(canvas, cells));
  const still = element.cursor?.query < cells.rows && element.cursor.key < cells.columns;
  let cursor = still ? element.cursor : null; // kept from one packet to the next
  const point = (at) => {
    cursor = element.cursor = at;
    paint(canvas, cells, made(), cursor);
    said.textContent = cursor ? reading(cells, cursor) : cells.words.hint;
  };
  const pick = (at) => {
    if (!at || cells.grows) return;
    cells.query = cells.first + at.query;
    point(cursor);
    onPick("query", cells.query);
  };
  canvas.onpointerdown = canvas.onpointermove = (event) => point(cellAt(canvas, cells, made(), event));
  canvas.onpointerleave = (event) => {
    if (event.pointerType !== "touch") point(null);
  };
  canvas.onclick = (event) => pick(cellAt(canvas, cells, made(), event));
  canvas.onkeydown = (event) => {
    if (isShortcut(event)) return;
    if (event.key in STEPS) {
      const row = Math.min(Math.max(cells.query - cells.first, 0), cells.rows - 1);
      const from = cursor || { query: row, key: Math.min(row, cells.columns - 1) };
      const [query, key] = cursor ? stepped(event.key, from.query, from.key, cells.rows, cells.columns) : [from.query, from.key];
      point({ query, key });
    } else if (isPress(event)) pick(cursor);
    else return;
    event.preventDefault();
  };
  const alt = cells.alt || fill(cells.words.alt, { name: cells.name, queries: cells.rows, keys: cells.columns });
  canvas.setAttribute("aria-label", `${alt} ${cells.words.hint}`);
  canvas.dataset.rows = cells.rows;
  canvas.style.cursor = cells.grows ? "default" : "";
  return () => {
    all = null;
    point(cursor);
  };
}

export function draw(element, data, onPick) {
  const canvas = ensureParts(element, data, PARTS);
  let redraw = null;
  const take = (packet) => {
    const cells = readCells(packet);
    redraw = show(element, cells, onPick);
    element.dataset.head = cells.name;
  };
  return receiveSized(canvas, data, take, () => redraw()); // the observer's first report draws it immediately
}
