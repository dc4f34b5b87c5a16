// 8×8 pictures on a canvas: a large one, to view, to select a pixel of or to draw on; or one for every head, to select
// a head. It draws the colours of its packet and runs no model. Packet: see viz/pixels.py. Cell 0 is the class token,
// cell 1 + p is pixel p. onPick("pick", number) reports a pixel or a picture; onPick("drawn", {number, epoch, levels})
// sends the whole drawing.

const SIDE = 8;
const WAIT = 250; // ms without a stroke before a drawing is sent
const LABEL = 26; // css pixels for the layer and head numbers

const PARTS = `
  <div class="tools" hidden></div>
  <canvas tabindex="0" role="application" data-label="name"></canvas>
  <div class="why" aria-live="polite"></div>
`;

// Return the layout: many pictures in rows and columns with numbers beside them, or a single picture.
function layout(canvas, page) {
  const width = canvas.parentElement.clientWidth || 320;
  const many = page.mode === "heads";
  const left = many ? LABEL : 0;
  const box = (width - left) / page.columns;
  const unit = (many ? box - 6 : box - 2) / SIDE;
  const strip = unit * (many ? 1.25 : 0.9); // the class token's cell, above the pixels
  const tall = strip + unit * SIDE + (many ? 8 : 6);
  return { width, many, left, box, unit, strip, tall, height: (many ? LABEL : 1) + tall * page.rows };
}

// Return the corner and the size of a cell of a picture that begins at x, y.
function cellBox({ unit, strip }, cell, x, y) {
  if (cell === 0) return [x, y, unit * SIDE, strip - Math.max(unit * 0.12, 1)];
  const pixel = cell - 1;
  return [x + (pixel % SIDE) * unit, y + strip + Math.floor(pixel / SIDE) * unit, unit, unit];
}

