// The Tokens view: the token pointed at highlights the others by how much it attends to them, or they to it, without
// any request to a server. Packet: see viz/heads/tokens.py. onPick("query", position), onPick("pins", "3,17"),
// onPick("towards", "at" or "by"), onPick("values", true or false) report the user's choices.

const MAX_PINS = 8;
const STRONGEST = 0.75; // the opacity of weight 1, at which the token can still be read

// The opacity of a weight's highlight, proportional to its square root, as brightness in the heatmap.
const light = (cells, weight) => Math.sqrt(Math.min(Math.max(weight / cells.brightest, 0), 1)) * STRONGEST;

// Return one text as a list of tokens. side: "query" or "key", whose tokens they are.
function textOf(cells, side, label) {
  const [labels, first] = side === "query" ? [cells.queries, cells.first] : [cells.keys, cells.firstKey];
  const tokens = labels.map((text, at) =>
    make("span", { class: "token", role: "option", id: `${side}${at}`, "aria-selected": "false",
                   children: [make("bdi", { text }), make("small")], "aria-label": `${first + at}: ${text}` })
  );
  return { side, tokens, list: make("div", { class: "text", role: "listbox", "aria-label": label, children: tokens }) };
}

// Highlight a text by one row or column of the cells. source: {side, at}, the query or the key.
function paint(cells, hatches, text, source, values) {
  text.tokens.forEach((token, at) => {
    const [query, key] = source.side === "query" ? [source.at, at] : [at, source.at];
    const index = cellIndex(cells, query, key);
    const reason = cells.blocked[index];
    token.classList.toggle("blocked", reason > 0);
    token.style.backgroundImage = reason ? hatches[reason - 1] : "";
    token.style.setProperty("--light", reason ? 0 : light(cells, cells.weights[index]));
    token.lastChild.textContent = values ? (reason ? "–" : weightText(cells.weights[index])) : "";
    token.title = cellWords(cells, query, key, cellText(cells, query, key));
  });
}

// Remove all marks from a token.
function clear(token) {
  token.classList.remove("blocked");
  token.style.backgroundImage = "";
  token.style.setProperty("--light", 0);
  token.lastChild.textContent = token.title = "";
}

// Return the index of the nearest token in the line above or below another.
function beside(tokens, at, down) {
  const from = tokens[at];
  const lines = tokens.map((token, n) => [n, token.offsetTop, Math.abs(token.offsetLeft - from.offsetLeft)]);
  const there = lines.filter(([, top]) => (down > 0 ? top > from.offsetTop : top < from.offsetTop));
  if (!there.length) return at;
  const line = down > 0 ? Math.min(...there.map(([, top]) => top)) : Math.max(...there.map(([, top]) => top));
  return there.filter(([, top]) => top === line).sort((one, other) => one[2] - other[2])[0][0];
}

// Return the position that a key leads to: the next line for up and down, the next token for left and right.
function steppedToken(key, cells, tokens, query) {
  const [down, right] = STEPS[key] || [0, 0];
  if (down) return cells.first + beside(tokens, Math.min(Math.max(query - cells.first, 0), tokens.length - 1), down);
  return steppedQuery(right ? (right < 0 ? "ArrowUp" : "ArrowDown") : key, query, cells.among);
}

