// Streamlit's shortcuts do not work while a toggle, a radio or a slider has the focus. A click by mouse or finger takes
// the focus from it; after Space it stays, for the next Space, and keys that it does not use are sent to the page
// instead. Put before the modules that use it; the returned function ends it.

const SILENT = "input[type=checkbox], input[type=radio], input[type=range], [role=radio]";

const release = ({ detail }) => {
  if (!detail) return; // Space
  setTimeout(() => {
    if (document.activeElement?.matches(SILENT)) document.activeElement.blur();
  });
};

const passOn = (event) => {
  const { key, target } = event;
  if (!target.matches?.(SILENT) || event.ctrlKey || event.altKey || event.metaKey) return;
  const unused = (key.length === 1 && key !== " ") || (target.type === "checkbox" && /^Arrow/.test(key));
  if (!unused) return;
  event.stopImmediatePropagation();
  document.body.dispatchEvent(new KeyboardEvent("keydown", event));
};

function letShortcutsAnswer() {
  document.addEventListener("click", release, true); // in the capture phase, since Streamlit's controls stop the event
  document.addEventListener("keydown", passOn, true);
  return () => {
    document.removeEventListener("click", release, true);
    document.removeEventListener("keydown", passOn, true);
  };
}
