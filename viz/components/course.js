// A lesson of a course: its steps and questions, on the page that live.js runs. Put last. The user's state is in the
// address, after #: the step, the answer given at each step by its number, and whether the lesson is presented.

const { course } = about;
const LAST = course.steps.length + 1; // the summary
const kept = new URLSearchParams(location.hash.slice(1));
const main = document.querySelector("main");
const all = (selector) => [...document.querySelectorAll(selector)];
const opening = new Map(); // promises of models, by file
let at = 1; // the step, from 1

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
  opening.get(file).catch(() => opening.delete(file)); // so that it can be tried again
  return opening.get(file);
}

const givenAt = (number) => (kept.has(number) ? Number(kept.get(number)) : null); // an address may contain anything
const isOpen = (step) => Boolean(step?.said) && !kept.has(at);

// Run what the step shows, and the run that it is compared with.
async function present() {
  const step = course.steps[at - 1];
  const found = step?.[isOpen(step) ? "before" : "after"];
  activeRun?.abort();
  activeRun = null;
  scene = found;
  main.dataset.show = found?.show ?? "";
  control("try").hidden = !step?.after || isOpen(step);
  control("try").textContent = course.words.try;
  control("try").disabled = true; // until the model is loaded
  tell(found ? words.loading : "");
  if (!found) return;
  try {
    const [own, other] = await Promise.all([found.now, found.beside].map((one) => one && openModel(one.model)));
    if (scene !== found) return;
    const beside = found.beside && { ...found.beside, model: other };
    [model, shown] = [own, null];
    Object.assign(state, { layer: found.head[0], head: found.head[1], query: found.query, pins: [] });
    control("text").value = found.now.lines.join("\n");
    control("side").value = found.side;
    texts();
    control("row").selectedIndex = found.row;
    takeMasks(readSpec(found.now.masks));
    control("try").disabled = false;
    if (found.show === "texts") return await showTexts(found, [{ ...found.now, model: own }, beside].filter((one) => one?.lines.length === found.now.lines.length));
    scene = { ...found, beside };
    refresh();
  } catch (error) {
    if (scene === found) tell(fill(course.words.failed, { problem: error.message }));
  }
}

// Show the mean loss of each line, of one run or of two with equally many lines.
async function showTexts(found, runs) {
  const rows = [];
  for (const [line, text] of found.now.lines.entries()) {
    const cells = [make("td", { text, class: "wraps" })];
    for (const { lines, masks, model } of runs) {
      const row = readRow(lines, line, found.side, model);
      const { losses } = await run(row, composed(readSpec(masks), row), { report });
      cells.push(make("td", { text: meanOf(losses), class: "number" }));
    }
    rows.push(rowOf(...cells));
  }
  if (scene !== found) return;
  const names = [found.titles.now, found.titles.standard].slice(0, runs.length);
  control("texts").replaceChildren(rowOf(make("th", { text: course.words.texts }), ...names.map((text) => make("th", { text, class: "number" }))), ...rows);
  tell("");
}

function goTo(number) {
  at = Math.min(Math.max(number, 1), LAST);
  kept.set("step", at);
  history.replaceState(null, "", `#${kept}`);
  const [step, now] = [course.steps[at - 1], `[data-step="${at}"]`];
  const open = isOpen(step);
  for (const one of all(".language")) one.hash = location.hash;
  for (const one of all("[data-step]")) one.hidden = Number(one.dataset.step) !== at;
  for (const one of all(`${now} .question`)) one.hidden = !open;
  for (const one of all(`${now} :is(.answered, .pictured)`)) one.hidden = open;
  for (const one of all(`${now} .said`)) one.innerHTML = open ? "" : step.said[givenAt(at)] ?? step.said.at(-1);
  for (const one of all(`${now} .row`)) one.hidden = !(open ? !step.before : step.tokens);
  control("place").textContent = fill(course.words.place, { step: at, steps: LAST });
  control("step_previous").disabled = at === 1;
  control("step_next").textContent = at === LAST ? course.words.following : course.words.next;
  if (at === LAST) sumUp();
  present();
}

// Show the summary: the questions with the answers given, and the score.
function sumUp() {
  const asked = course.steps.map((step, index) => ({ ...step, given: givenAt(index + 1) })).filter((step) => step.said);
  all("ol.seen")[0].innerHTML = asked.map(({ seen, given, unanswered }) => (given === null ? unanswered : seen[given] ?? seen.at(-1))).join("");
  const chosen = asked.filter(({ given, right }) => given !== null && given in right);
  const right = chosen.filter((step) => step.right[step.given]).length;
  control("score").textContent = chosen.length ? fill(course.scores[chosen.length - 1], { right }) : "";
}

function presenting(on) {
  if (on) kept.set("present", "");
  else kept.delete("present");
  document.documentElement.toggleAttribute("data-presented", on);
  // the text on canvases has 11 css pixels
  document.documentElement.style.setProperty("--zoom", on ? Math.max(14, 0.012 * innerWidth) / 11 : 1);
  control("step_present").textContent = course.words[on ? "exit" : "present"];
  stopListening?.();
  stopListening = listen({ data: { main: "html", presented: on, width: innerWidth }, setTriggerValue() {} });
}
let stopListening;

for (const one of all("[data-answer]")) {
  one.onclick = () => {
    kept.set(at, one.dataset.answer);
    goTo(at);
    control("step_next").focus({ preventScroll: true }); // the focused button is now hidden
  };
}
control("try").onclick = () => {
  if (main.dataset.show === "free") return present();
  main.dataset.show = "free";
  control("try").textContent = course.words.back;
  scene = null;
  refresh();
};
control("step_previous").onclick = () => goTo(at - 1);
control("step_next").onclick = () => {
  if (at < LAST) goTo(at + 1);
  else location.assign(course.following + location.search + (kept.has("present") ? "#present" : ""));
};
control("step_present").onclick = () => {
  presenting(!kept.has("present"));
  goTo(at);
};

// Keys besides Page Down, Page Up, Space and Escape, which lesson.js handles.
document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || target.closest?.("input, textarea, select, canvas, [tabindex]")) return;
  const name = { ArrowRight: "step_next", ArrowLeft: "step_previous", p: "step_present", P: "step_present" }[key];
  const answer = /^a$/i.test(key) ? ".link" : `[data-answer="${key - 1}"]`; // A shows the answer
  const [choice] = all(`[data-step="${at}"] .question:not([hidden]) ${answer}`);
  (choice || (name && control(name)))?.click();
});

document.documentElement.toggleAttribute("data-framed", location.search.includes("frame"));
presenting(kept.has("present"));
goTo(parseInt(kept.get("step")) || 1);
