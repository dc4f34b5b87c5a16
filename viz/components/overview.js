// The overview of all heads: rows are layers, columns are heads. It draws the bytes it is given and knows no mask.
// Packet: see viz/overview.py. Returns the picked cell as [layer, head] through the trigger "pick".

const LABEL = 26; // css pixels for the layer and head numbers
const GAP = 3;
const BLOCKED = 255;

async function unpack(data) {
  const bytes = data.slice(); // Streamlit's view starts at an unaligned offset
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const stream = new Blob([bytes.subarray(4 + length)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const body = new Uint8Array(await new Response(stream).arrayBuffer());
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

function hatching(context, ratio) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = Math.round(6 * ratio);
  const pen = tile.getContext("2d");
  pen.fillStyle = "rgba(140,146,158,0.16)";
  pen.fillRect(0, 0, tile.width, tile.height);
  pen.strokeStyle = "rgba(140,146,158,0.75)";
  pen.lineWidth = ratio;
  for (const shift of [-tile.width, 0, tile.width]) {
    pen.beginPath();
    pen.moveTo(shift, tile.height);
    pen.lineTo(shift + tile.width, 0);
    pen.stroke();
  }
  return context.createPattern(tile, "repeat");
}

function layout(packet, width) {
  const cell = (width - LABEL) / packet.heads;
  const tall = Math.max((cell * packet.tall) / packet.wide, 4);
  return { cell, tall, height: LABEL + tall * packet.layers };
}

function draw(canvas, packet, cursor) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth || 320;
  const { cell, tall, height } = layout(packet, width);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.imageSmoothingEnabled = false;
  const style = getComputedStyle(canvas);
  const hatch = hatching(context, ratio);
  hatch.setTransform(new DOMMatrix().scale(1 / ratio));
  const small = document.createElement("canvas");
  small.width = packet.wide;
  small.height = packet.tall;
  const gap = cell > 20 ? GAP : 1;
  for (let layer = 0; layer < packet.layers; layer++) {
    for (let head = 0; head < packet.heads; head++) {
      const [x, y] = [LABEL + head * cell, LABEL + layer * tall];
      context.fillStyle = hatch;
      context.fillRect(x, y, cell - gap, tall - gap);
      small.getContext("2d").putImageData(thumbnail(packet, layer * packet.heads + head), 0, 0);
      context.drawImage(small, x, y, cell - gap, tall - gap);
    }
  }
  context.fillStyle = style.color;
  context.font = `11px ${style.fontFamily}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const skip = (size) => Math.max(1, Math.ceil(16 / size));
  for (let head = 0; head < packet.heads; head += skip(cell)) context.fillText(`H${head}`, LABEL + (head + 0.5) * cell - gap / 2, LABEL / 2);
  for (let layer = 0; layer < packet.layers; layer += skip(tall)) context.fillText(`L${layer}`, LABEL / 2, LABEL + (layer + 0.5) * tall);
  const frame = (layer, head, colour, line) => {
    context.strokeStyle = colour;
    context.lineWidth = line;
    context.strokeRect(LABEL + head * cell - 0.5, LABEL + layer * tall - 0.5, cell - gap + 1, tall - gap + 1);
  };
  frame(packet.layer, packet.head, style.getPropertyValue("--st-primary-color") || "#d33", 3);
  if (cursor) frame(cursor.layer, cursor.head, style.color, 1.5);
}

function cellAt(canvas, packet, event) {
  const box = canvas.getBoundingClientRect();
  const { cell, tall } = layout(packet, box.width);
  const head = Math.floor((event.clientX - box.left - LABEL) / cell);
  const layer = Math.floor((event.clientY - box.top - LABEL) / tall);
  const inside = head >= 0 && head < packet.heads && layer >= 0 && layer < packet.layers;
  return inside ? { layer, head } : null;
}

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function moved(packet, from, key) {
  const [down, right] = STEPS[key];
  return {
    layer: Math.min(Math.max(from.layer + down, 0), packet.layers - 1),
    head: Math.min(Math.max(from.head + right, 0), packet.heads - 1),
  };
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const canvas = parentElement.querySelector("canvas");
  const name = parentElement.querySelector(".name");
  let packet = null;
  let cursor = null;
  let left = false;

  const say = () => {
    const at = cursor || packet;
    const chosen = at.layer === packet.layer && at.head === packet.head;
    name.textContent = `Layer ${at.layer}, head ${at.head}${chosen ? " (shown large)" : ""}`;
  };
  const point = (at) => {
    if (at?.layer === cursor?.layer && at?.head === cursor?.head) return;
    cursor = at;
    draw(canvas, packet, cursor);
    say();
  };
  const pick = (at) => {
    if (!at) return;
    Object.assign(packet, at); // shown at once; the page follows
    draw(canvas, packet, cursor);
    say();
    setTriggerValue("pick", [at.layer, at.head]);
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
  const resized = new ResizeObserver(() => packet && draw(canvas, packet, cursor));

  canvas.latest = data; // packets unpack one after another, but may not finish in that order
  unpack(data).then((unpacked) => {
    if (left || canvas.latest !== data) return;
    packet = unpacked;
    canvas.setAttribute(
      "aria-label",
      `Attention of every head: ${packet.layers} layers in rows, ${packet.heads} heads in columns. ` +
        "Arrow keys move, Enter chooses a head."
    );
    draw(canvas, packet, cursor);
    say();
    resized.observe(canvas.parentElement);
  });

  return () => {
    left = true;
    resized.disconnect();
  };
}
