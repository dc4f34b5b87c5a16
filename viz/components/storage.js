// Stores lessons' answers, and the room that a teacher has open, in this browser. It draws nothing. What was stored is
// sent to the server first, as `stored`; from then on this tab's changes are merged into what other tabs store. Put
// after calls.js.

const given = (steps) => new Map(steps ? steps.split(",").map((one) => one.split("-")) : []);

const NOTHING = JSON.stringify({ answers: {}, room: null });

function read(stored) {
  try {
    const { answers, room = null } = JSON.parse(stored);
    return typeof answers === "object" && answers ? { answers, room } : { answers: {}, room };
  } catch {
    return { answers: {}, room: null };
  }
}

function remember({ data, parentElement, setTriggerValue }) {
  const { name, most, session, taken, answers, room, forgotten, anew } = data;
  try {
    const stored = localStorage.getItem(name);
    // a new session of the server, after a lost one, has no data yet, and has not closed the room
    if (parentElement.kept?.session !== session) parentElement.kept = null;
    const first = !parentElement.kept && !taken && stored !== null;
    const before = (parentElement.kept ??= taken ? data : { ...data, answers: {}, room: null });
    if (first) return void setTriggerValue("stored", stored);
    parentElement.kept = data;
    const forget = forgotten > before.forgotten;
    const kept = read(stored);
    if (forget) kept.answers = {};
    for (const lesson of anew.slice(before.anew.length)) delete kept.answers[lesson];
    for (const [lesson, steps] of Object.entries(answers)) {
      const known = forget ? new Map() : given(before.answers[lesson]);
      const fresh = [...given(steps)].filter(([step, choice]) => known.get(step) !== choice);
      if (fresh.length) kept.answers[lesson] = [...new Map([...given(kept.answers[lesson]), ...fresh])].map((one) => one.join("-")).join();
    }
    // keep a room that another tab has opened since
    if (room?.id !== before.room?.id && (room || kept.room?.id === before.room.id)) kept.room = room;
    const text = JSON.stringify(kept);
    if (text !== (stored ?? NOTHING) && text.length <= most) localStorage.setItem(name, text);
  } catch {
    // this browser stores nothing
  }
}

export default unlessEnded(remember);
