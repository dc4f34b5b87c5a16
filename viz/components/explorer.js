// All heads on one page: the overview, and the selected head as a heatmap and on its text. Put last, after packet.js,
// page.js and the views' modules. Packets: "overview" of viz/heads/overview.py, "heads" of viz/saved/explorer.py.

const { header: about, body } = await unpack(inlined("heads"));
const part = (name) => document.querySelector(`[data-part="${name}"]`);
const cells = about.queries.length * about.keys.length;
const state = { query: about.query, pins: [], towards: "at" };

// Return one head's bytes as the views read them: float32 numbers, then which reason blocks each cell.
function headOf(number) {
  const { plane, most, brightest, note } = about.held[number];
  const held = about.held.length;
  const [high, low] = [number, held + number].map((plane) => body.subarray(plane * cells, (plane + 1) * cells));
  const blocked = body.subarray(2 * (held + plane) * cells, 2 * (held + plane + 1) * cells); // two bytes for each cell
  const weights = Float32Array.from(high, (byte, at) => (256 * byte + low[at] - about.shift) / 10000);
  const planes = new Uint8Array(6 * cells);
  planes.set(new Uint8Array(weights.buffer));
  planes.set(blocked, 4 * cells);
  return { most, brightest, note, planes };
}

function choose(layer, head) {
  const name = about.names[layer][head];
  const number = about.held.findIndex((held) => held.head[0] === layer && held.head[1] === head);
  const absent = number < 0;
  part("name").textContent = absent ? about.absent.replace("{}", name) : name;
  for (const view of about.views) part(view).hidden = absent;
  for (const button of part("chosen").children) button.setAttribute("aria-pressed", String(button.textContent === name));
  const { planes, note, ...range } = absent ? { note: "" } : headOf(number);
  part("note").textContent = note;
  if (absent) return;
  const onChoice = (what, value) => {
    state[what] = what === "pins" ? value.split(",").filter(Boolean).map(Number) : value;
    if (what === "query") draw();
  };
  const draw = () => {
    const header = { ...about, ...state, name, ...range };
    for (const view of about.views) globalThis.canvases[view](part(view), { header, body: planes }, onChoice);
  };
  draw();
}

const all = await unpack(inlined("overview"));
let leave = () => {};

function overview(layer, head) {
  leave();
  const header = { ...all.header, layer, head };
  leave = globalThis.canvases.overview(part("overview"), { header, body: all.body }, (_, at) => choose(...at));
  choose(layer, head);
}

const buttons = about.chosen.map(([layer, head]) => make("button", { text: about.names[layer][head] }));
buttons.forEach((button, at) => { button.onclick = () => overview(...about.chosen[at]); });
part("chosen").replaceChildren(...buttons);
part("chosen").hidden = about.chosen.length < 2;
overview(...about.chosen[0]);
