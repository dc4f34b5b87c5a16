// The model of a page without a server, and its public API, window.unmask. Put after gpt2.js, bpe.js and mask_rules.js.

const { header: about } = await unpack(inlined("about"));
const ready = (one) => ({ ...one, tokenizer: readTokenizer(one.tokenizer) });
let model = about.model && ready(about.model); // the model that reads the page's text
const CANDIDATES = 10; // likeliest next tokens that a run returns

const worker = new Worker(URL.createObjectURL(new Blob([document.getElementById("worker").textContent], { type: "text/javascript" })));
const pending = new Map(); // requests that the worker has not answered, by number
let questions = 0;
worker.onmessage = ({ data: { id, share, answer, error } }) => {
  const { resolve, reject, report } = pending.get(id);
  if (share !== undefined) return report?.(share);
  pending.delete(id);
  if (error) reject(error === "cancelled" ? new DOMException(error, "AbortError") : new Error(error));
  else resolve(answer);
};
worker.onerror = ({ message }) => {
  for (const { reject } of pending.values()) reject(new Error(message || "the worker could not be started"));
  pending.clear();
};

// Send a request to the worker. report(share): called with the share done, 0 to 1. signal: an AbortSignal, which
// cancels the request by an AbortError.
function ask(question, { report, signal } = {}) {
  return new Promise((resolve, reject) => {
    const id = ++questions;
    if (signal?.aborted) return reject(new DOMException("cancelled", "AbortError"));
    signal?.addEventListener("abort", () => pending.has(id) && worker.postMessage({ id, what: "cancel" }));
    pending.set(id, { resolve, reject, report });
    worker.postMessage({ id, ...question });
  });
}

// Load a model. parameters: float16 numbers as {bytes} or {base64}. key: distinguishes several models.
const load = ({ key, config }, parameters, report) => ask({ what: "load", key, config, ...parameters }, { report });

// Return one of several texts, padded to the longest, as model input: ids, positions counted over real tokens, keep
// (true for real tokens), indices (index among real tokens, -1 at padding), labels, tokens' ends in the text, the model.
function readRow(texts, number, side = "left", by = model) {
  const { tokenizer, labels } = by;
  const rows = texts.map((text) => encode(tokenizer, text));
  const row = rows[number];
  const padding = Math.max(...rows.map(({ ids }) => ids.length)) - row.ids.length;
  const padded = (values, before, after) =>
    side === "left" ? [...Array(padding).fill(before), ...values] : [...values, ...Array(padding).fill(after)];
  const indices = padded(row.ids.map((_, at) => at), -1, -1);
  const ids = padded(row.ids, tokenizer.pad, tokenizer.pad);
  return {
    ids,
    indices,
    positions: padded(row.ids.map((_, at) => at), 0, row.ids.length - 1),
    keep: indices.map((at) => at >= 0),
    labels: padded(row.ids.map((id) => labels[id]), "<pad>", "<pad>"), // as in model/text.py, whatever the padding id
    model: by,
    ends: padded(row.ends, 0, row.ends.at(-1)),
    text: row.text,
    cut: row.cut,
  };
}

function run({ ids, positions, keep, model: { key } }, { allowed }, how) {
  return ask({ what: "run", key, ids, positions, keep, allowed, most: CANDIDATES }, how);
}

// Return a copy of a run with one layer's weights recomputed from its queries and keys under other masks.
function withLayer(standard, layer, { allowed }) {
  const { heads, layers } = model.config;
  const weights = standard.weights.slice();
  const size = weights.length / layers;
  const { q, k } = standard.queriesKeys[layer];
  attentionWeights(q, k, heads, allowed, weights.subarray(layer * size, (layer + 1) * size).fill(0));
  return { ...standard, weights };
}

// await unmask.run(text, {causal: false}): run a text under these masks, named as in MaskSpec; other masks are as the
// model was trained. weights: Float32Array [layers, heads, T, T], rows are queries; losses [T] in nats; logits [T, V].
// encode(text): its ids, the end of each in the text, and the text that did not fit.
window.unmask = {
  encode: (text) => encode(model.tokenizer, text),
  async run(text, masks = {}, { signal } = {}) {
    if (typeof text !== "string" || !text) throw new Error("expected a text");
    const row = readRow([text], 0);
    const { weights, losses, logits } = await run(row, composed(readSpec(masks, model.standard), row), { signal });
    const { layers, heads } = model.config;
    return { ids: row.ids, tokens: row.labels, layers, heads, weights, losses, logits };
  },
};
