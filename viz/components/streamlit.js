// A view as a Streamlit component. Put last, after calls.js and the module whose draw(element, data, onPick) it calls.

export default unlessEnded(({ data, parentElement, setTriggerValue }) =>
  draw(parentElement.querySelector(".view"), data, setTriggerValue));
