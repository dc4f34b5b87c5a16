// The composed mask of a text, to draw on: rows are queries, columns are keys. Packet: see viz/mask_lab/canvas.py.
// Its cells stand where those of the head beside it do (viz/palette.py), and a cross over both marks the cell pointed at.
// A stroke is [kind, query, key, last query, last key]; every stroke shows at once, and onPick("drawn", {number, epoch,
// strokes}) tells the whole drawing: at once, or a moment after the last of several. The first stroke over a drawing that is
// switched off, `below`, lies on top of it. A packet whose `most` is 0 is there to look at. Of a packet with a `query` its row
// is framed, and onPick("query", position) tells which one the key q chose.
// A finger scrolls the page, and draws once "Draw" is pressed, a button that is there where a finger is what one points with.

const WAIT = 60; // milliseconds of rest before a page that is busy with a stroke hears of the next ones
const HEAD = ".st-key-head_figure .js-plotly-plot"; // the head's picture on the page

const PARTS = `
  <div class="tools">
    <button data-do="draw" data-say="draw" aria-pressed="false"></button>
    <span role="group" data-label="tools">
      <button data-tool="block" aria-pressed="true" data-say="block"></button>
      <button data-tool="open" aria-pressed="false" data-say="open"></button>
      <button data-tool="erase" aria-pressed="false" data-say="erase"></button>
    </span>
    <span class="gap"></span>
    <button data-do="undo" data-say="undo" disabled></button>
    <button data-do="clear" data-say="clear" disabled></button>
  </div>
  <div class="why" aria-live="polite"></div>
  <canvas tabindex="0" role="application" data-label="name"></canvas>
`;
const FINGERS = matchMedia("(pointer: coarse)"); // as in mask.css

function read({ header, body }) {
  const [height, width] = [header.rows.place.length, header.columns.place.length];
  return { ...header, height, width, cells: new Uint16Array(body.slice().buffer) };
}

// The same cell on the head's picture: a cross over it, wherever the reader has zoomed to.
function crossHead(cursor, mask) {
  const chart = document.querySelector(HEAD);
  const [columns, rows] = chart ? ["x", "y"].map((letter) => axisOf(chart, letter)) : [];
  if (!columns || !rows) return;
  const same = rows.names().length === mask.height && columns.names().length === mask.width;
  if (!same) cursor = null; // its cells are words, or patches of several
  chart.cross ||= [0, 1].map(() => chart.appendChild(Object.assign(document.createElement("div"), { className: "cross" })));
  const lines = [
    [cursor && cursor.q >= 0, rows, cursor?.q, (at) => ({ left: columns.start, top: rows.start + at, width: columns.length, height: 1 })],
    [cursor && cursor.k >= 0, columns, cursor?.k, (at) => ({ left: columns.start + at, top: rows.start, width: 1, height: rows.length })],
  ];
  lines.forEach(([shown, axis, cell, box], number) => {
    const at = shown ? axis.at(cell) : -1;
    const line = chart.cross[number].style;
    line.cssText = `position:absolute;pointer-events:none;mix-blend-mode:difference;background:#aaa;display:${at >= 0 && at <= axis.length ? "block" : "none"}`;
    if (at >= 0) for (const [side, pixels] of Object.entries(box(at))) line[side] = `${pixels}px`;
  });
}

// The cell under the pointer; -1 for a whole row or column, beside or below the cells. A drag that began in a cell and
// has left them is at the last one on its way, one that began beside a row or below a column stays there.
function cellAt(canvas, mask, event, from) {
  const { x, y } = pointOn(canvas, event);
  const { left, top, cell } = layout(canvas, mask);
  const at = (pixels, count, begun) => {
    const steps = Math.floor(pixels / cell);
    if (!from) return steps >= 0 && steps < count ? steps : -1;
    return begun < 0 ? -1 : Math.min(Math.max(steps, 0), count - 1);
  };
  return {
    q: at(y - top, mask.height, from?.q),
    k: at(x - left, mask.width, from?.k),
  };
}

// From one corner to the other; a corner beside the cells takes the whole row, one below them the whole column.
function rectangle(mask, from, to) {
  const span = (one, other, count) => (one < 0 ? [0, count - 1] : [Math.min(one, other), Math.max(one, other)]);
  const [q, lastQ] = span(from.q, to.q, mask.height);
  const [k, lastK] = span(from.k, to.k, mask.width);
  return { q, k, lastQ, lastK };
}