function show(element, cells, own, onPick) {
  const { words } = cells;
  const hatches = hatchImages(cells);
  const texts = cells.across
    ? [textOf(cells, "query", words.queries), textOf(cells, "key", words.keys)]
    : [textOf(cells, "query", words.text)];
  const [queries] = texts;
  const said = make("p", { class: "said", "aria-live": "polite" });
  const pinned = make("div", { class: "pinned" });
  const way = (name, text) => make("button", { type: "button", "data-way": name, text });
  const ways = make("span", { class: "ways", role: "group", "aria-label": words.ways,
                              children: [way("at", words.at), way("by", words.by)] });
  const values = make("button", { type: "button", "data-do": "values", text: words.values });
  const pin = make("button", { type: "button", "data-do": "pin" });
  const hint = make("span", { class: "hint", text: words.usage });
  const tools = make("div", { class: "tools", children: [...(cells.across ? [] : [ways]), values, pin, hint] });
  let pointed = null; // {side, at}

  const inSight = (position) => Math.min(Math.max(position - cells.first, 0), cells.rows - 1);
  const chosen = () => ({ side: cells.across || own.towards === "at" ? "query" : "key", at: inSight(own.query) });
  const source = () => pointed || chosen();

  const paintPins = () => {
    const rows = own.pins.filter((at) => at >= cells.first && at < cells.first + cells.rows);
    pinned.replaceChildren(...rows.map((position) => {
      const from = { side: chosen().side, at: position - cells.first };
      const text = textOf(cells, cells.across ? "key" : "query", fill(words.pinned, { token: queryName(cells, from.at) }));
      text.tokens.forEach((token) => token.removeAttribute("id"));
      text.tokens[from.at]?.classList.toggle("from", !cells.across);
      paint(cells, hatches, text, from, own.values);
      const unpin = make("button", { type: "button", text: `${queryName(cells, from.at)} ✕`, "data-unpin": position,
                                     "aria-label": fill(words.unpin, { token: queryName(cells, from.at) }) });
      unpin.onclick = () => togglePin(position);
      return make("div", { class: "pin", children: [unpin, text.list] });
    }));
  };
  const refresh = () => {
    const from = source();
    const highlighted = cells.across ? texts.find((text) => text.side !== from.side) : queries;
    for (const text of texts) {
      const here = text.side === from.side || !cells.across;
      text.tokens.forEach((token, at) => {
        token.classList.toggle("from", here && at === from.at);
        token.classList.toggle("query", text === queries && at === own.query - cells.first);
        token.setAttribute("aria-selected", String(text === queries && own.pins.includes(cells.first + at)));
      });
      if (text !== highlighted) text.tokens.forEach(clear);
    }
    paint(cells, hatches, highlighted, from, own.values);
    queries.list.setAttribute("aria-activedescendant", `query${inSight(own.query)}`);
    said.textContent = summary(cells, from);
    for (const button of ways.children) button.setAttribute("aria-pressed", String(button.dataset.way === own.towards));
    values.setAttribute("aria-pressed", String(Boolean(own.values)));
    const isPinned = own.pins.includes(toPin());
    pin.textContent = fill(isPinned ? words.unpin : words.pin, { token: queryName(cells, inSight(own.query)) });
    pin.disabled = !isPinned && own.pins.length >= MAX_PINS;
  };
  const toPin = () => cells.first + inSight(own.query);
  const togglePin = (position) => {
    if (own.pins.includes(position)) own.pins = own.pins.filter((pin) => pin !== position);
    else if (own.pins.length < MAX_PINS) own.pins = [...own.pins, position];
    refresh();
    paintPins();
    sendChoice(own, "pins", own.pins.join(","), onPick);
  };
  const choose = (position) => {
    chooseSoon(own, position, 0, onPick);
    refresh();
  };

  for (const text of texts) {
    text.tokens.forEach((token, at) => {
      const side = cells.across ? text.side : null;
      token.onpointerenter = () => {
        pointed = { side: side || chosen().side, at };
        refresh();
      };
      token.onclick = (event) => {
        if (text !== queries) return;
        if (event.shiftKey) togglePin(cells.first + at);
        else choose(cells.first + at);
      };
    });
    text.list.onpointerleave = () => {
      pointed = null;
      refresh();
    };
  }
  queries.list.tabIndex = 0;
  const moved = () => {
    pointed = null;
    refresh();
  };
  moveByKeys(queries.list, own, (key) => steppedToken(key, cells, queries.tokens, own.query), moved, onPick);
  queries.list.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    togglePin(toPin());
  });
  const change = (choice, value) => {
    own[choice] = value;
    refresh();
    paintPins();
    sendChoice(own, choice, value, onPick);
  };
  for (const button of ways.children) button.onclick = () => change("towards", button.dataset.way);
  values.onclick = () => change("values", !own.values);
  pin.onclick = () => togglePin(toPin());

  replaceParts(element, tools, ...texts.map((text) => text.list), said, pinned);
  refresh();
  paintPins();
}

export function draw(element, data, onPick) {
  return drawCells(element, data, (cells, own) => show(element, cells, own, onPick));
}
