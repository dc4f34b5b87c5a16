// The overview of all heads: rows are layers, columns are heads. It draws the bytes of its packet and computes no mask.
// Packet: see viz/heads/overview.py. onPick("pick", [layer, head]) reports the selected head, onPick("by", [measure,
// sorted]) the measure that dims heads, "" for none, and whether heads are sorted by it.

const LABEL = 26; // css pixels for the layer and head numbers
const GAP = 3;
const BLOCKED = 255;
const MIN_TAGGED = 22; // css pixels that a thumbnail needs for a letter
const FAINT = 0.2; // opacity of a head whose measure is 0

function read({ header, body }) {
  const pixels = 3 * 255 + header.layers * header.heads * header.tall * header.wide;
  const shares = new Float32Array(body.slice(pixels).buffer);
  const packet = { ...header, palette: body.subarray(0, 3 * 255), pixels: body.subarray(3 * 255, pixels), shares };
  return { ...packet, drawn: pixelsOf(packet) };
}

// Return the share, 0 to 1, that a measure gives a head; null where there is none.
function share(packet, measure, layer, head) {
  const found = packet.shares[(measure * packet.layers + layer) * packet.heads + head];
  return Number.isNaN(found) ? null : found;
}

// Return the clearest pattern of a head, {measure, value}; null if none is clear.
function pattern(packet, layer, head) {
  let found = null;
  packet.measures.forEach(({ tag }, measure) => {
    const value = share(packet, measure, layer, head);
    if (tag && value !== null && value >= packet.clear && (found === null || value > found.value)) found = { measure, value };
  });
  return found;
}

// Return the order of each layer's heads in columns: by number, or by a measure, the largest first.
function orders(packet, measure, sorted) {
  return Array.from({ length: packet.layers }, (_, layer) => {
    const heads = Array.from({ length: packet.heads }, (_, head) => head);
    const value = (head) => share(packet, measure, layer, head) ?? -1;
    return sorted && measure >= 0 ? heads.sort((one, other) => value(other) - value(one)) : heads;
  });
}

// Draw all thumbnails on one canvas; blocked pixels are transparent and show the hatching behind.
function pixelsOf({ layers, heads, wide, tall, palette, pixels }) {
  const bytes = new Uint8ClampedArray(4 * 256);
  for (let value = 0; value < BLOCKED; value++) bytes.set([...palette.subarray(3 * value, 3 * value + 3), 255], 4 * value);
  const colours = new Uint32Array(bytes.buffer);
  const image = new ImageData(heads * wide, layers * tall);
  const out = new Uint32Array(image.data.buffer);
  let at = 0;
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) {
      for (let row = 0; row < tall; row++) {
        const begin = (layer * tall + row) * heads * wide + head * wide;
        for (let column = 0; column < wide; column++) out[begin + column] = colours[pixels[at++]];
      }
    }
  }
  const canvas = sheet(image.width, image.height, 1);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function layout(packet, width) {
  const cell = (width - LABEL) / packet.heads;
  const tall = Math.max((cell * packet.tall) / packet.wide, 4);
  return { cell, tall, height: LABEL + tall * packet.layers };
}