// A rectangle of cells as a stroke over positions; whole rows and columns reach from the text's first token to its last.
function strokeOf(mask, kind, from, box) {
  const side = ({ place }, whole, first, last) => {
    const places = place.slice(first, last + 1).filter((one) => one >= 0);
    return whole ? [0, mask.tokens - 1] : places.length ? [places[0], places[places.length - 1]] : null;
  };
  const queries = side(mask.rows, from.q < 0, box.q, box.lastQ);
  const keys = side(mask.columns, from.k < 0, box.k, box.lastK);
  return queries && keys ? [kind, queries[0], keys[0], queries[1], keys[1]] : null;
}

// Lives as long as the canvas: the page may send many packets, and the drawing goes on.
function maskEditor(canvas, root) {
  const why = root.querySelector(".why");
  const press = (what) => root.querySelector(`[data-do=${what}]`);
  const self = { mask: null, strokes: [], below: [], past: [], drawing: null, sheet: null, tool: "block", draws: false, from: null, to: null, cursor: null, anchor: null,
    sent: 0, timer: null, send: null, choose: null };
  const draws = (finger) => !finger || self.draws;

  const show = () => {
    const box = self.from ? rectangle(self.mask, self.from, self.to) : self.anchor && rectangle(self.mask, self.anchor, self.cursor);
    self.sheet ||= picture(canvas, self.mask, self.drawing);
    paint(canvas, self.mask, self.sheet, box, self.cursor);
    crossHead(self.cursor, self.mask);
    const at = self.cursor;
    if (!at || at.q < 0 || at.k < 0) why.textContent = self.mask.most && !draws(FINGERS.matches) ? self.mask.words.press : self.mask.hint;
    else {
      const name = ({ first, labels }, place) => `${place + first}: ${labels[place]}`;
      const { rows, columns, width, words } = self.mask;
      const reason = verdict(self.mask, self.drawing, at.q * width + at.k).words;
      why.textContent = fill(words.cell, { query: name(rows, at.q), key: name(columns, at.k), why: reason });
    }
    for (const button of root.querySelectorAll("[data-tool]")) button.setAttribute("aria-pressed", button.dataset.tool === self.tool);
    const empty = !self.strokes.length;
    press("draw").setAttribute("aria-pressed", self.draws);
    press("undo").disabled = empty && !self.past.length;
    press("clear").disabled = empty;
  };
  const point = (cell) => { // no rectangle of the keyboard goes on from there
    self.cursor = cell;
    self.anchor = null;
    show();
  };
  const changed = (strokes, back = false) => {
    if (!self.mask.most) return;
    if (!back) self.past.push(self.strokes);
    self.strokes = strokes;
    self.below = [];
    self.drawing = painted(self.mask, strokes);
    self.sheet = null;
    const waits = self.sent > self.mask.number; // the page has not answered to the strokes before
    self.sent += 1;
    clearTimeout(self.timer);
    const number = self.sent;
    const send = () => self.send({ number, epoch: self.mask.epoch, strokes: self.strokes });
    if (waits) self.timer = setTimeout(send, WAIT);
    else send();
    show();
  };
  const add = (from, to) => {
    const box = rectangle(self.mask, from, to);
    const one = box.q === box.lastQ && box.k === box.lastK && from.q >= 0 && from.k >= 0;
    const again = one && self.tool !== "erase" && self.drawing[box.q * self.mask.width + box.k] === KINDS[self.tool];
    const stroke = strokeOf(self.mask, again ? "erase" : self.tool, from, box);
    if (!stroke || Math.max(self.strokes.length, self.below.length) >= self.mask.most) return;
    if (self.below.length) replace(self.below);
    changed([...self.strokes, stroke]);
  };
  const act = {
    undo: () => (self.past.length ? changed(self.past.pop(), true) : self.strokes.length && changed(self.strokes.slice(0, -1), true)),
    clear: () => self.strokes.length && changed([]),
    draw: () => { self.draws = !self.draws; },
  };

  canvas.onpointerdown = (event) => {
    if (!self.mask?.most || event.button) return;
    if (!event.isPrimary) return canvas.onpointercancel(); // a second finger: the browser enlarges the page
    if (!draws(FINGERS.matches && event.pointerType !== "mouse")) return canvas.onpointermove(event); // a tap asks why
    self.from = self.to = cellAt(canvas, self.mask, event);
    if (self.from.q < 0 && self.from.k < 0) self.from = self.to = null;
    else canvas.setPointerCapture(event.pointerId);
    self.anchor = null;
    show();
  };
  canvas.onpointermove = (event) => {
    if (!self.mask) return;
    const at = cellAt(canvas, self.mask, event, self.from);
    if (at.q === self.cursor?.q && at.k === self.cursor?.k) return;
    if (self.from) self.to = at;
    point(at);
  };
  canvas.onpointerup = () => {
    if (!self.from) return;
    const [from, to] = [self.from, self.to];
    self.from = null;
    add(from, to);
    show();
  };
  canvas.onpointercancel = () => { self.from = null; if (self.mask) show(); };
  canvas.onpointerleave = (event) => { if (!self.from && self.mask && event.pointerType !== "touch") point(null); };
  canvas.onkeydown = (event) => {
    if (!self.mask || (isShortcut(event) && event.key !== "z")) return;
    const cursor = self.cursor || { q: 0, k: 0 }; // beside a row or below a column: that row's or column's first cell
    const at = { q: Math.max(cursor.q, 0), k: Math.max(cursor.k, 0) };
    if (event.key in STEPS) {
      const [q, k] = stepped(event.key, at.q, at.k, self.mask.height, self.mask.width);
      self.anchor = event.shiftKey && self.mask.most ? self.anchor || at : null;
      self.cursor = { q, k };
      show();
    } else if (isPress(event)) {
      const from = self.anchor || cursor;
      self.anchor = null;
      add(from, cursor);
    } else if (event.key === "r") add({ q: at.q, k: -1 }, at);
    else if (event.key === "c") add({ q: -1, k: at.k }, at);
    else if (event.key === "u" || (event.key === "z" && (event.ctrlKey || event.metaKey))) act.undo();
    else if (event.key === "Delete") act.clear();
    else if (event.key === "q" && self.mask.query !== null) {
      self.mask.query = self.mask.rows.first + at.q;
      self.choose(self.mask.query);
      show();
    }
    else if (event.key === "Escape") { self.from = self.anchor = null; show(); }
    else return;
    event.preventDefault();
  };
  root.querySelector(".tools").onclick = (event) => {
    const { tool, do: what } = event.target.closest("button")?.dataset || {};
    if (tool) self.tool = tool;
    if (what && self.mask) act[what]();
    if (self.mask) show();
  };
  // The page itself set the drawing. What it replaced can be had again.
  const replace = (strokes) => {
    if (self.strokes.length) self.past.push(self.strokes);
    while (self.past.length && String(self.past[self.past.length - 1]) === String(strokes)) self.past.pop();
    self.strokes = strokes;
  };
  self.take = (mask) => {
    const ours = self.mask && mask.epoch === self.mask.epoch && mask.number < self.sent; // the page has not heard of all
    if (self.mask && mask.epoch !== self.mask.epoch) replace(mask.strokes);
    self.mask = mask;
    listen(self);
    if (!ours) {
      clearTimeout(self.timer);
      self.strokes = mask.strokes;
      self.below = mask.below;
      self.sent = mask.number;
    }
    self.drawing = painted(mask, self.strokes);
    self.sheet = null;
    if (self.cursor && (self.cursor.q >= mask.height || self.cursor.k >= mask.width)) self.cursor = self.anchor = null;
    canvas.setAttribute("aria-label", mask.alt);
    root.querySelector(".tools").hidden = !mask.most;
    root.style.setProperty("--across", `${mask.room.l + mask.room.r}px`);
    root.style.setProperty("--over", `${mask.room.t}px`);
    show();
  };
  // The cell that is pointed at on the head's picture, null where none is.
  self.point = (cell) => {
    if (!self.mask || self.from) return;
    const there = cell && cell.q < self.mask.height && cell.k < self.mask.width;
    point(there ? cell : null);
  };
  self.resized = () => {
    self.sheet = null;
    if (self.mask) show();
  };
  return self;
}

