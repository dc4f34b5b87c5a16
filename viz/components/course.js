// A lesson of a course: its steps and questions, over the page that live.js runs. Put last.

const { course } = about;
const [LAST, SHOWN] = [course.steps.length + 1, 9]; // SHOWN: as in viz/saved/course.py
const STORED = `unmask ${location.pathname}`;
const main = document.querySelector("main");
const all = (selector) => [...document.querySelectorAll(selector)];
let at = 1; // the step, from 1; LAST is the summary
let answers = {}; // by step
try {
  answers = JSON.parse(localStorage.getItem(STORED)) ?? {};
} catch {
  // a frame without storage: they last as long as the page
}

const opening = new Map(); // by file, models as promises

function openModel(file) {
  const open = async () => {
    const answer = await fetch(`../${file}`);
    if (!answer.ok) throw new Error(`${file}: ${answer.status}`);
    const { header, body } = await unpack(new Uint8Array(await answer.arrayBuffer()));
    const found = ready({ ...header, key: file });
    await load(found, { bytes: body }, report);
    return found;
  };
  if (!opening.has(file)) opening.set(file, open());
  opening.get(file).catch(() => opening.delete(file)); // to be tried again
  return opening.get(file);
}

const isOpen = (number) => course.steps[number - 1]?.verdicts && answers[number] === undefined;

// What of the step's run is shown: null, or {now, beside} of its runs, and which view.
function shownOf(step) {
  const { run, show, before } = step;
  if (!run || show === "tokens") return null;
  if (!isOpen(at)) return { now: run.now, beside: ["pair", "losses", "texts"].includes(show) ? run.beside : null, show };
  if (before === "now") return { now: run.now, beside: null, show: "head", unnamed: true };
  return before === "beside" ? { now: run.beside, beside: null, show: show === "pair" ? "head" : show } : null;
}

async function present() {
  const step = course.steps[at - 1];
  const found = step && shownOf(step);
  going?.abort();
  going = null;
  delete main.dataset.free;
  main.dataset.show = found ? found.show : "";
  control("try").hidden = !step?.run || isOpen(at);
  control("try").textContent = course.try[0];
  if (!found) return tell("");
  const [here, files] = [at, [found.now, found.beside].filter(Boolean).map((one) => one.model)];
  tell(words.loading);
  try {
    const models = await Promise.all(files.map(openModel));
    if (here !== at || found.show !== main.dataset.show || "free" in main.dataset) return;
    [model] = models;
    const { run: { side, row, head, query }, titles } = step;
    const beside = found.beside && { ...found.beside, model: models[1] };
    scene = { titles, unnamed: found.unnamed, beside };
    shown = null;
    Object.assign(state, { layer: head[0], head: head[1], query, pins: [] });
    control("text").value = found.now.lines.join("\n");
    control("side").value = side;
    texts();
    control("row").selectedIndex = row;
    if (found.show === "texts") await showTexts(found, models);
    else take(readSpec(found.now.masks));
  } catch (error) {
    if (here === at) tell(error.name === "AbortError" ? words.cancelled : fill(course.words.failed, { problem: error.message }));
  }
}

// The mean loss of each line, of one run or of two.
async function showTexts({ now, beside }, models) {
  const own = (going = new AbortController());
  const { side } = course.steps[at - 1].run;
  const compared = [now, beside].filter(Boolean);
  const means = compared.map(() => []);
  for (const line of now.lines.keys()) {
    for (const [which, { lines, masks }] of compared.entries()) {
      const row = readRow(lines, line, side, models[which]);
      const { losses } = await run(row, composed(readSpec(masks), row), { signal: own.signal });
      const some = losses.filter((loss) => !Number.isNaN(loss));
      means[which].push(some.reduce((sum, loss) => sum + loss, 0) / some.length);
    }
    report((line + 1) / now.lines.length);
  }
  const names = [scene.titles.now, scene.titles.standard].slice(0, means.length);
  const head = rowOf(make("th", { text: course.words.texts }), ...names.map((text) => make("th", { text, class: "number" })));
  const cells = (line) => means.map((some) => make("td", { text: some[line].toFixed(2), class: "number" }));
  control("texts").replaceChildren(head, ...now.lines.map((text, line) => rowOf(make("td", { text, class: "wraps" }), ...cells(line))));
  tell("");
  if (own === going) going = null;
}

