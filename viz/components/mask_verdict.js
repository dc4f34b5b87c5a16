// What is so with a cell of the composed mask, in words. Put before mask.js.

const bitNames = (names, bits) => names.filter((_, bit) => bits & (1 << bit)).map((one) => one.name);

// Why the cell may be seen, or not.
function verdict(mask, drawing, cell) {
  const { words } = mask;
  const blockers = bitNames(mask.masks, mask.blockers[cell]);
  const openers = bitNames(mask.openings, mask.openers[cell]);
  const list = (names) => listed(names.map((name) => words[`mask_${name}`]), words);
  const blockedBy = (names) => fill(words.blocked, { masks: list(names) });
  const masks = list(blockers);
  if (drawing[cell] === OPEN) return masks ? fill(words.drawn_open_over, { masks }) : words.drawn_open;
  const shut = openers.length ? [] : blockers;
  const padding = mask.rows.place[Math.floor(cell / mask.width)] < 0 || mask.columns.place[cell % mask.width] < 0;
  if (padding) return fill(words.padding, { why: shut.length ? blockedBy(shut) : words.allowed });
  if (drawing[cell] === BLOCK) return blockedBy([...shut, "drawn"]);
  if (shut.length) return blockedBy(shut);
  return masks ? fill(words.opened, { masks, openers: list(openers) }) : words.allowed;
}
