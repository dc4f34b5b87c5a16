// The overview of all heads: rows are layers, columns are heads. It draws the bytes it is given and knows no mask.
// Packet: see viz/overview.py. onPick("pick", [layer, head]) tells which head was chosen.

const LABEL = 26; // css pixels for the layer and head numbers
const GAP = 3;
const BLOCKED = 255;

function read({ header, body }) {
  return { ...header, palette: body.subarray(0, 3 * 255), pixels: body.subarray(3 * 255) };
}

function thumbnail(packet, cell) {
  const { wide, tall, palette, pixels } = packet;
  const image = new ImageData(wide, tall);
  const begin = cell * wide * tall;
  for (let i = 0; i < wide * tall; i++) {
    const value = pixels[begin + i];
    if (value === BLOCKED) continue; // stays transparent: the hatching behind it shows
    image.data.set(palette.subarray(3 * value, 3 * value + 3), 4 * i);
    image.data[4 * i + 3] = 255;
  }
  return image;
}

function layout(packet, width) {
  const cell = (width - LABEL) / packet.heads;
  const tall = Math.max((cell * packet.tall) / packet.wide, 4);
  return { cell, tall, height: LABEL + tall * packet.layers };
}

// Every head and the numbers beside them, on a canvas of their own: what is pointed at only moves a frame upon it.
function picture(canvas, packet) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth || 320;
  const { cell, tall, height } = layout(packet, width);
  const all = sheet(width, height, ratio);
  const pen = all.getContext("2d");
  pen.imageSmoothingEnabled = false;
  const style = getComputedStyle(canvas);
  const hatch = hatching(pen, [packet.hatch], ratio, packet.hatch.ground);
  const small = document.createElement("canvas");
  Object.assign(small, { width: packet.wide, height: packet.tall });
  const gap = gapOf(cell);
  for (let layer = 0; layer < packet.layers; layer++) {
    for (let head = 0; head < packet.heads; head++) {
      const [x, y] = [LABEL + head * cell, LABEL + layer * tall];
      pen.fillStyle = hatch;
      pen.fillRect(x, y, cell - gap, tall - gap);
      small.getContext("2d").putImageData(thumbnail(packet, layer * packet.heads + head), 0, 0);
      pen.drawImage(small, x, y, cell - gap, tall - gap);
    }
  }
  pen.fillStyle = style.color;
  pen.font = `11px ${style.fontFamily}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const skip = (size) => Math.max(1, Math.ceil(16 / size));
  for (let head = 0; head < packet.heads; head += skip(cell)) pen.fillText(`H${head}`, LABEL + (head + 0.5) * cell - gap / 2, LABEL / 2);
  for (let layer = 0; layer < packet.layers; layer += skip(tall)) pen.fillText(`L${packet.numbers[layer]}`, LABEL / 2, LABEL + (layer + 0.5) * tall);
  return all;
}

function paint(canvas, packet, all, cursor) {
  const { cell, tall, height } = layout(packet, canvas.parentElement.clientWidth || 320);
  canvas.style.height = `${height}px`;
  const pen = copy(canvas, all, window.devicePixelRatio || 1);
  const style = getComputedStyle(canvas);
  const gap = gapOf(cell);
  const frame = (layer, head, colour, line) => {
    pen.strokeStyle = colour;
    pen.lineWidth = line;
    const out = gap / 2; // in the gap, and not over the cells
    pen.strokeRect(LABEL + head * cell - out, LABEL + layer * tall - out, cell - gap + 2 * out, tall - gap + 2 * out);
  };
  frame(packet.layer, packet.head, style.getPropertyValue("--st-primary-color") || "#d33", 3);
  if (cursor) frame(cursor.layer, cursor.head, style.color, 1.5);
}

const gapOf = (cell) => (cell > 20 ? GAP : 1);

function cellAt(canvas, packet, event) {
  const box = canvas.getBoundingClientRect();
  const { cell, tall } = layout(packet, box.width);
  const head = Math.floor((event.clientX - box.left - LABEL) / cell);
  const layer = Math.floor((event.clientY - box.top - LABEL) / tall);
  const inside = head >= 0 && head < packet.heads && layer >= 0 && layer < packet.layers;
  return inside ? { layer, head } : null;
}

function moved(packet, from, key) {
  const [layer, head] = stepped(key, from.layer, from.head, packet.layers, packet.heads);
  return { layer, head };
}

// The canvas and the line below it, made once: a canvas that stays keeps its focus.
function parts(element) {
  if (!element.firstElementChild) {
    const [canvas, name] = ["canvas", "div"].map((tag) => document.createElement(tag));
    Object.assign(canvas, { tabIndex: 0, role: "application", ariaLabel: "Attention of every head" });
    Object.assign(name, { className: "name", ariaLive: "polite" });
    element.append(canvas, name);
  }
  return element.children;
}

export function draw(element, data, onPick) {
  const [canvas, name] = parts(element);
  let packet = null;
  let cursor = null;
  let left = false;
  let all = null; // the picture, painted once for a packet and a size

  const show = () => paint(canvas, packet, (all ||= picture(canvas, packet)), cursor);

  const say = () => {
    const at = cursor || packet;
    const chosen = at.layer === packet.layer && at.head === packet.head;
    name.textContent = `Layer ${packet.numbers[at.layer]}, head ${at.head}${chosen ? " (shown large)" : ""}`;
  };
  const point = (at) => {
    if (at?.layer === cursor?.layer && at?.head === cursor?.head) return;
    cursor = at;
    show();
    say();
  };
  const pick = (at) => {
    if (!at) return;
    Object.assign(packet, at); // shown at once; the page follows
    show();
    say();
    onPick("pick", [at.layer, at.head]);
  };

  canvas.onpointermove = (event) => packet && point(cellAt(canvas, packet, event));
  canvas.onpointerleave = () => packet && point(null);
  canvas.onclick = (event) => packet && pick(cellAt(canvas, packet, event));
  canvas.onkeydown = (event) => {
    if (!packet) return;
    if (event.key in STEPS) point(moved(packet, cursor || packet, event.key));
    else if (event.key === "Enter" || event.key === " ") pick(cursor);
    else return;
    event.preventDefault();
  };
  const resized = new ResizeObserver(() => {
    all = null;
    if (packet) show();
  });

  canvas.latest = data; // packets unpack one after another, but may not finish in that order
  unpack(data).then((unpacked) => {
    if (left || canvas.latest !== data) return;
    packet = read(unpacked);
    canvas.setAttribute(
      "aria-label",
      `Attention of every head: ${packet.layers} layers in rows, ${packet.heads} heads in columns. ` +
        "Arrow keys move, Enter chooses a head."
    );
    show();
    say();
    resized.observe(canvas.parentElement);
  });

  return () => {
    left = true;
    resized.disconnect();
  };
}
