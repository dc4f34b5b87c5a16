// What the canvases share. Put before each of them (viz/components/__init__.py): they are modules without any import.

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// The header of a packet: see viz/components/words.py. What is unpacked already stays as it is.
function headerOf(data) {
  if (data.header) return data.header;
  const length = lengthOf(data);
  return JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length)));
}

const lengthOf = ({ buffer, byteOffset }) => new DataView(buffer, byteOffset).getUint32(0, true);

// The header and the bytes after it. Without a Blob or a Response: what they read comes by way of other tasks, behind
// the page's own long ones, and this comes before the next.
async function unpack(data) {
  if (data.header) return data;
  const header = headerOf(data);
  const inflater = new DecompressionStream("deflate");
  const [writer, reader] = [inflater.writable.getWriter(), inflater.readable.getReader()];
  writer.write(data.slice(4 + lengthOf(data))); // a copy: Streamlit's view starts at an unaligned offset
  writer.close();
  const parts = [];
  for (let part = await reader.read(); !part.done; part = await reader.read()) parts.push(part.value);
  const body = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => (body.set(part, at), at + part.length), 0);
  return { header, body };
}

// A sentence of a packet's words with its {places} filled (viz/components/words.py).
const fill = (sentence, places) => sentence.replace(/\{(\w+)\}/g, (_, name) => places[name]);

// Give the elements of a view's fixed part their words: data-say names an element's text, data-label its label.
function speak(root, words) {
  for (const one of root.querySelectorAll("[data-say]")) one.textContent = words[one.dataset.say];
  for (const one of root.querySelectorAll("[data-label]")) one.setAttribute("aria-label", words[one.dataset.label]);
}

// The hatching of masks over each other, each {colour, lines} as viz/hatch.py's `ink` gives it, as a pattern of css pixels.
function hatching(pen, masks, ratio, ground = null) {
  const tile = hatchTile(masks, ratio, ground);
  const pattern = pen.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(masks[0].lines.length / tile.width));
  return pattern;
}

// One period of it.
function hatchTile(masks, ratio, ground = null) {
  const side = masks[0].lines.length;
  const tile = sheet(side, side, ratio);
  const brush = tile.getContext("2d");
  if (ground) {
    brush.fillStyle = ground;
    brush.fillRect(0, 0, side, side);
  }
  for (const { colour, lines } of masks) {
    brush.fillStyle = colour;
    lines.forEach((bits, y) => {
      for (let x = 0; x < side; x++) if (bits & (1 << x)) brush.fillRect(x, y, 1, 1);
    });
  }
  return tile;
}

// A canvas of its own of so many css pixels, to paint on once and copy from.
function sheet(width, height, ratio) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.getContext("2d").scale(canvas.width / width, canvas.height / height);
  return canvas;
}

// Give the canvas the sheet's size and picture, and its pen back, in css pixels.
function copy(canvas, sheet, ratio) {
  if (canvas.width !== sheet.width || canvas.height !== sheet.height) Object.assign(canvas, { width: sheet.width, height: sheet.height });
  const pen = canvas.getContext("2d");
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(sheet, 0, 0);
  pen.scale(ratio, ratio);
  return pen;
}

// The row and column that an arrow key leads to, among so many of them.
function stepped(key, row, column, rows, columns) {
  const [down, right] = STEPS[key];
  return [Math.min(Math.max(row + down, 0), rows - 1), Math.min(Math.max(column + right, 0), columns - 1)];
}
