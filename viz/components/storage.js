// What this browser remembers of the lessons: the answers, and the room that a teacher has open. It draws nothing. What was
// kept is told to the server first, as `stored`; from then on what the server knows is kept.

export default function remember({ data, parentElement, setTriggerValue }) {
  try {
    const stored = localStorage.getItem(data.name);
    const first = !parentElement.met && !data.taken && stored !== null;
    parentElement.met = true;
    if (first) setTriggerValue("stored", stored);
    else if (data.keep.length <= data.most) localStorage.setItem(data.name, data.keep);
  } catch {
    // a browser that keeps nothing
  }
}