// Hear which cell of the head's picture is pointed at; plotly draws it anew now and then.
function listen(self) {
  const chart = document.querySelector(HEAD);
  if (!chart?.on || chart.heardBy === self) return;
  chart.heardBy = self;
  chart.on("plotly_hover", ({ points }) => {
    const [q, k] = points[0].pointNumber;
    const exact = self.mask && points[0].fullData.z.length === self.mask.height; // and no patches of several cells
    if (exact) self.point({ q, k });
  });
  chart.on("plotly_unhover", () => self.point(null));
}

export function draw(element, data, onPick) {
  const canvas = ensureParts(element, data, PARTS);
  canvas.maskEditor ||= maskEditor(canvas, element);
  const self = canvas.maskEditor;
  self.send = (drawing) => onPick("drawn", drawing);
  self.choose = (position) => onPick("query", position);
  self.hear ||= (event) => event.target.closest?.(HEAD) && listen(self); // one for all calls: Streamlit ends the last alone
  document.addEventListener("pointerover", self.hear);
  const end = receiveSized(canvas, data, (packet) => self.take(read(packet)), self.resized, canvas);
  return () => {
    end();
    setTimeout(() => canvas.isConnected || clearTimeout(self.timer)); // another page was chosen
    document.removeEventListener("pointerover", self.hear);
  };
}
