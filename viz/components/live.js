// The controls of a page that runs its model in the browser. Put last, after live_views.js.

const part = (name) => document.querySelector(`[data-part="${name}"]`);
const control = (id) => document.getElementById(id);
const switches = [...document.querySelectorAll("[data-mask]")];
const standardSpec = () => readSpec({}, model.standard);

const state = {
  spec: readSpec(about.masks), layer: about.head[0], head: about.head[1], query: about.query ?? null, pins: [], towards: "at",
  number: 0, epoch: 0, // counts of the drawing, as in mask.js
};
// What a step of a lesson shows: {titles, unnamed, beside}. beside: the {model, lines, masks} to compare with, or null.
// Without a scene, runs are compared with the standard masks.
let scene = null;
let standard = null; // the last run to compare with; `for`: a key of its text and masks
let shown = null; // {row, runs}: what is on the page, now first
let activeRun = null; // the AbortController of the run that is under way

const tell = (text) => { control("status").textContent = text; };
const report = (share) => { control("progress").value = share; };

// Return the lines of text that are read, and list them in the control "row".
function texts() {
  const lines = control("text").value.split(/\r\n|\n|\r/).filter((line) => line.trim());
  const read = lines.slice(0, about.mostRows);
  const chosen = Math.min(control("row").selectedIndex, read.length - 1);
  control("row").replaceChildren(...read.map((line, at) => new Option(`${at + 1}: ${[...line].slice(0, 40).join("")}`, at)));
  control("row").selectedIndex = Math.max(chosen, 0);
  for (const id of ["row", "side"]) control(id).parentElement.hidden = read.length < 2;
  return { read, left: lines.length - read.length };
}

// Read the controls, run the model if needed, and show the result. A later call cancels an earlier one.
async function refresh() {
  activeRun?.abort();
  const { read, left } = texts();
  document.body.classList.toggle("empty", !read.length);
  const own = (activeRun = new AbortController());
  const [began, how] = [performance.now(), { signal: activeRun.signal, report }];
  try {
    if (!read.length) return tell(words.empty);
    control("cancel").disabled = false;
    tell(fill(words.running, { model: model.name }));
    const [at, side, titles] = [control("row").selectedIndex, control("side").value, scene?.titles ?? words];
    const [row, beside] = [readRow(read, at, side), scene ? scene.beside : { masks: standardSpec() }];
    const runUnder = async (some, masks) => {
      const { logits, ...kept } = await run(some, masks, how); // with a large vocabulary, logits take most memory
      return kept;
    };
    const [masks, runs] = [composed(state.spec, row), []];
    if (beside) {
      const other = beside.model ? readRow(beside.lines, at, side, beside.model) : row;
      const key = JSON.stringify([other.model.key, other.ids, other.keep, beside.masks]);
      const under = composed(beside.masks, other);
      if (standard?.for !== key) standard = { for: key, run: await runUnder(other, under) };
      runs.push({ row: other, name: titles.standard, colour: about.series[1], run: standard.run, masks: under, masksOf: () => under });
    }
    const same = beside && String(runs[0].row.ids) === String(row.ids) && runs[0].row.model === model;
    const layer = !scene && control("scope").value === "layer";
    if (!same || masks.allowed.some((allowed, cell) => allowed !== runs[0].masks.allowed[cell])) {
      runs.unshift({ row, masks, masksOf: () => masks, name: titles.now, colour: about.series[0], only: layer, run: layer ? null : await runUnder(row, masks) });
    }
    if (own !== activeRun) return;
    if (shown && String(shown.row.ids) !== String(row.ids)) Object.assign(state, { query: null, pins: [] });
    shown = { row, runs, masks };
    show();
    const said = scene ? [] : [fill(words.done, { tokens: row.keep.filter(Boolean).length, seconds: ((performance.now() - began) / 1000).toFixed(2) })];
    if (row.cut) said.push(fill(words.cut, { most: model.tokenizer.context, beginning: [...row.cut].slice(0, 40).join("") }));
    if (left) said.push(fill(words.rows, { most: about.mostRows }));
    tell(said.join(" "));
  } catch (error) {
    if (own === activeRun) tell(error.name === "AbortError" ? words.cancelled : error.message);
  } finally {
    if (own === activeRun) {
      control("cancel").disabled = true;
      report(1);
      activeRun = null;
    }
  }
}

