// What this browser remembers of the lessons: the answers given, and the room that a teacher has open. It draws nothing.
// keep: {answers: {lesson: "step-choice,…"}, room}. What the server does not know yet is told to it once, as `stored`.

const LONGEST = 40_000; // characters

function read(name) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? {};
  } catch {
    return {};
  }
}

const steps = (text) => Object.fromEntries((text || "").split(",").filter(Boolean).map((pair) => pair.split("-")));

// The answers of both; where both have one, that of the server.
function merged(before, keep) {
  const answers = { ...before.answers };
  for (const [lesson, own] of Object.entries(keep.answers)) {
    answers[lesson] = Object.entries({ ...steps(answers[lesson]), ...steps(own) }).map((pair) => pair.join("-")).join(",");
  }
  return { answers, room: keep.room ?? before.room ?? null };
}

export default function remember({ data, setTriggerValue }) {
  const before = data.forget ? {} : read(data.name);
  const all = merged(before, data.keep);
  const text = JSON.stringify(all);
  try {
    if (text.length <= LONGEST) localStorage.setItem(data.name, text);
  } catch {
    return; // a browser that keeps nothing
  }
  const same = (one, other) => one && JSON.stringify(steps(one)) === JSON.stringify(steps(other));
  const news = Object.entries(all.answers).some(([lesson, given]) => !same(data.keep.answers[lesson], given));
  if (!data.taken && (news || (all.room && !data.keep.room))) setTriggerValue("stored", text);
}
