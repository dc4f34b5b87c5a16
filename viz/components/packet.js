// Functions that the canvas views share. Put before each (viz/components/__init__.py): their modules import nothing.

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// Return the header of a packet (`packed` in viz/components/__init__.py), which may be unpacked already.
function headerOf(data) {
  if (data.header) return data.header;
  const length = lengthOf(data);
  return JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length)));
}

const lengthOf = ({ buffer, byteOffset }) => new DataView(buffer, byteOffset).getUint32(0, true);

// Return the header and the inflated bytes after it. Blob and Response are not used, since they deliver in later tasks,
// behind long ones of the page; this finishes before the next task.
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

// Return a sentence of viz/components/words.toml with its {placeholders} filled.
const fill = (sentence, values) => sentence.replace(/\{(\w+)\}/g, (_, name) => values[name]);

// Format a share as a percentage, as percent in viz/numbers.py.
function percent(share) {
  if (share <= 0 || share >= 1) return share <= 0 ? "0%" : "100%";
  if (share < 0.0005) return "<0.1%";
  return share < 0.9995 ? `${(100 * share).toFixed(1)}%` : ">99.9%";
}

// Return the hatching of one or more masks, each {colour, lines} of viz/hatch.py's `ink`, as a pattern in css pixels.
function hatching(pen, masks, ground = null) {
  const tile = hatchTile(masks, ground);
  const pattern = pen.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(masks[0].lines.length / tile.width));
  return pattern;
}

// Return one period of a hatching as a canvas.
function hatchTile(masks, ground = null) {
  const side = masks[0].lines.length;
  const tile = sheet(side, side);
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

// Return a separate canvas of this size in css pixels, to paint once and copy from.
function sheet(width, height, ratio = window.devicePixelRatio || 1) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.getContext("2d").scale(canvas.width / width, canvas.height / height);
  return canvas;
}

// Give the canvas the sheet's size and picture. Returns its pen, in css pixels.
function copy(canvas, sheet) {
  if (canvas.width !== sheet.width || canvas.height !== sheet.height) Object.assign(canvas, { width: sheet.width, height: sheet.height });
  canvas.style.setProperty("--ground", getComputedStyle(canvas).getPropertyValue("--st-background-color"));
  const pen = canvas.getContext("2d");
  pen.resetTransform();
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(sheet, 0, 0);
  pen.setTransform(sheet.getContext("2d").getTransform()); // the window may since have moved to a screen of another ratio
  return pen;
}

// Draw a frame: x, y, width and height in css pixels.
function frame(pen, colour, line, ...box) {
  pen.strokeStyle = colour;
  pen.lineWidth = line;
  pen.strokeRect(...box);
}

// Return a pointer's position on a canvas and the canvas's width, in its own css pixels, which `zoom` may have scaled.
function pointOn(canvas, { clientX, clientY }) {
  const { left, top, width } = canvas.getBoundingClientRect();
  const zoom = width / canvas.offsetWidth;
  return { x: (clientX - left) / zoom, y: (clientY - top) / zoom, width: width / zoom };
}

// Write a text that reads upwards.
function upright(pen, text, x, y) {
  pen.save();
  pen.translate(x, y);
  pen.rotate(-Math.PI / 2);
  pen.fillText(text, 0, 0);
  pen.restore();
}

// Return a text's approximate width in letters, as viz/html.py does: a Chinese character or an emoji counts as two.
const lettersOf = (text) => [...text].reduce((sum, letter) => sum + (letter < "\u2e80" ? 1 : 2), 0);

// Return the label of a heatmap's row or column, up to `most` letters, with the position if some labels are left out.
function axisLabel(label, position, every, most = 12) {
  const cut = [...label].slice(0, most - 1);
  while (lettersOf(cut) > most - 1) cut.pop();
  const short = lettersOf(label) > most ? `${cut.join("")}…` : label;
  return every > 1 ? `${position} ${short}` : short;
}

// Prepare a pen to write the numbers of heads and layers beside a grid, in the style of its canvas.
function prepareNumbers(pen, { color, fontFamily }) {
  Object.assign(pen, { fillStyle: color, font: `11px ${fontFamily}`, textAlign: "center", textBaseline: "middle" });
}

const accentOf = (style) => style.getPropertyValue("--st-primary-color") || "#d33";

const isPress = ({ key }) => key === "Enter" || key === " ";
const isShortcut = ({ ctrlKey, altKey, metaKey }) => ctrlKey || altKey || metaKey; // a shortcut of the browser: Ctrl+R, Alt+←

// Unpack the data and call take(packet), unless later data has arrived for the element. Returns a function to cancel.
function receive(element, data, take) {
  element.latest = data; // packets unpack one after another, but may not finish in that order
  unpack(data).then((packet) => element.latest === data && take(packet));
  return () => {
    element.latest = null;
  };
}

// Give a view its fixed parts once, so that they keep their focus and their drawing, and set their words: data-say is
// the key of an element's text, data-label the key of its ARIA label.
function ensureParts(element, data, parts) {
  if (!element.firstElementChild) element.innerHTML = parts;
  const { words } = headerOf(data);
  for (const one of element.querySelectorAll("[data-say]")) one.textContent = words[one.dataset.say];
  for (const one of element.querySelectorAll("[data-label]")) one.setAttribute("aria-label", words[one.dataset.label]);
  return element.querySelector("canvas");
}

// Receive data for a canvas that resized() repaints when its parent changes its size, and when the text colour changes,
// as with a notebook's theme: view.css makes that a transition, which can be observed.
function receiveSized(canvas, data, take, resized, watched = canvas.parentElement) {
  canvas.observer?.disconnect(); // a view may be redrawn without being ended
  const observer = (canvas.observer = new ResizeObserver(resized));
  const end = receive(canvas, data, (packet) => {
    take(packet);
    observer.observe(watched);
    canvas.ontransitionend = resized;
  });
  return () => {
    end();
    observer.disconnect();
    canvas.ontransitionend = null;
  };
}

// Create an element with attributes, a text and children.
function make(name, { text, children = [], ...attributes } = {}) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
}

// Return the row and column that an arrow key leads to.
function stepped(key, row, column, rows, columns) {
  const [down, right] = STEPS[key];
  return [Math.min(Math.max(row + down, 0), rows - 1), Math.min(Math.max(column + right, 0), columns - 1)];
}