const leave = new Map(); // by element: the function that ends its view

function draw(view, element, data, onPick) {
  leave.get(element)?.();
  leave.set(element, globalThis.canvases[view](element, data, onPick));
}

// Draw everything below the controls.
function show() {
  const { runs } = shown;
  const [now] = runs;
  if (now.only) {
    const masks = [runs.at(-1).masks, now.masks];
    Object.assign(now, { run: withLayer(runs.at(-1).run, state.layer, now.masks), masksOf: (layer) => masks[Number(layer === state.layer)] });
  }
  for (const one of runs) {
    const { layers, heads } = one.row.model.config;
    one.leaks = Array.from({ length: layers * heads }, (_, head) => sharesOf(at3(one.run.weights, head, one.row.ids.length), one.row));
  }
  draw("overview", part("overview"), overviewData(now.run, now.masksOf, shown.row, now.leaks, state), (what, at) => {
    if (what !== "pick" || !shown) return;
    [state.layer, state.head] = at;
    if (now.only) show();
    else showHead();
  });
  showHead();
  const text = shown.row.labels.join("");
  const seen = Object.entries(about.signs).map(([sign, meaning]) => [text.match(sign), meaning]).filter(([sign]) => sign);
  const clauses = seen.map(([[sign], meaning]) => fill(meaning, { sign })).join(about.clauses[1]);
  control("signs").textContent = clauses && fill(about.clauses[0], { clauses });
}

// Take a choice made in a view, unless the run of a course's next step is under way.
function onChoice(what, value) {
  if (!shown) return;
  if (what === "pins") state.pins = value.split(",").filter(Boolean).map(Number);
  else state[what] = value;
  if (what === "query" || what === "pins") showHead(); // the view waits for an answer
}

// Draw the chosen head and the mask, with their sentences.
function showHead() {
  const { row, runs } = shown;
  const [number, rows, name] = [state.layer * model.config.heads + state.head, row.ids.length, `L${state.layer} H${state.head}`];
  const last = row.indices.indexOf(Math.max(...row.indices));
  const query = (state.query = Math.min(state.query ?? last, rows - 1)); // a link from a server may count more padding
  const planes = runs.map(({ run, row }) => at3(run.weights, state.layer * row.model.config.heads + state.head, row.ids.length));
  const masks = runs.map((one) => (scene?.unnamed ? unnamed : (same) => same)(one.masksOf(state.layer)));
  const [now, most, titles] = [runs[0], rangeOf(...planes), scene?.titles ?? words];
  const compared = runs.length > 1 && planes[0].length === planes[1].length;
  const drawCells = (slot, view, weights, masks, more) => {
    part(slot).hidden = false;
    const of = slot === "standard" ? runs[1].row : row;
    const data = cellsData(more.what === "change" ? "difference" : view, weights, masks, of, { query, name, ...more });
    draw(view, part(slot).querySelector(".view") || part(slot), data, onChoice);
  };
  control("name").textContent = name;
  drawCells("now", "heatmap", planes[0], masks[0], { most });
  for (const slot of ["standard", "difference"]) part(slot).hidden = true;
  if (compared) {
    const change = planes[0].map((weight, at) => weight - planes[1][at]);
    const small = Boolean(scene) && innerWidth > 720; // side by side, as in course.css
    drawCells("standard", "heatmap", planes[1], masks[1], { most, small });
    drawCells("difference", "heatmap", change, bothBlock(...masks), { most: Math.max(largest(change), 0.01), what: "change", small });
  }
  for (const slot of ["now", "standard", "difference"]) part(slot).firstElementChild.textContent = compared ? titles[slot] : "";
  const view = document.querySelector("[name=view]:checked").value;
  for (const slot of ["tokens", "arcs"]) part(slot).hidden = slot !== view;
  const { pins, towards } = state;
  const more = { tokens: { pins, towards, brightest: brightest(planes[0]) },
                 arcs: { names: [name], suggested: leastLine(planes[0], rows), firstToken: row.indices.indexOf(0) } };
  drawCells(view, view, planes[0], masks[0], more[view]);
  if (control("more").open) draw("mask", part("mask"), maskData(shown.masks, row, { ...state, strokes: state.spec.drawn, query }), drawnOrChosen);
  control("numbers").hidden = false;
  const predicting = now.only ? runs.slice(1) : runs; // a run with one layer changed has no predictions of its own
  control("after").textContent = fill(words.after, { token: `${row.labels[query]} (${query})` });
  if (!scene) control("next").replaceChildren(...nextTokens(predicting, query));
  const losses = predicting.map((one) => lossStrip(one, predicting.length < 2 && (!scene || scene.beside)));
  const means = losses.map(({ mean }) => mean);
  const mean = means[0] ? [make("p", { text: fill((means[1] ? titles : words)[means[1] ? "both_means" : "mean"], { now: means[0], standard: means[1] }) })] : [];
  control("losses").replaceChildren(...mean, ...losses.map(({ strip }) => strip));
  if (!scene) control("leak").replaceChildren(...leakTable(runs, number, name));
  control("sentence").textContent = sentences(now, number).join(" ");
}