// Draw all heads and the numbers beside them on a separate canvas: pointing at a head only moves a frame over it. by:
// {measure, order}: the index of the measure that dims heads, or -1, and the order of heads in columns.
function picture(canvas, packet, by) {
  const width = widthOf(canvas);
  const { cell, tall, height } = layout(packet, width);
  const all = sheet(width, height);
  const pen = all.getContext("2d");
  pen.imageSmoothingEnabled = false;
  const style = getComputedStyle(canvas);
  const hatch = hatching(pen, [packet.hatch], packet.hatch.ground);
  const { wide, tall: high, drawn } = packet;
  const gap = gapOf(cell);
  for (let layer = 0; layer < packet.layers; layer++) {
    for (let column = 0; column < packet.heads; column++) {
      const head = by.order[layer][column];
      const [x, y] = [LABEL + column * cell, LABEL + layer * tall];
      pen.globalAlpha = by.measure < 0 ? 1 : FAINT + (1 - FAINT) * (share(packet, by.measure, layer, head) ?? 0);
      pen.fillStyle = hatch;
      pen.fillRect(x, y, cell - gap, tall - gap);
      pen.drawImage(drawn, head * wide, layer * high, wide, high, x, y, cell - gap, tall - gap);
      pen.globalAlpha = 1;
    }
  }
  prepareNumbers(pen, style);
  const skip = (size, needed = 16) => Math.max(1, Math.ceil(needed / size));
  const every = skip(cell, pen.measureText(`H${packet.heads - 1}`).width + 4);
  const byNumber = by.order.every((heads) => heads.every((head, column) => head === column));
  for (let head = 0; byNumber && head < packet.heads; head += every) pen.fillText(`H${head}`, LABEL + (head + 0.5) * cell - gap / 2, LABEL / 2);
  for (let layer = 0; layer < packet.layers; layer += skip(tall)) pen.fillText(`L${packet.numbers[layer]}`, LABEL / 2, LABEL + (layer + 0.5) * tall);
  return all;
}

// Return the letters of heads' patterns as elements over the upper right corners of the thumbnails.
function letters(canvas, packet, order) {
  const { cell, tall } = layout(packet, widthOf(canvas));
  if (Math.min(cell, tall) < MIN_TAGGED) return [];
  return order.flatMap((heads, layer) => heads.flatMap((head, column) => {
    const known = pattern(packet, layer, head);
    if (!known) return [];
    const [left, top] = [LABEL + (column + 1) * cell - gapOf(cell) - 12, LABEL + layer * tall];
    return [make("span", { text: packet.measures[known.measure].tag, style: `left:${left}px;top:${top}px` })];
  }));
}

function paint(canvas, packet, all, cursor, order) {
  const { cell, tall, height } = layout(packet, widthOf(canvas));
  canvas.style.height = `${height}px`;
  const pen = copy(canvas, all);
  const style = getComputedStyle(canvas);
  const out = gapOf(cell) / 2; // outside the cells, in the gap
  const frameHead = ({ layer, head }, colour, line) =>
    frame(pen, colour, line, LABEL + order[layer].indexOf(head) * cell - out, LABEL + layer * tall - out, cell, tall);
  frameHead(packet, accentOf(style), 3);
  if (cursor) frameHead(cursor, style.color, 1.5);
}

const widthOf = (canvas) => canvas.parentElement.clientWidth || 320;
const gapOf = (cell) => (cell > 20 ? GAP : 1);

function cellAt(canvas, packet, event, order) {
  const { x, y, width } = pointOn(canvas, event);
  const { cell, tall } = layout(packet, width);
  const [column, layer] = [Math.floor((x - LABEL) / cell), Math.floor((y - LABEL) / tall)];
  const inside = column >= 0 && column < packet.heads && layer >= 0 && layer < packet.layers;
  return inside ? { layer, head: order[layer][column] } : null;
}

// Describe a head: its layer and number, its pattern, and the measure that dims it.
function about(packet, { layer, head }, by) {
  const known = pattern(packet, layer, head);
  const parts = known ? [`${packet.measures[known.measure].title} ${percent(known.value)}`] : [];
  if (by.measure >= 0 && by.measure !== known?.measure) {
    const value = share(packet, by.measure, layer, head);
    parts.push(`${packet.measures[by.measure].title} ${value === null ? "–" : percent(value)}`);
  }
  const large = layer === packet.layer && head === packet.head;
  const name = fill(packet.words[large ? "large" : "head"], { layer: packet.numbers[layer], head });
  return parts.length ? fill(packet.words.measured, { head: name, measures: parts.join(packet.words.comma) }) : name;
}

// Explain the letters on the thumbnails.
function legend(packet) {
  const met = new Set();
  for (let at = 0; at < packet.layers * packet.heads; at++) {
    met.add(pattern(packet, Math.floor(at / packet.heads), at % packet.heads)?.measure);
  }
  const named = packet.measures.filter((_, measure) => met.has(measure)).map(({ tag, title }) => `${tag} ${title}`);
  return named.length ? fill(packet.words.legend, { letters: named.join(packet.words.comma), share: `${100 * packet.clear}%` }) : "";
}