function goTo(number) {
  at = Math.min(Math.max(number, 1), LAST);
  const [step, open] = [course.steps[at - 1], isOpen(at)];
  history.replaceState(null, "", `#${at}`);
  for (const one of all("[data-same]")) one.hash = `#${at}`;
  for (const one of all("[data-step]")) one.hidden = Number(one.dataset.step) !== at;
  for (const one of all("[data-of]")) one.hidden = Number(one.dataset.of) !== at;
  for (const one of all(`[data-step="${at}"] .question`)) one.hidden = !open;
  for (const one of all(`[data-step="${at}"] .notice`)) one.hidden = Boolean(open);
  for (const one of all(`[data-step="${at}"] .answered`)) {
    one.hidden = Boolean(open);
    one.innerHTML = open ? "" : step.verdicts[answers[at]] ?? step.told;
  }
  const tokens = step && (step.show === "tokens" || (open && !shownOf(step)));
  for (const one of all(`[data-of="${at}"] .row`)) one.hidden = !tokens;
  for (const one of all(`[data-of="${at}"] .pictured`)) one.hidden = Boolean(open);
  control("place").textContent = fill(course.words.place, { step: at, steps: LAST });
  control("step_previous").disabled = at === 1;
  control("step_next").textContent = at === LAST ? course.words.following : course.words.next;
  if (at === LAST) sumUp();
  present();
}

// The questions with the answers that were given, and the right ones.
function sumUp() {
  const asked = course.steps.map((step, place) => ({ ...step, given: answers[place + 1] })).filter((step) => step.verdicts);
  const kindOf = ({ given, right }) => (given === undefined ? "open" : given === SHOWN ? "told" : right.includes(given) ? "right" : "wrong");
  const marks = { right: "✓", wrong: "✗" };
  all("ol.seen")[0].replaceChildren(...asked.map((step) => {
    const kind = kindOf(step);
    const said = make("div", { text: kind === "open" ? course.words.open : step.why });
    return make("li", { class: kind, children: [make("b", { text: `${marks[kind] ?? "·"} ${step.title}` }), said] });
  }));
  const kinds = asked.map(kindOf);
  const count = (...some) => kinds.filter((kind) => some.includes(kind)).length;
  const chosen = count("right", "wrong");
  control("score").textContent = chosen ? fill(course.scores[chosen - 1], { right: count("right") }) : "";
}

for (const one of all("[data-answer]")) {
  one.onclick = () => {
    answers[at] = Number(one.dataset.answer);
    try {
      localStorage.setItem(STORED, JSON.stringify(answers));
    } catch {
      // as above
    }
    goTo(at);
    control("step_next").focus({ preventScroll: true }); // what had it is gone
  };
}

control("try").onclick = () => {
  if ("free" in main.dataset) return present();
  main.dataset.free = "";
  control("try").textContent = course.try[1];
  scene = null;
  refresh();
};

let unheard = () => {};
function presenting(on) {
  document.documentElement.toggleAttribute("data-presented", on);
  document.documentElement.style.setProperty("--zoom", on ? Math.max(14, 0.012 * innerWidth) / 11 : 1); // of the canvases' letters
  control("step_present").textContent = on ? course.words.exit : course.words.present;
  const query = new URLSearchParams(location.search); // so that it goes on with the next lesson
  if (on) query.set("present", "");
  else query.delete("present");
  history.replaceState(null, "", `?${query}${location.hash}`);
  unheard();
  unheard = listen({ data: { main: "html", presented: on, width: innerWidth }, setTriggerValue() {} });
}

control("step_previous").onclick = () => goTo(at - 1);
control("step_next").onclick = () => (at === LAST ? location.assign(course.following + location.search) : goTo(at + 1));
control("step_present").onclick = () => presenting(!document.documentElement.hasAttribute("data-presented"));

// lesson.js has Page Down, Page Up, Space and Escape.
document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || target.closest?.("input, textarea, select, canvas, [tabindex]")) return;
  const name = { ArrowRight: "step_next", ArrowLeft: "step_previous", p: "step_present", P: "step_present" }[key];
  const choice = /^[1-9]$/.test(key) && all(`[data-step="${at}"] .question:not([hidden]) [data-answer="${key - 1}"]`)[0];
  (choice || (name && control(name)))?.click();
});

addEventListener("hashchange", () => goTo(Number(location.hash.slice(1)) || 1));
presenting(new URLSearchParams(location.search).has("present"));
goTo(Number(location.hash.slice(1)) || 1);
