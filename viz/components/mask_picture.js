// Paints the composed mask: cells, hatching, opened cells, the drawing, names and frames. Put before mask.js.

const READABLE = 11; // css pixels that a token's name needs
const TITLE = 22; // css pixels from the tokens' names to the middle of an axis title
const CROSS = 0.45; // opacity of the lines through the cell pointed at
const FAINT = 0.75; // opacity of the hatching, so that allowed cells stand out
const KINDS = { erase: 0, block: 1, open: 2 }; // kinds of strokes, as indices into a cell's verdicts

// Return the drawing as a kind of stroke for each cell on screen; the last stroke on a cell counts.
function painted(mask, strokes) {
  const cells = new Uint8Array(mask.height * mask.width);
  for (const [kind, query, key, lastQuery, lastKey] of strokes) {
    const [top, bottom] = onScreen(mask.rows.place, query, lastQuery);
    const [left, right] = onScreen(mask.columns.place, key, lastKey);
    for (let q = top; q < bottom && left < right; q++) cells.fill(KINDS[kind], q * mask.width + left, q * mask.width + right);
  }
  return cells;
}

// Return the range [begin, end) on screen of the tokens numbered first to last.
function onScreen(positions, first, last) {
  const begin = positions.findIndex((number) => number >= 0); // real tokens are contiguous
  if (begin < 0) return [0, 0];
  const end = positions.findLastIndex((number) => number >= 0);
  const at = (number) => begin + number - positions[begin];
  return [Math.max(at(first), begin), Math.min(at(last), end) + 1];
}

function layout(canvas, mask) {
  const { l, r, t, b } = mask.room;
  const width = canvas.clientWidth || 400;
  const side = width - l - r;
  return { width, height: t + side + b, side, left: l, top: t, cell: side / Math.max(mask.height, mask.width) };
}

// A cell's verdict with the stroke on it: {words, hatch, opened}, as in viz/mask_lab/canvas.py.
const verdict = (mask, drawing, cell) => mask.verdicts[mask.cells[cell]][drawing[cell]];

const alike = (mask, drawing, one, other) => mask.cells[one] === mask.cells[other] && drawing[one] === drawing[other];

// Draw the cells and the tokens' names on a separate canvas, which pointing at cells does not redraw.
function picture(canvas, mask, drawing) {
  const geometry = layout(canvas, mask);
  const { left, top, cell } = geometry;
  const all = sheet(geometry.width, geometry.height);
  const pen = all.getContext("2d");
  const style = getComputedStyle(canvas);
  const ground = style.getPropertyValue("--st-secondary-background-color");
  const patterns = new Map();
  const gap = cell >= 7 ? 1 : 0;
  for (let q = 0; q < mask.height; q++) {
    for (let k = 0; k < mask.width; k++) {
      const at = q * mask.width + k;
      let cells = 1; // small cells that are alike are painted as one
      while (!gap && k + cells < mask.width && alike(mask, drawing, at, at + cells)) cells += 1;
      const [x, y] = [left + k * cell, top + q * cell];
      const { hatch, opened } = verdict(mask, drawing, at);
      const span = cells * cell - gap;
      k += cells - 1;
      pen.fillStyle = hatch.length ? ground : mask.allowed;
      pen.fillRect(x, y, span, cell - gap);
      if (hatch.length) {
        const name = hatch.join();
        if (!patterns.has(name)) patterns.set(name, hatching(pen, hatch.map((one) => mask.masks[one])));
        pen.fillStyle = patterns.get(name);
        pen.globalAlpha = FAINT;
        pen.fillRect(x, y, span, cell - gap);
        pen.globalAlpha = 1;
      } else if (opened) {
        pen.fillStyle = style.getPropertyValue("--st-background-color") || "#fff";
        pen.fillRect(x + cell * 0.15, y + cell * 0.15, span - cell * 0.35, cell * 0.65);
        pen.fillStyle = opened;
        pen.fillRect(x + cell * 0.25, y + cell * 0.25, span - cell * 0.55, cell * 0.45);
      }
    }
  }
  names(pen, mask, geometry, style);
  return all;
}

function paint(canvas, mask, all, chosen, cursor) {
  const geometry = layout(canvas, mask);
  canvas.style.height = `${geometry.height}px`;
  const pen = copy(canvas, all);
  const style = getComputedStyle(canvas);
  const row = mask.query === null ? -1 : mask.query - mask.rows.first;
  if (row >= 0 && row < mask.height) frameCells(pen, { q: row, k: 0, lastQ: row, lastK: mask.width - 1 }, geometry, mask.mark, 1.5);
  if (chosen) return frameCells(pen, chosen, geometry, accentOf(style), 2);
  if (!cursor) return;
  pen.fillStyle = style.color;
  pen.globalAlpha = CROSS;
  if (cursor.q >= 0) pen.fillRect(geometry.left, geometry.top + (cursor.q + 0.5) * geometry.cell - 0.5, mask.width * geometry.cell, 1);
  if (cursor.k >= 0) pen.fillRect(geometry.left + (cursor.k + 0.5) * geometry.cell - 0.5, geometry.top, 1, mask.height * geometry.cell);
  pen.globalAlpha = 1;
  if (cursor.q >= 0 && cursor.k >= 0) frameCells(pen, { q: cursor.q, k: cursor.k, lastQ: cursor.q, lastK: cursor.k }, geometry, style.color, 1.5);
}

// Write as many token names as can be read beside the rows and below the columns, and the axis titles.
function names(pen, mask, { left, top, cell }, style) {
  const every = Math.ceil(READABLE / cell);
  pen.fillStyle = style.color;
  pen.font = `${every > 1 ? 9 : 11}px ${style.fontFamily}`;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  const [wide, tall] = [mask.width * cell, mask.height * cell];
  const longest = { rows: 0, columns: 0 };
  const named = (side, index) => {
    const text = axisLabel(mask[side].labels[index], mask[side].first + index, every);
    longest[side] = Math.max(longest[side], pen.measureText(text).width);
    return text;
  };
  for (let row = 0; row < mask.height; row += every) pen.fillText(named("rows", row), left - 5, top + (row + 0.5) * cell);
  for (let column = 0; column < mask.width; column += every) {
    upright(pen, named("columns", column), left + (column + 0.5) * cell, top + tall + 5);
  }
  pen.font = `14px ${style.fontFamily}`;
  pen.textAlign = "center";
  upright(pen, mask.titles[0], Math.max(left - longest.rows - TITLE, 8), top + tall / 2);
  pen.fillText(mask.titles[1], left + wide / 2, top + tall + Math.min(longest.columns + TITLE, mask.room.b - 8));
}

function frameCells(pen, { q, k, lastQ, lastK }, { left, top, cell }, colour, line) {
  frame(pen, colour, line, left + k * cell, top + q * cell, (lastK - k + 1) * cell, (lastQ - q + 1) * cell);
}