const PARTS = `
  <canvas tabindex="0" role="application" data-label="name"></canvas>
  <div class="letters" aria-hidden="true"></div>
  <div class="name" aria-live="polite"></div>
  <div class="by">
    <label><span data-say="dim"></span> <select data-label="dim"></select></label>
    <label class="sort"><input type="checkbox"> <span data-say="sort"></span></label>
  </div>
  <div class="tags"></div>
`;

export function draw(element, data, onPick) {
  const canvas = ensureParts(element, data, PARTS);
  const name = element.querySelector(".name");
  let packet = null;
  let cursor = null;
  let all = null; // the picture, painted once for a packet, a width and a text colour
  let painted = "";
  const look = () => `${widthOf(canvas)} ${getComputedStyle(canvas).color}`;
  const [choice, sort] = [element.querySelector("select"), element.querySelector("input")];
  let by = { measure: -1, order: [] };

  const repaint = () => {
    if (!all) {
      painted = look();
      element.querySelector(".letters").replaceChildren(...letters(canvas, packet, by.order));
    }
    paint(canvas, packet, (all ||= picture(canvas, packet, by)), cursor, by.order);
  };
  const show = () => {
    repaint();
    name.textContent = about(packet, cursor || packet, by);
  };
  const arrange = () => {
    const measure = packet.measures.findIndex(({ name }) => name === choice.value);
    by = { measure, order: orders(packet, measure, sort.checked) };
    sort.parentElement.hidden = measure < 0;
    all = null;
  };
  const offer = () => {
    const answered = packet.by && String(packet.by);
    if (element.unanswered === answered) element.unanswered = null; // the page has received the last choice
    if (packet.by && !element.unanswered) sort.checked = packet.by[1];
    const before = packet.by && !element.unanswered ? packet.by[0] : choice.value;
    const measures = packet.measures.map(({ title, name }) => new Option(title, name));
    choice.replaceChildren(new Option(packet.words.nothing, ""), ...measures);
    choice.value = packet.measures.some(({ name }) => name === before) ? before : "";
    element.querySelector(".by").hidden = !packet.measures.length;
    element.querySelector(".tags").textContent = legend(packet);
  };
  choice.onchange = sort.onchange = () => {
    if (!packet) return;
    arrange();
    show();
    if (!packet.by) return;
    const chosen = [choice.value, sort.checked];
    element.unanswered = String(chosen);
    onPick("by", chosen);
  };

  const point = (at) => {
    if (at?.layer === cursor?.layer && at?.head === cursor?.head) return;
    cursor = at;
    show();
  };
  const pick = (at) => {
    if (!at) return;
    Object.assign(packet, at); // shown immediately, before the page answers
    show();
    onPick("pick", [at.layer, at.head]);
  };

  canvas.onpointermove = (event) => packet && point(cellAt(canvas, packet, event, by.order));
  canvas.onpointerleave = () => packet && point(null);
  canvas.onclick = (event) => packet && pick(cellAt(canvas, packet, event, by.order));
  canvas.onkeydown = (event) => {
    if (!packet || isShortcut(event)) return;
    if (event.key in STEPS) {
      const from = cursor || packet;
      const [layer, column] = stepped(event.key, from.layer, by.order[from.layer].indexOf(from.head), packet.layers, packet.heads);
      point({ layer, head: by.order[layer][column] });
    } else if (isPress(event)) pick(cursor);
    else return;
    event.preventDefault();
  };
  const resized = () => {
    if (look() === painted) return; // the observer also reports the first size
    all = null;
    repaint();
  };
  const take = (unpacked) => {
    packet = read(unpacked);
    offer();
    arrange();
    canvas.setAttribute("aria-label", fill(packet.words.alt, packet));
    show();
  };
  return receiveSized(canvas, data, take, resized);
}
