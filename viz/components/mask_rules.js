// Computes which masks block which cells, as MaskContext in model/masks.py, on a page without a server. MASK_KINDS,
// made by viz/saved/live.py from model/mask_kinds.py, defines what each kind does. Planes are [T, T], rows are queries.

const STROKES = { erase: 0, block: 1, open: 2 };
const MAX_SIZE = 1_000_000;

// Return the complete spec with these masks, named as in MaskSpec; others as trained. Throws for a bad name or value.
function readSpec(masks, trained = {}) {
  const spec = { drawn: [], ...Object.fromEntries(MASK_KINDS.map(({ name, standard }) => [name, standard])), ...trained };
  for (const [name, value] of Object.entries(masks)) {
    if (!(name in spec)) throw new Error(`expected masks out of ${Object.keys(spec).join(", ")}, got ${name}`);
    const count = (number) => Number.isInteger(number) && number >= 0 && number <= MAX_SIZE;
    const stroke = ([kind, ...ends]) => kind in STROKES && ends.length === 4 && ends.every(count);
    const kind = MASK_KINDS.find((one) => one.name === name);
    const fits = kind
      ? typeof value === typeof kind.off && (typeof value !== "number" || count(value))
      : Array.isArray(value) && value.every((one) => Array.isArray(one) && stroke(one));
    if (!fits) throw new Error(`${name}: expected ${kind ? `a value like ${JSON.stringify(kind.first ?? true)}` : "strokes"}, got ${JSON.stringify(value)}`);
    spec[name] = value;
  }
  return spec;
}

const isOn = ({ name, least }, spec) => Boolean(spec[name]) && (typeof spec[name] !== "number" || spec[name] >= least);

// Return the number of separators before each position.
function partsOf({ text, ends }, separator) {
  const after = text.split(separator).map((part) => part.length + separator.length);
  after.forEach((_, at) => { if (at) after[at] += after[at - 1]; });
  after.pop();
  return ends.map((end) => after.filter((begin) => begin < end).length);
}

// Compose the masks of a row {ids, keep, indices, text, ends} under a spec. combinations: {shut, opening} names of masks,
// and whether there is padding; cells: the index of each cell's combination. blockers: names of masks. blockedBy: lists
// of masks that block a cell; which: the index of each cell's list.
function composed(spec, row) {
  const size = row.ids.length;
  const [blocking, opening] = [new Map(), new Map()];
  for (const kind of MASK_KINDS) {
    const found = kind.opens ? opening : blocking;
    if (!isOn(kind, spec) || (kind.joins && !found.has(kind.joins))) continue;
    const about = { token: row.indices, keep: row.keep, document: kind.splits ? partsOf(row, spec[kind.name]) : null };
    const plane = found.get(kind.joins) ?? new Uint8Array(size * size);
    for (let at = 0; at < plane.length; at++) {
      const holds = kind.rule(Math.floor(at / size), at % size, spec[kind.name], about);
      if (Boolean(holds) === kind.opens) plane[at] = 1;
    }
    if (plane.includes(1)) found.set(kind.joins || kind.name, plane);
  }
  const drawn = new Uint8Array(size * size);
  for (const [kind, query, key, lastQuery, lastKey] of spec.drawn) {
    row.indices.forEach((q, at) => q >= query && q <= lastQuery && row.indices.forEach((k, to) => {
      if (k >= key && k <= lastKey) drawn[at * size + to] = STROKES[kind];
    }));
  }
  const [blockers, openers] = [[...blocking], [...opening]];
  const [known, combinations] = [new Map(), []];
  const cells = Uint16Array.from(drawn, (_, at) => {
    let bits = row.keep[Math.floor(at / size)] && row.keep[at % size] ? 0 : 1;
    for (const [, plane] of blockers) bits = 2 * bits + plane[at];
    for (const [, plane] of openers) bits = 2 * bits + plane[at];
    if (!known.has(bits)) {
      const names = (planes) => planes.filter(([, plane]) => plane[at]).map(([name]) => name);
      known.set(bits, combinations.push({ shut: names(blockers), opening: names(openers), padding: bits >> (blockers.length + openers.length) }) - 1);
    }
    return known.get(bits);
  });
  const kinds = Object.values(STROKES);
  const which = Uint32Array.from(cells, (combination, at) => combination * kinds.length + drawn[at]);
  const blockedBy = combinations.flatMap(({ shut, opening }) => kinds.map((stroke) =>
    [...(opening.length || stroke === STROKES.open ? [] : shut), ...(stroke === STROKES.block ? ["drawn"] : [])]));
  const allowed = Uint8Array.from(which, (number) => (blockedBy[number].length ? 0 : 1));
  return { blockers: [...blocking.keys()], combinations, cells, which, blockedBy, allowed };
}
