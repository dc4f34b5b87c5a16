// The editor of a lesson's source: a text area with line numbers, those of mistakes marked, and the mistakes below. The
// text is sent to the server after a pause in typing, with the step that the cursor is in. Put after calls.js.

const PAUSE = 500; // milliseconds without a key
const DRAFT = "unmask draft"; // key of this tab's last text in sessionStorage, since links omit long texts
const BLOCK = /^ {0,3}(`{3,}|~{3,})\s*(\w*)/; // as lessons/reading.py's FENCE

// Count the steps up to the cursor: lines with ## after the front matter and outside code blocks.
function stepAt(text, cursor) {
  let [steps, closing] = [0, ""]; // closing: the fence that ends the open block
  const lines = text.slice(0, cursor).split("\n");
  const end = lines.findIndex((line, at) => at && line.trim() === "---");
  for (const line of end < 0 ? [] : lines.slice(end)) {
    const [, fence, language] = BLOCK.exec(line) ?? [];
    if (closing) closing = fence?.startsWith(closing) && !language ? "" : closing;
    else if (fence) closing = fence;
    else if (line.startsWith("## ")) steps += 1;
  }
  return Math.max(steps, 1);
}

function build(root) {
  root.innerHTML = `
    <div class="source"><div class="lines" aria-hidden="true"></div><textarea spellcheck="false" wrap="off" autocapitalize="off"></textarea></div>
    <div class="below"><div class="problems" role="status"></div><button class="save" type="button"></button></div>`;
  const [lines, area, problems, save] = [".lines", "textarea", ".problems", ".save"].map((part) => root.querySelector(part));
  return { lines, area, problems, save, version: null, sent: "", later: 0 };
}

// Store the text or, without one, return the stored text; null if the browser stores nothing.
function storedDraft(text) {
  try {
    if (text !== undefined) sessionStorage.setItem(DRAFT, text);
    return sessionStorage.getItem(DRAFT);
  } catch {
    return null;
  }
}

// Whether the page was reloaded: its link may be older than the typed text.
function reloaded() {
  return performance.getEntriesByType("navigation")[0]?.type === "reload";
}

function number(parts, problems) {
  const wrong = new Set(problems.map(([line]) => line));
  const count = parts.area.value.split("\n").length;
  parts.lines.replaceChildren(
    ...Array.from({ length: count }, (_, index) => {
      const line = document.createElement("span");
      line.textContent = index + 1;
      line.classList.toggle("wrong", wrong.has(index + 1));
      return line;
    }),
  );
  parts.lines.scrollTop = parts.area.scrollTop;
}

// Download the text area's text; the server may not have received its last words yet.
function download(text, name) {
  const link = Object.assign(document.createElement("a"), { download: name });
  link.href = URL.createObjectURL(new Blob([text], { type: "text/markdown" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function goTo(area, line) {
  const begin = area.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1);
  const end = area.value.indexOf("\n", begin);
  area.focus();
  area.setSelectionRange(begin, end < 0 ? area.value.length : end);
  area.scrollTop = (line - 4) * (area.scrollHeight / area.value.split("\n").length);
}

function edit({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".lesson_editor");
  const parts = (root.parts ??= build(root));
  const { area, lines, problems, save } = parts;
  const send = () => {
    const step = stepAt(area.value, area.selectionStart);
    const message = JSON.stringify([area.value, step]);
    if (message === parts.sent) return;
    parts.sent = message;
    setTriggerValue("typed", { text: area.value, step });
  };
  const wait = () => {
    clearTimeout(parts.later);
    parts.later = setTimeout(send, PAUSE);
  };
  if (parts.version !== data.version) {
    area.value = (data.version === 0 || (data.version < 0 && reloaded()) ? storedDraft() : "") || data.text;
    parts.sent = JSON.stringify([data.text, data.step]);
    parts.version = data.version;
    if (data.version > 0) { // a file or a template was just loaded
      const before = storedDraft();
      if (before && before !== area.value) setTriggerValue("replaced", before);
      storedDraft(area.value);
    }
    if (area.value !== data.text) send();
  }
  area.maxLength = data.most;
  area.ariaLabel = data.label;
  number(parts, data.problems);
  problems.replaceChildren(
    ...data.problems.map(([line, words]) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: words, onclick: () => goTo(area, line) });
      return button;
    }),
  );
  if (!data.problems.length) problems.textContent = data.fine;
  save.textContent = data.save;
  save.onclick = () => download(area.value, data.file);
  area.onkeydown = (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key !== "s") return;
    event.preventDefault();
    save.click();
  };
  area.oninput = () => {
    number(parts, []);
    storedDraft(area.value);
    wait();
  };
  area.onblur = send; // sent before a click on a button
  area.onclick = area.onkeyup = wait;
  area.onscroll = () => (lines.scrollTop = area.scrollTop);
  return () => clearTimeout(parts.later);
}

export default unlessEnded(edit);