function sentences({ leaks, only }, number) {
  const { future, padding } = leaks[number];
  const [said, head] = [[], control("name").textContent];
  if (future > 0) said.push(fill(words.later, { head, share: percent(future) }));
  if (padding > 0) said.push(fill(words.to_padding, { head, share: percent(padding) }));
  if (only) said.push(fill(words.layer_only, { layer: `L${state.layer}` }));
  return said;
}

function drawnOrChosen(what, value) {
  if (what === "query") return onChoice(what, value);
  state.number = value.number;
  state.spec = { ...state.spec, drawn: value.strokes };
  refresh();
}

// Set the controls to these masks, and run. If the page itself replaces the drawing, a new epoch starts.
function take(spec) {
  takeMasks(spec);
  refresh();
}

function takeMasks(spec) {
  if (state.spec.drawn !== spec.drawn) Object.assign(state, { number: 0, epoch: state.epoch + 1 });
  state.spec = spec;
  for (const one of switches) {
    if (one.type === "checkbox") one.checked = spec[one.dataset.mask];
    else one.value = spec[one.dataset.mask];
  }
}

for (const one of switches) {
  one.onchange = () => {
    const numeric = one.type === "number";
    if (numeric) one.value = Math.round(Math.min(Math.max(Number(one.value), 0), one.max));
    const value = one.type === "checkbox" ? one.checked : numeric ? Number(one.value) : one.value;
    state.spec = { ...state.spec, [one.dataset.mask]: value };
    refresh();
  };
}
control("more").ontoggle = () => shown && showHead();
control("reset").onclick = () => take(standardSpec());
control("cancel").onclick = () => activeRun?.abort();
control("controls").onsubmit = (event) => {
  event.preventDefault();
  refresh();
};
control("text").onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) refresh();
};
for (const id of ["row", "side", "scope"]) control(id).onchange = refresh;
for (const one of document.querySelectorAll("[name=view]")) one.onchange = () => shown && showHead();

if (model) { // a lesson of a course loads its own model
  texts(); // lists the rows
  control("row").selectedIndex = about.row;
  const base64 = control("parameters");
  load(model, { base64: base64.textContent }, report).then(refresh, (error) => tell(error.message));
  base64.remove(); // the worker has it
}
