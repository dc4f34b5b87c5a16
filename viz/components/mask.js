// The composed mask of a text, to draw on: rows are queries, columns are keys. Packet: see viz/mask_canvas.py.
// A stroke is [kind, query, key, last query, last key]; every stroke shows at once, and the whole drawing goes to the
// page, through the trigger "drawn", a moment after the last one.

const WAIT = 60; // milliseconds of rest before the page hears of it
const HEAD = { wide: 74, narrow: 16 }; // css pixels for the tokens beside and above the cells
const READABLE = 11; // css pixels a cell needs for its token's name
const FAINT = 0.75; // of the hatching, so that what may be seen stands out
const ERASE = 0, BLOCK = 1, OPEN = 2;
const KINDS = { erase: ERASE, block: BLOCK, open: OPEN };

async function unpack(data) {
  const bytes = data.slice(); // Streamlit's view starts at an unaligned offset
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const stream = new Blob([bytes.subarray(4 + length)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const body = new Uint8Array(await new Response(stream).arrayBuffer());
  const cells = header.size * header.size;
  return { ...header, blockers: body.subarray(0, cells), openers: body.subarray(cells) };
}

// The drawing as one kind for each cell on screen; of the strokes on a cell the last one counts.
function painted(mask, strokes) {
  const { size, place } = mask;
  const cells = new Uint8Array(size * size);
  const real = place.map((_, at) => at).filter((at) => place[at] >= 0); // one after the other, without a gap
  if (!real.length) return cells;
  const [begin, end] = [real[0], real[real.length - 1]];
  const at = (position) => begin + position - place[begin];
  for (const [kind, query, key, lastQuery, lastKey] of strokes) {
    const [left, right] = [Math.max(at(key), begin), Math.min(at(lastKey), end) + 1];
    for (let q = Math.max(at(query), begin); q <= Math.min(at(lastQuery), end); q++) {
      if (left < right) cells.fill(KINDS[kind], q * size + left, q * size + right);
    }
  }
  return cells;
}

const bitNames = (names, bits) => names.filter((_, bit) => bits & (1 << bit)).map((one) => one.name);

// What is so with a cell, and why.
function verdict(mask, drawing, cell) {
  const blockers = bitNames(mask.masks, mask.blockers[cell]);
  const openers = bitNames(mask.openings, mask.openers[cell]);
  const list = (names) => names.join(" and ");
  if (drawing[cell] === OPEN) return { open: true, why: `drawn open${blockers.length ? `, ${list(blockers)} would block it` : ""}` };
  const shut = openers.length ? [] : blockers;
  const padding = mask.place[Math.floor(cell / mask.size)] < 0 || mask.place[cell % mask.size] < 0;
  if (padding) return { open: !shut.length, why: `${shut.length ? `blocked by ${list(shut)}` : "allowed"}; padding cannot be drawn on` };
  if (drawing[cell] === BLOCK) return { open: false, why: `blocked by ${list([...shut, "drawn"])}` };
  if (shut.length) return { open: false, why: `blocked by ${list(shut)}` };
  return { open: true, why: blockers.length ? `allowed: ${list(blockers)} would block it, ${list(openers)} open it again` : "allowed" };
}

function layout(canvas, mask) {
  const width = canvas.parentElement.clientWidth || 400;
  const wide = (width - HEAD.wide) / mask.size >= READABLE;
  const head = wide ? HEAD.wide : HEAD.narrow;
  return { width, wide, head, cell: (width - head) / mask.size };
}

// Stripes of every mask that blocks a cell, each in its colour.
function stripes(colours, ratio) {
  const line = 4 * ratio;
  const side = Math.round(line * colours.length * 2);
  const tile = document.createElement("canvas");
  tile.width = tile.height = side;
  const pen = tile.getContext("2d");
  pen.lineWidth = line * 0.8;
  for (let step = -1; step <= 2; step++) {
    colours.forEach((colour, place) => {
      const shift = step * side + place * line * 2;
      pen.strokeStyle = colour;
      pen.beginPath();
      pen.moveTo(shift, side);
      pen.lineTo(shift + side, 0);
      pen.stroke();
    });
  }
  return tile;
}

function colours(mask, drawing, cell) {
  if (drawing[cell] === OPEN) return [];
  const bits = mask.openers[cell] ? 0 : mask.blockers[cell];
  const shut = mask.masks.filter((_, bit) => bits & (1 << bit)).map((one) => one.colour);
  return drawing[cell] === BLOCK ? [...shut, mask.drawn] : shut;
}

const alike = (mask, drawing, one, other) =>
  mask.blockers[one] === mask.blockers[other] && mask.openers[one] === mask.openers[other] && drawing[one] === drawing[other];

// The cells and the tokens' names, on a canvas of their own: pointing at cells draws none of them anew.
function picture(canvas, mask, drawing) {
  const ratio = window.devicePixelRatio || 1;
  const { width, wide, head, cell } = layout(canvas, mask);
  const sheet = document.createElement("canvas");
  sheet.width = sheet.height = Math.round(width * ratio);
  const pen = sheet.getContext("2d");
  pen.scale(ratio, ratio);
  const style = getComputedStyle(canvas);
  const ground = style.getPropertyValue("--st-secondary-background-color");
  const patterns = new Map();
  const gap = cell >= 7 ? 1 : 0;
  for (let q = 0; q < mask.size; q++) {
    for (let k = 0; k < mask.size; k++) {
      const at = q * mask.size + k;
      let cells = 1; // small cells that are alike are painted as one
      while (!gap && k + cells < mask.size && alike(mask, drawing, at, at + cells)) cells += 1;
      const [x, y] = [head + k * cell, head + q * cell];
      const shut = colours(mask, drawing, at);
      const span = cells * cell - gap;
      k += cells - 1;
      pen.fillStyle = shut.length ? ground : mask.allowed;
      pen.fillRect(x, y, span, cell - gap);
      if (shut.length) {
        const name = shut.join();
        if (!patterns.has(name)) {
          const pattern = pen.createPattern(stripes(shut, ratio), "repeat");
          pattern.setTransform(new DOMMatrix().scale(1 / ratio));
          patterns.set(name, pattern);
        }
        pen.fillStyle = patterns.get(name);
        pen.globalAlpha = FAINT;
        pen.fillRect(x, y, span, cell - gap);
        pen.globalAlpha = 1;
      } else if (drawing[at] === OPEN || (mask.blockers[at] && mask.openers[at])) {
        const first = mask.openings.find((_, bit) => mask.openers[at] & (1 << bit));
        pen.fillStyle = style.getPropertyValue("--st-background-color") || "#fff";
        pen.fillRect(x + cell * 0.15, y + cell * 0.15, span - cell * 0.35, cell * 0.65);
        pen.fillStyle = drawing[at] === OPEN ? mask.drawn : first.colour;
        pen.fillRect(x + cell * 0.25, y + cell * 0.25, span - cell * 0.55, cell * 0.45);
      }
    }
  }
  names(pen, mask, { head, cell, wide }, style);
  return sheet;
}

function draw(canvas, mask, sheet, chosen, cursor) {
  const ratio = window.devicePixelRatio || 1;
  const { width, head, cell } = layout(canvas, mask);
  if (canvas.width !== sheet.width) canvas.width = canvas.height = sheet.width;
  canvas.style.height = `${width}px`;
  const style = getComputedStyle(canvas);
  const pen = canvas.getContext("2d");
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(sheet, 0, 0);
  pen.scale(ratio, ratio);
  if (chosen) frame(pen, chosen, { head, cell }, style.getPropertyValue("--st-primary-color") || "#d33", 2);
  else if (cursor) frame(pen, { q: cursor.q, k: cursor.k, lastQ: cursor.q, lastK: cursor.k }, { head, cell }, style.color, 1.5);
}

function names(pen, mask, { head, cell, wide }, style) {
  pen.fillStyle = style.color;
  pen.font = `${Math.min(11, Math.max(8, cell - 1))}px ${style.fontFamily}`;
  pen.textBaseline = "middle";
  if (!wide) {
    pen.textAlign = "left";
    pen.fillText("keys → drag here for whole columns", head, head / 2);
    pen.save();
    pen.translate(head / 2, mask.size * cell + head);
    pen.rotate(-Math.PI / 2);
    pen.fillText("queries: drag here for whole rows", 0, 0);
    pen.restore();
    return;
  }
  const short = (text) => (text.length > 10 ? `${text.slice(0, 9)}…` : text);
  mask.labels.forEach((label, place) => {
    pen.textAlign = "right";
    pen.fillText(short(label), head - 5, head + (place + 0.5) * cell);
    pen.save();
    pen.translate(head + (place + 0.5) * cell, head - 5);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "left";
    pen.fillText(short(label), 0, 0);
    pen.restore();
  });
}

function frame(pen, { q, k, lastQ, lastK }, { head, cell }, colour, line) {
  pen.strokeStyle = colour;
  pen.lineWidth = line;
  pen.strokeRect(head + k * cell, head + q * cell, (lastK - k + 1) * cell, (lastQ - q + 1) * cell);
}

// The cell under the pointer; -1 for a whole row or column, beside or above the cells.
function cellAt(canvas, mask, event) {
  const box = canvas.getBoundingClientRect();
  const { head, cell } = layout(canvas, mask);
  const step = (pixels) => Math.min(Math.floor((pixels - head) / cell), mask.size - 1);
  return { q: Math.max(step(event.clientY - box.top), -1), k: Math.max(step(event.clientX - box.left), -1) };
}

// From one corner to the other; a corner beside the cells takes the whole row, one above them the whole column.
function rectangle(mask, from, to) {
  const last = mask.size - 1;
  const span = (one, other) => (one < 0 ? [0, last] : [Math.min(one, Math.max(other, 0)), Math.max(one, other)]);
  const [q, lastQ] = span(from.q, to.q);
  const [k, lastK] = span(from.k, to.k);
  return { q, k, lastQ, lastK };
}

// A rectangle of cells as a stroke over positions; whole rows and columns reach from the text's first token to its last.
function strokeOf(mask, kind, from, box) {
  const real = (first, last) => mask.place.slice(first, last + 1).filter((one) => one >= 0);
  const side = (whole, first, last) => {
    const places = real(first, last);
    return whole ? [0, mask.tokens - 1] : places.length ? [places[0], places[places.length - 1]] : null;
  };
  const queries = side(from.q < 0, box.q, box.lastQ);
  const keys = side(from.k < 0, box.k, box.lastK);
  return queries && keys ? [kind, queries[0], keys[0], queries[1], keys[1]] : null;
}

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// Lives as long as the canvas: the page may send many packets, and the drawing goes on.
function studio(canvas, root) {
  const why = root.querySelector(".why");
  const self = { mask: null, strokes: [], past: [], drawing: null, sheet: null, tool: "block", from: null, to: null, cursor: null, anchor: null,
    sent: 0, timer: null, send: null };

  const show = () => {
    const box = self.from ? rectangle(self.mask, self.from, self.to) : self.anchor && rectangle(self.mask, self.anchor, self.cursor);
    self.sheet ||= picture(canvas, self.mask, self.drawing);
    draw(canvas, self.mask, self.sheet, box, self.cursor);
    const at = self.cursor;
    if (!at || at.q < 0 || at.k < 0) why.textContent = self.mask.hint;
    else {
      const name = (place) => `${place + self.mask.first}: ${self.mask.labels[place]}`;
      why.textContent = `${name(at.q)} looks at ${name(at.k)}: ${verdict(self.mask, self.drawing, at.q * self.mask.size + at.k).why}`;
    }
    for (const button of root.querySelectorAll("[data-tool]")) button.setAttribute("aria-pressed", button.dataset.tool === self.tool);
    for (const button of root.querySelectorAll("[data-do]")) button.disabled = !self.strokes.length && (button.dataset.do === "clear" || !self.past.length);
  };
  const changed = (strokes, back = false) => {
    if (!back) self.past.push(self.strokes);
    self.strokes = strokes;
    self.drawing = painted(self.mask, strokes);
    self.sheet = null;
    self.sent += 1;
    clearTimeout(self.timer);
    const number = self.sent;
    self.timer = setTimeout(() => self.send({ number, epoch: self.mask.epoch, strokes: self.strokes }), WAIT);
    show();
  };
  const add = (from, to) => {
    const box = rectangle(self.mask, from, to);
    const one = box.q === box.lastQ && box.k === box.lastK && from.q >= 0 && from.k >= 0;
    const again = one && self.tool !== "erase" && self.drawing[box.q * self.mask.size + box.k] === KINDS[self.tool];
    const stroke = strokeOf(self.mask, again ? "erase" : self.tool, from, box);
    if (stroke && self.strokes.length < self.mask.most) changed([...self.strokes, stroke]);
  };
  const act = {
    undo: () => (self.past.length ? changed(self.past.pop(), true) : self.strokes.length && changed(self.strokes.slice(0, -1), true)),
    clear: () => self.strokes.length && changed([]),
  };

  canvas.onpointerdown = (event) => {
    if (!self.mask || event.button) return;
    self.from = self.to = cellAt(canvas, self.mask, event);
    if (self.from.q < 0 && self.from.k < 0) self.from = self.to = null;
    else canvas.setPointerCapture(event.pointerId);
    self.anchor = null;
    show();
  };
  canvas.onpointermove = (event) => {
    if (!self.mask) return;
    const at = cellAt(canvas, self.mask, event);
    if (at.q === self.cursor?.q && at.k === self.cursor?.k) return;
    self.cursor = at;
    if (self.from) self.to = at;
    show();
  };
  canvas.onpointerup = () => {
    if (!self.from) return;
    const [from, to] = [self.from, self.to];
    self.from = null;
    add(from, to);
    show();
  };
  canvas.onpointercancel = () => { self.from = null; if (self.mask) show(); };
  canvas.onpointerleave = () => { if (!self.from && self.mask) { self.cursor = null; show(); } };
  canvas.onkeydown = (event) => {
    if (!self.mask) return;
    const last = self.mask.size - 1;
    const at = self.cursor && self.cursor.q >= 0 && self.cursor.k >= 0 ? self.cursor : { q: 0, k: 0 };
    if (event.key in STEPS) {
      const [down, right] = STEPS[event.key];
      self.anchor = event.shiftKey ? self.anchor || at : null;
      self.cursor = { q: Math.min(Math.max(at.q + down, 0), last), k: Math.min(Math.max(at.k + right, 0), last) };
      show();
    } else if (event.key === "Enter" || event.key === " ") {
      const from = self.anchor || at;
      self.anchor = null;
      add(from, at);
    } else if (event.key === "r") add({ q: at.q, k: -1 }, at);
    else if (event.key === "c") add({ q: -1, k: at.k }, at);
    else if (event.key === "u" || (event.key === "z" && (event.ctrlKey || event.metaKey))) act.undo();
    else if (event.key === "Delete") act.clear();
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
  self.take = (mask) => {
    const ours = self.mask && mask.epoch === self.mask.epoch && mask.number < self.sent; // the page has not heard of all
    const replaced = self.mask && mask.epoch !== self.mask.epoch && self.strokes.length;
    self.mask = mask;
    if (replaced) self.past.push(self.strokes); // what a loaded file replaced can be had again
    if (!ours) {
      clearTimeout(self.timer);
      self.strokes = mask.strokes;
      self.sent = mask.number;
    }
    self.drawing = painted(mask, self.strokes);
    self.sheet = null;
    if (self.cursor && (self.cursor.q >= mask.size || self.cursor.k >= mask.size)) self.cursor = self.anchor = null;
    canvas.setAttribute("aria-label", mask.alt);
    show();
  };
  self.resized = () => {
    self.sheet = null;
    if (self.mask) show();
  };
  return self;
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const canvas = parentElement.querySelector("canvas");
  canvas.studio ||= studio(canvas, parentElement.querySelector(".mask"));
  const self = canvas.studio;
  self.send = (drawing) => setTriggerValue("drawn", drawing);
  const resized = new ResizeObserver(self.resized);
  let left = false;
  canvas.latest = data; // packets unpack one after another, but may not finish in that order
  unpack(data).then((mask) => {
    if (left || canvas.latest !== data) return;
    self.take(mask);
    resized.observe(canvas.parentElement);
  });
  return () => {
    left = true;
    clearTimeout(self.leaving);
    self.leaving = setTimeout(() => canvas.isConnected || clearTimeout(self.timer)); // another page was chosen
    resized.disconnect();
  };
}
