// One head's heatmap that grows by a row at every token: rows are queries, columns are keys. It draws the bytes it is
// given, in place and at one size, and knows no mask. Packet: see viz/generation/growing.py.

const EDGE = { wide: [104, 96], narrow: [70, 74] }; // css pixels for the tokens beside and below the cells
const BAR = 52; // css pixels beside the cells, for the colour bar
const ABOVE = 470; // css pixels of the page over the cells
const LINE = 12; // css pixels that a token's name needs
const LONGEST = 12; // characters of a name
const COLOURS = 255;

const PARTS = `
  <canvas tabindex="0" role="img" aria-label="Attention of one head"></canvas>
  <div class="cell" aria-live="polite"></div>
`;

async function read(data) {
  const { header, body } = await unpack(data);
  const cells = header.size * header.size;
  let at = 0;
  const take = (count) => body.slice(at, (at += count));
  const [palette, blocked] = [take(3 * COLOURS), take(cells)];
  const [weights, scores] = [new Float32Array(take(4 * cells).buffer), new Float32Array(take(4 * cells).buffer)];
  const hatching = at < body.length ? await createImageBitmap(new Blob([body.slice(at)], { type: "image/png" })) : null;
  return { ...header, palette, blocked, weights, scores, hatching };
}

// Where the cells are: a square as large as the column has room for, its newest row in sight where the window is tall;
// whatever the text's length.
function layout(width, size) {
  const [left, below] = width < 480 ? EDGE.narrow : EDGE.wide;
  const side = Math.max(Math.min(width - left - BAR, Math.max(window.innerHeight - ABOVE, 420)), 160);
  return { left, top: 6, side, height: side + below + 6, cell: side / size };
}

// Brightness goes with the square root of the weight: most weights are small.
const colourOf = (head, weight) => Math.round(Math.sqrt(Math.min(Math.max(weight / head.most, 0), 1)) * (COLOURS - 1));

function cells(head) {
  const picture = sheet(head.size, head.size, 1);
  const image = new ImageData(head.size, head.size);
  head.weights.forEach((weight, at) => {
    if (head.blocked[at]) return; // stays transparent: the hatching behind it shows
    const colour = 3 * colourOf(head, weight);
    image.data.set(head.palette.subarray(colour, colour + 3), 4 * at);
    image.data[4 * at + 3] = 255;
  });
  picture.getContext("2d").putImageData(image, 0, 0);
  return picture;
}

const shortened = (label) => (label.length > LONGEST ? `${label.slice(0, LONGEST - 1)}…` : label);

function names(pen, head, { left, top, side, cell, height }) {
  const every = Math.ceil(LINE / cell);
  pen.textAlign = "right";
  for (let at = 0; at < head.size; at += every) {
    const name = every > 1 ? `${head.first + at} ${shortened(head.labels[at])}` : shortened(head.labels[at]);
    const middle = (at + 0.5) * cell;
    pen.fillText(name, left - 5, top + middle);
    pen.save();
    pen.translate(left + middle, top + side + 5);
    pen.rotate(-Math.PI / 2);
    pen.fillText(name, 0, 0);
    pen.restore();
  }
  pen.textAlign = "center";
  pen.fillText(head.titles[1], left + side / 2, height - 7);
  pen.translate(7, top + side / 2);
  pen.rotate(-Math.PI / 2);
  pen.fillText(head.titles[0], 0, 0);
}

function bar(pen, head, { left, top, side }, colour) {
  const [x, tall] = [left + side + 10, Math.min(side, 240)];
  for (let y = 0; y < tall; y++) {
    const at = 3 * colourOf(head, head.most * (1 - y / (tall - 1)));
    pen.fillStyle = `rgb(${head.palette.subarray(at, at + 3).join()})`;
    pen.fillRect(x, top + 16 + y, 10, 1.5);
  }
  pen.fillStyle = colour;
  pen.textAlign = "left";
  pen.fillText("weight", x - 2, top + 5);
  for (const share of [1, 0.5, 0]) pen.fillText((head.most * share).toFixed(2), x + 13, top + 16 + (1 - share) * tall);
}

function paint(canvas, head, cursor) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth || 400;
  const place = layout(width, head.size);
  const { left, top, side, cell, height } = place;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  pen.scale(ratio, ratio);
  if (head.hatching) pen.drawImage(head.hatching, left, top, side, side);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(head.picture, left, top, side, side);
  pen.strokeStyle = head.mark;
  pen.lineWidth = 2;
  pen.strokeRect(left, top + head.row * cell, side, cell);
  if (cursor) {
    pen.strokeStyle = style.color;
    pen.strokeRect(left + cursor.key * cell, top + cursor.query * cell, cell, cell);
  }
  pen.font = `11px ${style.fontFamily}`;
  pen.textBaseline = "middle";
  bar(pen, head, place, style.color);
  names(pen, head, place);
}

function cellAt(canvas, head, event) {
  const box = canvas.getBoundingClientRect();
  const { left, top, cell } = layout(box.width, head.size);
  const key = Math.floor((event.clientX - box.left - left) / cell);
  const query = Math.floor((event.clientY - box.top - top) / cell);
  return Math.min(key, query) >= 0 && Math.max(key, query) < head.size ? { query, key } : null;
}

// What there is to say of a cell.
function reading(head, { query, key }) {
  const at = query * head.size + key;
  const name = (place) => `${head.first + place}: ${head.labels[place]}`;
  const what = head.blocked[at] ? head.reasons[head.blocked[at] - 1] : `weight ${head.weights[at].toFixed(4)}`;
  return `${name(query)} looks at ${name(key)} · ${what} · scaled score ${head.scores[at].toFixed(3)}`;
}

export function draw(element, data) {
  if (!element.firstElementChild) element.innerHTML = PARTS; // once: a canvas that stays keeps its focus
  const [canvas, words] = element.children;
  let head = null;
  let cursor = null;
  let left = false;

  const point = (at) => {
    if (!head) return;
    cursor = at;
    paint(canvas, head, cursor);
    words.textContent = cursor ? reading(head, cursor) : "Point at a cell, or move over the cells with the arrow keys.";
  };
  canvas.onpointermove = (event) => head && point(cellAt(canvas, head, event));
  canvas.onpointerleave = () => point(null);
  canvas.onkeydown = (event) => {
    if (!head || !(event.key in STEPS)) return;
    const from = cursor || { query: head.row, key: head.row };
    const [query, key] = stepped(event.key, from.query, from.key, head.size, head.size);
    point({ query, key });
    event.preventDefault();
  };
  const resized = new ResizeObserver(() => head && paint(canvas, head, cursor));

  canvas.latest = data; // packets unpack one after another, but may not finish in that order
  read(data).then((found) => {
    if (left || canvas.latest !== data) return;
    head = { ...found, picture: cells(found) };
    canvas.setAttribute("aria-label", head.alt);
    canvas.dataset.rows = head.size;
    point(null);
    resized.observe(canvas.parentElement);
  });

  return () => {
    left = true;
    resized.disconnect();
  };
}
