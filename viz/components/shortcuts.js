// Streamlit's shortcuts are silent while a toggle, a radio or a slider has the focus: after a click on one by mouse, finger
// or Space the focus is let go. Put before what uses it; what is returned ends it.

const SILENT = "input[type=checkbox], input[type=radio], input[type=range], [role=radio]";

const release = () => setTimeout(() => {
  if (document.activeElement?.matches(SILENT)) document.activeElement.blur();
});

function letShortcutsAnswer() {
  document.addEventListener("click", release, true); // while it is caught: Streamlit's controls end it
  return () => document.removeEventListener("click", release, true);
}
