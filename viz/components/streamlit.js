// A view as a Streamlit component: put last, after calls.js and the module whose `draw(element, data, onPick)` it calls.

export default function ({ data, parentElement, setTriggerValue }) {
  return unlessEnded(() => draw(parentElement.querySelector(".view"), data, setTriggerValue));
}
