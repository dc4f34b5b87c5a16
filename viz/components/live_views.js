// Makes the views' packets on a page without a server; elsewhere Python makes them. Put after live_model.js.

const template = {}; // by view: the packet for a text of one token, whose header has what does not depend on the text
for (const view of ["overview", "heatmap", "difference", "tokens", "arcs", "mask"]) template[view] = await unpack(inlined(`of_${view}`));

const THUMBNAIL = 64; // cells a side
const FAINTEST = 0.1; // as in viz/heads/tokens.py
const MIN_LINE = [0.1, 0.0001]; // the smallest weight with a line, by default and ever, as in viz/heads/tokens.py
const { words } = about;

const namesOf = (masks) => listed(masks.map((mask) => about.names[mask]));

function listed(items) {
  if (items.length < 2) return items.join("");
  return fill(words.and, { head: items.slice(0, -1).join(words.comma), tail: items.at(-1) });
}

const at3 = (plane, head, rows) => plane.subarray(head * rows * rows, (head + 1) * rows * rows);

const MIN_TO_MARK = 3; // as in model/heads/survey.py

// Return the shares of a head's attention, as in model/heads/survey.py: means over the real queries that attend to
// something and to which the share applies; NaN if there is none.
function sharesOf(weights, { ids, keep }) {
  const [rows, begin, sums] = [ids.length, keep.indexOf(true), {}];
  const add = (name, share) => {
    const [sum, count] = sums[name] ?? [0, 0];
    sums[name] = [sum + share, count + 1];
  };
  for (let query = begin; query < rows; query++) {
    const row = weights.subarray(query * rows, (query + 1) * rows);
    if (!keep[query] || !row.some((weight) => weight > 0)) continue;
    let [future, padding, duplicate, last] = [0, 0, 0, -2]; // last: the previous position of the same token
    for (let key = 0; key < rows; key++) {
      if (!keep[key]) padding += row[key];
      else if (key > query) future += row[key];
      if (key < query && keep[key] && ids[key] === ids[query]) [duplicate, last] = [duplicate + row[key], key];
    }
    add("future", future);
    add("padding", padding);
    if (query === begin) continue;
    add("first", row[begin]);
    add("itself", row[query]);
    if (query > begin + 1) add("previous", row[query - 1]);
    if (last >= 0) add("duplicate", duplicate);
    if (last >= 0 && last < query - 2) add("induction", row[last + 1]);
  }
  const mean = ({ name, tag }) => { // a pattern that applies to few queries tags no head
    const [sum, count] = sums[name] ?? [NaN, 0];
    return [name, tag && count < MIN_TO_MARK ? NaN : sum / count];
  };
  return Object.fromEntries(template.overview.header.measures.map(mean));
}

// Make the packet of the overview: a pixel is the square root of a patch's largest weight, from 0 to 254 for 0 to 1, or
// 255 if all of the patch is blocked. masksOf(layer): the composed masks of a layer.
function overviewData({ weights }, masksOf, row, leaks, { layer, head }) {
  const { layers, heads } = row.model.config;
  const rows = row.ids.length;
  const side = Math.min(rows, THUMBNAIL);
  const { header, body } = template.overview;
  const [palette, pixels] = [body.subarray(0, 765), new Uint8Array(layers * heads * side * side)];
  const patch = Array.from({ length: side }, (_, at) => [Math.floor((at * rows) / side), Math.ceil(((at + 1) * rows) / side)]);
  let out = 0;
  for (let number = 0; number < layers * heads; number++) {
    const [plane, { allowed }] = [at3(weights, number, rows), masksOf(Math.floor(number / heads))];
    for (const [top, bottom] of patch) {
      for (const [left, right] of patch) {
        let most = -1;
        for (let q = top; q < bottom; q++) {
          for (let k = left; k < right; k++) if (allowed[q * rows + k] && plane[q * rows + k] > most) most = plane[q * rows + k];
        }
        pixels[out++] = most < 0 ? 255 : Math.round(Math.sqrt(Math.min(most, 1)) * 254);
      }
    }
  }
  const measures = header.measures.filter(({ name }) => leaks.some((leak) => leak[name] > 0));
  const shares = Float32Array.from(measures.flatMap(({ name }) => leaks.map((leak) => leak[name])));
  const whole = new Uint8Array(palette.length + pixels.length + shares.byteLength);
  whole.set(palette);
  whole.set(pixels, palette.length);
  whole.set(new Uint8Array(shares.buffer), palette.length + pixels.length);
  const numbers = Array.from({ length: layers }, (_, at) => at);
  return { header: { ...header, layers, heads, tall: side, wide: side, layer, head, numbers, measures }, body: whole };
}

