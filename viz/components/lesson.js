// Keys of a lesson that Streamlit's buttons do not support, and the window's width for the server. It draws nothing.
// Page Down and Space: next step; Page Up and Shift+Space: previous step; Escape: end of the presentation. Put after
// calls.js and shortcuts.js.

const KEYS = { PageDown: "next", PageUp: "previous", " ": "next", Escape: "present" };
const TYPED = "input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable=true]";
const PRESSED = "button, a, input, summary"; // Space presses what has the focus
const NARROW = 640; // pixels, as in viz/lessons/screen.py

function listen({ data, setTriggerValue }) {
  const key = (event) => {
    const [target] = event.composedPath(); // also within a view, whose shadow root hides it from event.target
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || target.closest?.(TYPED)) return;
    const main = document.querySelector(data.main);
    if (!data.presented && (event.key === "Escape" || main?.scrollHeight > main?.clientHeight)) return;
    if (event.key === " " && target.closest?.(PRESSED)) return;
    if (event.key === "Escape" && document.querySelector(":popover-open, [role=dialog]")) return;
    const name = event.key === " " && event.shiftKey ? "previous" : KEYS[event.key];
    const button = name && document.querySelector(`.st-key-${name} button:not([disabled])`);
    if (!button) return;
    event.preventDefault();
    button.click();
  };
  const behind = (event) => {
    const answered = ["Escape", "Tab", "Enter"].includes(event.key) || (event.key === " " && event.target.closest?.(PRESSED));
    if (document.querySelector("[role=dialog] .qr") && !answered) event.stopImmediatePropagation(); // Streamlit's shortcuts included
  };
  const tell = () => {
    const other = innerWidth <= NARROW !== data.width <= NARROW;
    if (other || (data.presented && Math.abs(innerWidth - data.width) > 20)) setTriggerValue("width", innerWidth);
  };
  let later;
  const resized = () => {
    clearTimeout(later);
    later = setTimeout(tell, 300);
  };
  tell();
  document.addEventListener("keydown", key);
  addEventListener("keydown", behind, true); // in the capture phase, before all other listeners
  const endShortcuts = letShortcutsAnswer();
  addEventListener("resize", resized);
  return () => {
    clearTimeout(later);
    document.removeEventListener("keydown", key);
    removeEventListener("keydown", behind, true);
    endShortcuts();
    removeEventListener("resize", resized);
  };
}

export default unlessEnded((given) => {
  const { parentElement } = given;
  parentElement.end?.(); // the previous call, which has another width and perhaps another presentation state
  return (parentElement.end = listen(given));
});