// Draw a picture: each cell's heat colour with a square of its grey level on it or, without heat, the grey levels.
function drawPicture(pen, page, picture, geometry, x, y, looks) {
  const gap = geometry.unit > 12 ? 1 : 0;
  for (let cell = 0; cell <= SIDE * SIDE; cell++) {
    const [left, top, wide, tall] = cellBox(geometry, cell, x, y);
    const level = cell ? page.levels[cell - 1] : 0;
    const blocked = picture.colours ? !picture.colours[cell] : page.blocked[cell];
    const colour = picture.colours ? picture.colours[cell] : cell ? page.greys[level] : looks.ground;
    pen.fillStyle = blocked ? looks.ground : colour;
    pen.fillRect(left, top, wide - gap, tall - gap);
    if (blocked) {
      pen.fillStyle = looks.hatch;
      pen.fillRect(left, top, wide - gap, tall - gap);
    }
    if (level && (picture.colours || blocked)) {
      const side = geometry.unit * (0.12 + 0.42 * (level / (page.greys.length - 1)));
      const [inkX, inkY] = [left + (wide - gap - side) / 2, top + (tall - gap - side) / 2];
      const edge = geometry.unit > 12 ? 1.5 : 0.75; // an edge of paper colour, since ink would not be seen on a dark cell
      pen.globalAlpha = blocked ? 0.7 : 1;
      pen.fillStyle = page.greys[0];
      pen.fillRect(inkX - edge, inkY - edge, side + 2 * edge, side + 2 * edge);
      pen.fillStyle = page.greys[level];
      pen.fillRect(inkX, inkY, side, side);
      pen.globalAlpha = 1;
    }
  }
  if (geometry.unit > 12) {
    pen.strokeStyle = "rgba(128,128,128,.8)";
    pen.lineWidth = 1;
    pen.strokeRect(...cellBox(geometry, 0, x, y));
    pen.fillStyle = picture.colours ? picture.classInk : looks.style.color;
    pen.font = `600 ${Math.max(11, geometry.unit * 0.36)}px ${looks.style.fontFamily}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(page.className, x + (geometry.unit * SIDE) / 2, y + geometry.strip * 0.46);
  }
}

// Draw a frame within a box [x, y, width, height].
function frameWithin(pen, [x, y, wide, tall], colour, line, dash = []) {
  pen.setLineDash(dash);
  frame(pen, colour, line, x + line / 2, y + line / 2, wide - line - 1, tall - line - 1);
  pen.setLineDash([]);
}

function repaint(canvas, page, cursor) {
  const geometry = layout(canvas, page);
  canvas.style.height = `${geometry.height}px`;
  const pen = copy(canvas, sheet(geometry.width, geometry.height));
  const style = getComputedStyle(canvas);
  const looks = { style, hatch: hatching(pen, [page.hatch]), ground: style.getPropertyValue("--st-secondary-background-color") || "#888" };
  const accent = accentOf(style);
  page.pictures.forEach((picture, number) => {
    const [x, y] = corner(geometry, page, number);
    drawPicture(pen, page, picture, geometry, x, y, looks);
    const whole = [x - 2, y - 2, geometry.unit * SIDE + 4, geometry.tall - (geometry.many ? 4 : 2)];
    if (geometry.many && number === page.chosen) frameWithin(pen, whole, accent, 3);
    else if (geometry.many && number === cursor) frameWithin(pen, whole, style.color, 1.5);
    if (geometry.many) return;
    if (page.query >= 0) frameWithin(pen, cellBox(geometry, page.query, x, y), accent, 2, [4, 3]);
    if (page.chosen >= 0) frameWithin(pen, cellBox(geometry, page.chosen + 1, x, y), accent, 4);
    if (cursor !== null) frameWithin(pen, cellBox(geometry, cursor + 1, x, y), page.mode === "draw" ? accent : "#ffffff", 2);
  });
  if (!geometry.many) return;
  prepareNumbers(pen, style);
  for (let head = 0; head < page.columns; head++) pen.fillText(`H${head}`, geometry.left + (head + 0.5) * geometry.box, LABEL / 2);
  for (let layer = 0; layer < page.rows; layer++) pen.fillText(`L${layer}`, LABEL / 2, LABEL + (layer + 0.5) * geometry.tall);
}

function corner(geometry, page, number) {
  const [row, column] = [Math.floor(number / page.columns), number % page.columns];
  return [geometry.left + column * geometry.box + (geometry.many ? 3 : 1), (geometry.many ? LABEL + 2 : 1) + row * geometry.tall];
}

// Return the pixel of a single picture, or the index of one of many, under the pointer; null outside.
function under(canvas, page, event) {
  const geometry = layout(canvas, page);
  const { x, y } = pointOn(canvas, event);
  const [column, row] = geometry.many
    ? [Math.floor((x - geometry.left) / geometry.box), Math.floor((y - LABEL) / geometry.tall)]
    : [Math.floor((x - 1) / geometry.unit), Math.floor((y - 1 - geometry.strip) / geometry.unit)];
  const [rows, columns] = geometry.many ? [page.rows, page.columns] : [SIDE, SIDE];
  return row >= 0 && row < rows && column >= 0 && column < columns ? row * columns + column : null;
}

// The state of a canvas, kept between packets, so that drawing continues.
function pixelEditor(canvas, root) {
  const why = root.querySelector(".why");
  const tools = root.querySelector(".tools");
  const self = { page: null, cursor: null, tool: null, painting: false, sent: 0, timer: null,
    pick: null, send: null };

  self.show = () => {
    if (!self.page) return;
    repaint(canvas, self.page, self.cursor);
    const { page, cursor } = self;
    why.textContent = cursor === null ? page.hint : page.mode === "draw" ? spot(page, cursor) : page.names[cursor];
    for (const button of tools.querySelectorAll("[data-level]")) button.setAttribute("aria-checked", Number(button.dataset.level) === self.tool);
  };
  const spot = (page, pixel) => {
    const where = { pixel: `r${Math.floor(pixel / SIDE)} c${pixel % SIDE}`, level: page.levels[pixel] };
    return fill(pixel < page.given ? page.words.level : page.words.written, where);
  };
  const changed = (levels) => {
    self.page.levels = levels;
    self.sent += 1;
    clearTimeout(self.timer);
    const number = self.sent;
    self.timer = setTimeout(() => self.send({ number, epoch: self.page.epoch, levels }), WAIT);
  };
  const paint = (pixel, level) => {
    if (pixel === null || pixel >= self.page.given || self.page.levels[pixel] === level) return;
    const levels = [...self.page.levels];
    levels[pixel] = level;
    changed(levels);
  };
  const choose = (at) => {
    if (at === null || at === self.page.chosen || self.page.mode === "look") return;
    self.page.chosen = at; // shown immediately, before the page answers
    self.pick(at);
  };

  canvas.onpointerdown = (event) => {
    if (self.page?.mode !== "draw" || event.button) return;
    const at = under(canvas, self.page, event);
    if (at === null) return;
    canvas.setPointerCapture(event.pointerId);
    // a click on a pixel that already has the level removes it
    self.painting = self.page.levels[at] === self.tool ? 0 : self.tool;
    paint(at, self.painting);
    self.show();
  };
  canvas.onclick = (event) => {
    if (!self.page || self.page.mode === "draw") return;
    choose(under(canvas, self.page, event)); // not on pointerdown, which may begin to scroll
    self.show();
  };
  canvas.onpointermove = (event) => {
    if (!self.page) return;
    const at = under(canvas, self.page, event);
    if (at === self.cursor) return;
    self.cursor = at;
    if (self.painting !== false) paint(at, self.painting);
    self.show();
  };
  canvas.onpointerup = canvas.onpointercancel = () => { self.painting = false; };
  canvas.onpointerleave = () => { if (self.painting === false) { self.cursor = null; self.show(); } };
  canvas.onkeydown = (event) => {
    if (!self.page || isShortcut(event)) return;
    const { page } = self;
    const at = self.cursor ?? Math.max(page.chosen, 0);
    const [rows, columns] = page.mode === "heads" ? [page.rows, page.columns] : [SIDE, SIDE];
    const level = /^[0-9]$/.test(event.key) ? Number(event.key) : -1;
    if (event.key in STEPS) {
      const [row, column] = stepped(event.key, Math.floor(at / columns), at % columns, rows, columns);
      self.cursor = row * columns + column;
    } else if (isPress(event)) {
      if (page.mode === "draw") paint(at, page.levels[at] === self.tool ? 0 : self.tool);
      else choose(at);
    } else if (page.mode === "draw" && level >= 0 && level < page.greys.length) {
      self.tool = level;
      paint(at, level);
    } else return;
    event.preventDefault();
    self.show();
  };
  tools.onclick = (event) => {
    const button = event.target.closest("button");
    if (!button || !self.page) return;
    if (button.dataset.level) self.tool = Number(button.dataset.level);
    else changed(self.page.levels.map(() => 0));
    self.show();
  };
  self.take = (page) => {
    const ours = self.page && page.epoch === self.page.epoch && page.number < self.sent; // the page has not received all changes
    if (ours) page.levels = self.page.levels;
    else self.sent = page.number;
    const lost = ours && page.number < self.page.number; // the session was lost, and the new one has no drawing
    if (lost) self.send({ number: self.sent, epoch: page.epoch, levels: page.levels });
    self.page = page;
    self.tool ??= page.greys.length - 1;
    tools.hidden = page.mode !== "draw";
    canvas.style.touchAction = tools.hidden ? "" : "none";
    if (!tools.hidden && tools.lastChild?.textContent !== page.words.clear) furnish(tools, page); // once for each language
    canvas.setAttribute("aria-label", page.alt);
    self.show();
  };
  return self;
}

// Make a button for each grey level, and one that clears the drawing.
function furnish(tools, { greys, words }) {
  const buttons = greys.map((grey, level) => {
    const title = fill(level ? words.grey : words.paper, { level });
    return make("button", { role: "radio", "data-level": level, title, "aria-label": title, style: `--grey:${grey}` });
  });
  const group = make("span", { role: "radiogroup", "aria-label": words.greys, children: buttons });
  tools.replaceChildren(group, make("button", { text: words.clear }));
}

export function draw(element, data, onPick) {
  const canvas = ensureParts(element, data, PARTS);
  canvas.pixelEditor ||= pixelEditor(canvas, element);
  const self = canvas.pixelEditor;
  self.pick = (at) => onPick("pick", at);
  self.send = (drawing) => onPick("drawn", drawing);
  return receiveSized(canvas, data, ({ header }) => self.take(header), self.show);
}