// Make the packet of a head's cells for heatmap.js, tokens.js or arcs.js. which, blockedBy: see mask_rules.js.
function cellsData(view, weights, { which, blockedBy }, row, more) {
  const reasons = new Map(); // each reason's masks, by their names
  const numbers = new Map(); // which reason each list of masks is, from 1; 0 for none
  for (const one of new Set(which)) {
    const names = blockedBy[one];
    if (names.length) reasons.set(names.join(), names);
    numbers.set(one, names.length && [...reasons.keys()].indexOf(names.join()) + 1);
  }
  const blocked = Uint16Array.from(which, (one) => numbers.get(one));
  const body = new Uint8Array(6 * weights.length);
  body.set(new Uint8Array(weights.slice().buffer));
  body.set(new Uint8Array(blocked.buffer), 4 * weights.length);
  const said = [...reasons.values()].map((names) => (
    { words: fill(words.blocked, { masks: namesOf(names) }), hatch: names.map((name) => about.inks[name]) }));
  const about_text = { queries: row.labels, keys: row.labels, among: [0, row.ids.length], reasons: said };
  return { header: { ...template[view].header, ...about_text, ...more }, body };
}

// Return the cells that are blocked in both of two runs, each with the masks of both.
function bothBlock(one, other) {
  const count = other.blockedBy.length;
  const blockedBy = one.blockedBy.flatMap((names) => other.blockedBy.map((more) =>
    (names.length && more.length ? [...new Set([...names, ...more])] : [])));
  return { which: one.which.map((number, at) => number * count + other.which[at]), blockedBy };
}

// Return masks without their names, for a picture whose masks the user is to guess.
const unnamed = (masks) => ({ ...masks, blockedBy: masks.blockedBy.map((names) => (names.length ? ["unnamed"] : [])) });

// The largest weight, rounded up to hundredths, as in viz.heatmap.colour_range.
const rangeOf = (...planes) => Math.max(Math.ceil(Math.max(...planes.map(largest)) * 100 - 0.0005) / 100, 0.01);
const largest = (weights) => weights.reduce((max, weight) => Math.max(max, Math.abs(weight)), 0);

function brightest(weights) {
  const max = largest(weights);
  return max > 0 && max < FAINTEST ? max : 1;
}

// Return the default threshold of lines, as least_line in viz/heads/tokens.py: low enough for a line per second query.
function leastLine(weights, rows) {
  const enough = weights.slice().sort().slice(-1 - Math.floor(rows / 2)).find((weight) => weight > 0) ?? MIN_LINE[0];
  if (enough >= MIN_LINE[0]) return MIN_LINE[0];
  const digit = 10 ** Math.floor(Math.log10(enough));
  return Math.max(Number((Math.floor(enough / digit) * digit).toFixed(4)), MIN_LINE[1]);
}

// Make the packet of the composed mask to draw on, as viz/mask_lab/canvas.py does. number, epoch: see mask.js.
function maskData({ combinations, cells, blockers }, row, { strokes, query, number, epoch }) {
  const [inked, rows] = [[...blockers, "drawn"], row.ids.length];
  const verdicts = combinations.map((one) => (one.padding ? [""] : Object.keys(STROKES)).map((stroke) => verdict(one, stroke, inked)));
  for (const one of verdicts) while (one.length < 3) one.push(one[0]);
  const side = { first: 0, place: row.indices, labels: row.labels };
  const { header } = template.mask;
  const sizes = { queries: rows, keys: rows };
  return {
    header: { ...header, rows: side, columns: side, tokens: Math.max(...row.indices) + 1, strokes, verdicts, query, number, epoch,
              masks: inked.map((name) => about.inks[name]), alt: fill(words.alt, sizes) },
    body: new Uint8Array(cells.slice().buffer),
  };
}

