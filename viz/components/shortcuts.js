// Streamlit's shortcuts do not work while a toggle, a radio or a slider has the focus: release it after a click by
// mouse, finger or Space. Put before the modules that use it; the returned function ends it.

const SILENT = "input[type=checkbox], input[type=radio], input[type=range], [role=radio]";

const release = () => setTimeout(() => {
  if (document.activeElement?.matches(SILENT)) document.activeElement.blur();
});

function letShortcutsAnswer() {
  document.addEventListener("click", release, true); // in the capture phase, since Streamlit's controls stop the event
  return () => document.removeEventListener("click", release, true);
}
