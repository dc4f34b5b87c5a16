// A phone in a class's room: it shows the teacher's step and sends answers, each the number of a choice. Put after
// `words`. The phone is identified by a random number for each room. Its answers are stored in this browser.

const here = location.pathname.replace(/\/+$/, ""); // …/room/ID
const store = `unmask ${here}`;
const [PATIENCE, QUICK] = [40_000, 15_000]; // ms that a step and an answer may take: the server holds a step for 25 s
const number = Array.from(crypto.getRandomValues(new Uint8Array(16)), (one) => one.toString(16).padStart(2, "0")).join("");
const kept = { phone: number, given: {}, ...read() };
const sent = {}; // choices by step, until the server responds
const [step, status] = ["step", "status"].map((id) => document.getElementById(id));
let now = null;
let drawn = []; // functions that end the views on the page
let tag = "";

function read() {
  try {
    return JSON.parse(localStorage.getItem(store));
  } catch {
    return null;
  }
}

function takeOthers() {
  kept.given = { ...read()?.given, ...kept.given }; // answers of this room in other tabs
}

function keep() {
  takeOthers();
  try {
    localStorage.setItem(store, JSON.stringify(kept));
  } catch {
    // this browser stores nothing: answers are lost on reload
  }
}

const tell = (text) => (status.textContent = text);
const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));
const unpack = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));

async function follow() {
  for (;;) {
    let pause = 0;
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(`${here}/step?phone=${kept.phone}`, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
      if (answer.status === 404) return leave(words.ended);
      if (answer.status === 403) return leave(words.full);
      if (answer.status === 200) show(await answer.json());
      else if (answer.status === 304) pause = Math.random(); // so that not all phones send requests at once
      else if (answer.status !== 204) throw new Error(String(answer.status));
      tag = answer.headers.get("ETag") ?? tag;
      if (status.textContent === words.lost) say();
    } catch {
      tell(words.lost);
      tag = ""; // so that the next request is answered immediately
      pause = 1 + 3 * Math.random();
    }
    await wait(pause || (now ? 0 : 0.5));
  }
}

function leave(text) {
  drawn.forEach((end) => end());
  step.replaceChildren();
  tell(text);
}

function show(update) {
  const moved = now && now.name !== update.name;
  const held = step.contains(document.activeElement); // the focused element is about to be removed
  now = update;
  drawn.forEach((end) => end());
  step.lang = update.lang; // the teacher's language; the page has the phone's
  step.innerHTML = update.html; // from our own server, which escapes all input
  for (const one of step.querySelectorAll("a[href]")) {
    const address = one.getAttribute("href");
    if (!/^([a-z][a-z\d+.-]*:|\/\/)/i.test(address)) one.href = new URL(address, new URL(`${here}/../..`, location).href.replace(/\/?$/, "/"));
    one.target = "_blank";
  }
  for (const one of step.querySelectorAll(".lesson_picture, .formula")) {
    if (one.scrollWidth > one.clientWidth) one.tabIndex = 0; // so that keys scroll it
  }
  drawn = [...step.querySelectorAll("[data-view]")].map((element) =>
    globalThis.canvases[element.dataset.view](element, unpack(element.dataset.packet), () => {}));
  for (const one of step.querySelectorAll("button[data-choice]")) one.onclick = () => give(Number(one.dataset.choice));
  say();
  if (moved) scrollTo(0, 0);
  if (moved || held) step.focus({ preventScroll: true }); // where a screen reader continues
}

// Show what this phone answered, with the reply and the score if the step has them.
function say() {
  takeOthers();
  const given = kept.given[now?.name] ?? sent[now?.name];
  const buttons = [...step.querySelectorAll("button[data-choice]")];
  for (const one of buttons) {
    one.setAttribute("aria-pressed", String(Number(one.dataset.choice) === given));
    one.setAttribute("aria-disabled", String(given !== undefined)); // `disabled` would lose the focus
  }
  for (const one of step.querySelectorAll("li[data-choice]")) {
    one.classList.toggle("own", Number(one.dataset.choice) === given);
  }
  tell(buttons.length && given !== undefined ? words.given : "");
  if (now?.said) document.getElementById("said").innerHTML = now.said[given] ?? now.said.at(-1);
  const answered = Object.keys(now?.scores ? now.right : {}).filter((name) => kept.given[name] !== undefined);
  if (answered.length) {
    const score = now.scores[answered.length - 1] ?? "";
    const right = answered.filter((name) => now.right[name].includes(kept.given[name]));
    document.getElementById("score").textContent = score.replace("{right}", right.length);
  }
}

async function give(choice) {
  const { name } = now;
  if ((kept.given[name] ?? sent[name]) !== undefined) return;
  sent[name] = choice;
  say();
  try {
    const body = JSON.stringify({ phone: kept.phone, step: name, choice });
    const answer = await fetch(`${here}/answer`, { method: "POST", body, signal: AbortSignal.timeout(QUICK) });
    if (!answer.ok) return refused(name, answer.status === 409 ? words.late : words.unsent);
    kept.given[name] = await answer.json(); // the first one, whose confirmation may have been lost
    keep();
    say();
    if (kept.given[name] !== choice) tell(words.first);
  } catch {
    refused(name, words.unsent);
  }
}

// Discard an answer that was not counted, and a reply to it, if the next step arrived before the server's response.
function refused(name, why) {
  delete sent[name];
  say();
  if (kept.given[name] === undefined) tell(why); // else another tab's answer counts
}

keep();
follow();