function verdict({ shut, opening, padding }, stroke, inked) {
  const opener = stroke === "open" ? "drawn" : opening[0];
  const blocking = [...(opener ? [] : shut), ...(stroke === "block" ? ["drawn"] : [])];
  const masks = namesOf(blocking.length ? blocking : shut);
  const says = blocking.length ? "blocked" : stroke === "open" ? (shut.length ? "drawn_over" : "drawn") : shut.length ? "reopened" : "allowed";
  const why = fill(words[says], { masks, openers: namesOf(opening) });
  const opened = !blocking.length && (shut.length || stroke === "open") ? about.colours[opener] : null;
  return { words: padding ? fill(words.padding, { why }) : why, hatch: blocking.map((name) => inked.indexOf(name)), opened };
}

const chance = (share) => percent(Math.min(Math.max(share, 1e-9), 1 - 1e-9));

const rowOf = (...cells) => make("tr", { children: cells });

// Return the rows of a table of the likeliest next tokens after a position in each of the runs.
function nextTokens(runs, position) {
  const titles = runs.map(({ name }) => make("th", { text: name, colspan: 3 }));
  const rows = Array.from({ length: Math.min(CANDIDATES, model.config.vocabulary) }, (_, rank) =>
    rowOf(...runs.flatMap(({ run: { top, chances }, row, colour }) => {
      const at = position * CANDIDATES + rank;
      const bar = make("div", { class: "bar", style: `width:${(100 * chances[at]).toFixed(1)}%;background:${colour}` });
      return [make("td", { class: "token", text: row.model.labels[top[at]] }), make("td", { class: "number", text: chance(chances[at]) }),
              make("td", { class: "track", children: [bar] })];
    })));
  return runs.length > 1 ? [rowOf(...titles), ...rows] : rows;
}

// The mean of the numbers that are not NaN; NaN if there is none.
function average(numbers) {
  const some = numbers.filter((one) => !Number.isNaN(one));
  return some.reduce((sum, one) => sum + one, 0) / some.length;
}

function meanOf(losses) {
  const mean = average(losses);
  return Number.isNaN(mean) ? "" : mean.toFixed(2);
}

// Return a text whose tokens are shaded by their losses, and the mean loss.
function lossStrip({ name, run: { losses }, row, colour }, only) {
  const tokens = row.labels.map((token, at) => {
    const loss = losses[at];
    const title = fill(words[Number.isNaN(loss) ? "no_loss" : "nats"], { token, loss: loss.toFixed(2) });
    const shade = Math.round(Math.min((loss || 0) / about.worst, 1) * 70);
    const number = Number.isNaN(loss) ? [] : [make("small", { text: loss.toFixed(2) })];
    const style = `background:color-mix(in srgb, ${colour} ${shade}%, transparent)`;
    return make("span", { title, style, children: [token, ...number] });
  });
  const strip = make("p", { class: "losses", children: only ? tokens : [make("b", { text: name }), ...tokens] });
  return { strip, mean: meanOf(losses) };
}

function leakTable(runs, number, name) {
  const shares = (leaks) => [leaks[number].future, leaks[number].padding, average(leaks.map((leak) => leak.future)), average(leaks.map((leak) => leak.padding))];
  const columns = runs.map(({ leaks }) => shares(leaks));
  const titles = ["head_later", "head_padding", "all_later", "all_padding"].map((title) => fill(words[title], { head: name }));
  const heads = runs.map((one) => make("th", { class: "number", text: runs.length > 1 ? one.name : words.leak }));
  const cell = (share) => make("td", { class: "number", text: Number.isNaN(share) ? "–" : percent(share) });
  return [rowOf(make("th", { text: words.attention }), ...heads),
          ...titles.map((title, at) => rowOf(make("td", { class: "wraps", text: title }), ...columns.map((some) => cell(some[at]))))];
}
