// The Arcs view: queries on the left, keys on the right, and a line for every weight of at least a threshold. Packet:
// see viz/heads/tokens.py. onPick("query", position) reports the query that the user selected.

const MAX_LINES = 1500; // most lines drawn: the strongest of all heads
const NEAR = 7; // css pixels from a line within which the pointer points at it
const SLIDER_MIN = -4; // the slider's lower end, a power of ten: weights of long texts are small
const SVG = "http://www.w3.org/2000/svg";

// Return the lines to draw: cells with at least this weight, the largest first. hidden: a key to leave out, or -1.
function linesOf(cells, threshold, hidden) {
  const lines = [];
  for (let head = 0; head < cells.names.length; head++) {
    for (let query = 0; query < cells.rows; query++) {
      for (let key = 0; key < cells.columns; key++) {
        const weight = cells.weights[cellIndex(cells, query, key, head)];
        if (weight >= threshold && weight > 0 && key !== hidden) lines.push({ head, query, key, weight });
      }
    }
  }
  return lines.sort((one, other) => other.weight - one.weight);
}

// Return how far down a line is, 0 to 1, at a share of the way across: solve the cubic of its Bézier curve for x.
function fall(share) {
  let [low, high] = [0, 1];
  for (let step = 0; step < 24; step++) {
    const t = (low + high) / 2;
    const x = 1.5 * (1 - t) * (1 - t) * t + 1.5 * (1 - t) * t * t + t * t * t;
    if (x < share) low = t;
    else high = t;
  }
  return low * low * (3 - 2 * low);
}

