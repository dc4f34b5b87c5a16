// The composed mask of a text, to draw on: rows are queries, columns are keys. Packet: see viz/mask_lab/canvas.py. Its
// cells are aligned with those of the head beside it (viz/palette.py), and a cross over both marks the cell pointed at.
// A stroke is [kind, query, key, last query, last key]. Every stroke is shown immediately, and onPick("drawn", {number,
// epoch, strokes}) sends the whole drawing: immediately, or shortly after the last of several strokes. If a drawing is
// switched off (`below`), the first stroke is added on top of it. A packet whose `most` is 0 is read-only. The row of a
// packet's `query` is framed, and onPick("query", position) reports the query selected by the key q. A finger scrolls
// the page, and draws after "Draw" is pressed, a button on devices with touch input.

const WAIT = 60; // milliseconds without a stroke before further ones are sent to a page that is processing a stroke
const HEAD = ".st-key-head_figure .js-plotly-plot"; // the head's chart on the page

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

// Draw a cross over the same cell of the head's chart, at the chart's current zoom.
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

// Return the cell under the pointer; -1 for a whole row or column, beside or below the cells. During a drag that began
// in a cell (from), the nearest cell; one that began beside a row or below a column keeps its -1.
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

// Return the rectangle between two corners; a corner beside the cells takes the whole row, one below the whole column.
function rectangle(mask, from, to) {
  const span = (one, other, count) => (one < 0 ? [0, count - 1] : [Math.min(one, other), Math.max(one, other)]);
  const [q, lastQ] = span(from.q, to.q, mask.height);
  const [k, lastK] = span(from.k, to.k, mask.width);
  return { q, k, lastQ, lastK };
}

// Return a rectangle of cells as a stroke over tokens; whole rows and columns extend over all tokens of the text.
function strokeOf(mask, kind, from, box) {
  const side = ({ place }, whole, first, last) => {
    const positions = place.slice(first, last + 1).filter((position) => position >= 0);
    return whole ? [0, mask.tokens - 1] : positions.length ? [positions[0], positions[positions.length - 1]] : null;
  };
  const queries = side(mask.rows, from.q < 0, box.q, box.lastQ);
  const keys = side(mask.columns, from.k < 0, box.k, box.lastK);
  return queries && keys ? [kind, queries[0], keys[0], queries[1], keys[1]] : null;
}

// The state of a canvas, kept between packets, so that drawing continues.
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
      const name = ({ first, labels }, index) => `${index + first}: ${labels[index]}`;
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
  const point = (cell) => { // this ends a rectangle begun with the keyboard
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
    const waits = self.sent > self.mask.number; // the page has not answered the previous strokes yet
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
    const single = box.q === box.lastQ && box.k === box.lastK && from.q >= 0 && from.k >= 0;
    const again = single && self.tool !== "erase" && self.drawing[box.q * self.mask.width + box.k] === KINDS[self.tool];
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
    if (!event.isPrimary) return canvas.onpointercancel(); // a second finger: the browser zooms
    if (!draws(FINGERS.matches && event.pointerType !== "mouse")) return canvas.onpointermove(event); // a tap explains
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
  // Take a drawing that the page itself has set; undo restores the previous one.
  const replace = (strokes) => {
    if (self.strokes.length) self.past.push(self.strokes);
    while (self.past.length && String(self.past[self.past.length - 1]) === String(strokes)) self.past.pop();
    self.strokes = strokes;
  };
  self.take = (mask) => {
    const ours = self.mask && mask.epoch === self.mask.epoch && mask.number < self.sent; // the page lags behind
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
  // Point at the cell that is hovered on the head's chart; null for none.
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

// Listen for hovered cells of the head's chart, unless this is done already; plotly may have replaced the chart.
function listen(self) {
  const chart = document.querySelector(HEAD);
  if (!chart?.on || chart.listener === self) return;
  chart.listener = self;
  chart.on("plotly_hover", ({ points }) => {
    const [q, k] = points[0].pointNumber;
    const exact = self.mask && points[0].fullData.z.length === self.mask.height; // not patches of several cells
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
  self.hear ||= (event) => event.target.closest?.(HEAD) && listen(self); // one for all calls: only the last is ended
  document.addEventListener("pointerover", self.hear);
  const end = receiveSized(canvas, data, (packet) => self.take(read(packet)), self.resized, canvas);
  return () => {
    end();
    setTimeout(() => canvas.isConnected || clearTimeout(self.timer)); // the user left the page
    document.removeEventListener("pointerover", self.hear);
  };
}
