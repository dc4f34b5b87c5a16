// A view as a Streamlit component: put last, after the module whose `draw(element, data, onPick)` it calls.

export default function ({ data, parentElement, setTriggerValue }) {
  return draw(parentElement.querySelector(".view"), data, setTriggerValue);
}