function svg(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function show(element, cells, own, onPick) {
  const { words } = cells;
  const hatches = hatchImages(cells);
  const tall = Math.max(cells.rows, cells.columns) > 40 ? 15 : 20;
  const height = tall * Math.max(cells.rows, cells.columns);
  const column = (side, labels, name) =>
    labels.map((text, at) => make("div", { class: `token ${side}`, title: `${name + at}: ${text}`, style: `top:${at * tall}px;height:${tall}px`,
                                           children: [make("bdi", { text })] }));
  const lefts = column("left", cells.queries, cells.first);
  const rights = column("right", cells.keys, cells.firstKey);
  const lines = svg("svg", { height, width: "100%", "aria-hidden": "true" });
  const middle = make("div", { class: "lines", style: `height:${height}px`, children: [] });
  middle.append(lines);
  const tip = make("div", { class: "tip", hidden: "" });
  const picture = make("div", { class: "picture", tabindex: 0, role: "application", style: `height:${height}px`,
    "aria-label": words.alt, children: [make("div", { class: "side", children: lefts }), middle, make("div", { class: "side", children: rights }), tip] });
  const slider = make("input", { type: "range", min: SLIDER_MIN, max: 0, step: 0.05, "aria-label": words.least });
  const threshold = () => own.least ?? cells.suggested; // a threshold that the user chose is kept for other heads
  slider.value = Math.log10(threshold());
  const least = make("output", {});
  const hide = make("input", { type: "checkbox" });
  hide.checked = Boolean(own.hide_first);
  const key = cells.names.length > 1 ? cells.names.map((name, head) =>
    make("span", { class: "head", text: name, style: `--colour:${cells.colours[head]}` })) : [];
  const tools = make("div", { class: "tools", children: [
    make("label", { children: [`${words.from} `, slider, least] }),
    make("label", { children: [hide, ` ${words.hide}`] }), ...key] });
  const count = make("p", { class: "said" });
  const said = make("p", { class: "said", "aria-live": "polite" });
  let drawn = []; // the lines on screen, each with its SVG element as `path`
  let pointed = null; // {side, at}

  const inSight = () => Math.min(Math.max(own.query - cells.first, 0), cells.rows - 1);
  const yOf = (at) => (at + 0.5) * tall;
  const source = () => pointed || { side: "query", at: inSight() };

  const paint = () => {
    if (pointed?.side === "line") point(null); // the line's element is about to be replaced
    const hidden = own.hide_first ? cells.firstToken - cells.firstKey : -1;
    const found = linesOf(cells, threshold(), hidden);
    drawn = found.slice(0, MAX_LINES);
    const width = middle.clientWidth || 200;
    lines.replaceChildren(...drawn.map((line) => {
      const [from, to] = [yOf(line.query), yOf(line.key)];
      line.path = svg("path", { d: `M0,${from} C${width / 2},${from} ${width / 2},${to} ${width},${to}`, fill: "none",
        stroke: cells.colours[line.head], "stroke-width": 0.6 + 2.6 * line.weight, "data-query": cells.first + line.query,
        "data-key": cells.firstKey + line.key, "data-head": cells.names[line.head] });
      return line.path;
    }));
    least.textContent = slider.ariaValueText = String(threshold());
    const largest = weightText(linesOf(cells, 0, hidden)[0]?.weight ?? 0);
    const counted = fill(words.lines, { count: drawn.length, all: found.length, least: threshold(), largest });
    count.textContent = hidden >= 0 ? `${counted} ${words.hidden}` : counted;
    light();
  };
  const light = () => {
    const from = source();
    for (const line of drawn) {
      const its = !pointed || (pointed.side === "line" ? pointed.line === line : line[pointed.side] === pointed.at);
      line.path.setAttribute("opacity", its ? 0.15 + 0.85 * Math.sqrt(line.weight) : 0.04);
    }
    lefts.forEach((token, at) => {
      token.classList.toggle("query", at === own.query - cells.first);
      token.classList.toggle("from", pointed?.side === "query" && pointed.at === at);
    });
    rights.forEach((token, at) => {
      token.classList.toggle("from", pointed?.side === "key" && pointed.at === at);
      const reason = from.side === "query" ? cells.blocked[cellIndex(cells, from.at, at)] : 0;
      token.classList.toggle("blocked", reason > 0);
      token.style.backgroundImage = reason ? hatches[reason - 1] : "";
      const why = reason && { key: keyName(cells, at), cell: cells.reasons[reason - 1].words, query: queryName(cells, from.at) };
      token.title = why ? fill(words.blocked, why) : keyName(cells, at);
    });
    if (from.side !== "line") {
      said.textContent = cells.names.map((name, head) =>
        (cells.names.length > 1 ? `${name}: ` : "") + summary(cells, from, head)).join(" ");
    }
  };
  const point = (at) => {
    pointed = at;
    tip.hidden = at?.side !== "line";
    light();
  };

  middle.onpointerdown = middle.onpointermove = (event) => {
    const box = middle.getBoundingClientRect();
    const down = fall(Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1));
    const off = (line) => Math.abs(yOf(line.query) + (yOf(line.key) - yOf(line.query)) * down - (event.clientY - box.top));
    const nearest = drawn.reduce((best, line) => (best === null || off(line) < off(best) ? line : best), null);
    if (!nearest || off(nearest) > NEAR) return point(null);
    const { query, key, head } = nearest;
    tip.textContent = cellWords(cells, query, key, cellText(cells, query, key, head)) + (cells.names.length > 1 ? ` · ${cells.names[head]}` : "");
    point({ side: "line", line: nearest });
    const frame = picture.getBoundingClientRect();
    const right = event.clientX - frame.left;
    tip.style.left = `${Math.min(right + 12, Math.max(frame.width - tip.offsetWidth - 4, 0))}px`;
    tip.style.top = `${event.clientY - frame.top + 14}px`;
  };
  for (const [side, tokens] of [["query", lefts], ["key", rights]]) {
    tokens.forEach((token, at) => {
      token.onpointerenter = () => point({ side, at });
      token.onclick = () => {
        if (side === "key" && cells.across) return;
        chooseSoon(own, (side === "query" ? cells.first : cells.firstKey) + at, 0, onPick);
        light();
      };
    });
  }
  picture.onpointerleave = ({ pointerType }) => pointerType === "touch" || point(null); // a touch keeps its highlight
  moveByKeys(picture, own, (key) => steppedQuery(key, own.query, cells.among), () => point(null), onPick);
  slider.oninput = () => {
    own.least = Number((10 ** slider.value).toPrecision(2));
    paint();
  };
  slider.onchange = () => sendChoice(own, "least", own.least, onPick);
  hide.onchange = () => {
    own.hide_first = hide.checked;
    paint();
    sendChoice(own, "hide_first", own.hide_first, onPick);
  };

  replaceParts(element, tools, count, picture, said);
  paint();
  own.resized?.disconnect();
  own.resized = new ResizeObserver(paint);
  own.resized.observe(middle);
}

export function draw(element, data, onPick) {
  const end = drawCells(element, data, (cells, own) => show(element, cells, own, onPick));
  return () => {
    end();
    element.own?.resized?.disconnect();
  };
}
