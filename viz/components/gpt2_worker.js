// The model in a Web Worker. Put after gpt2.js. A message {id, what, …} is answered by {id, share} during the work, and
// finally by {id, answer} or {id, error}. {id, what: "cancel"} ends the request id: its error is "cancelled".

const cancelled = new Set();
const networks = new Map(); // promises of networks by their models' keys

const DO = {
  // Load a model. bytes, or base64: its parameters as float16.
  load({ key, config, bytes, base64 }, report) {
    const halves = new Uint16Array((bytes ?? decoded(base64)).buffer);
    const network = fromHalves(halves, report).then((numbers) => readNetwork(config, numbers));
    networks.set(key, network);
    return network.then(() => ({}));
  },
  // Run a model; return also the losses, and the `most` likeliest tokens after each token. keep: false for padding.
  async run({ key, ids, positions, keep, allowed, most }, report) {
    const { queriesKeys, weights, logits } = await forward(await networks.get(key), ids, positions, allowed, report);
    return { queriesKeys, weights, logits, ...predictions(logits, ids, keep, most) };
  },
};

function decoded(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  return bytes;
}

// Return losses [T] in nats, NaN for the first token and padding, and top and chances [T, most], the likeliest first.
function predictions(logits, ids, keep, most) {
  const [rows, vocabulary] = [ids.length, logits.length / ids.length];
  const losses = new Float32Array(rows).fill(NaN);
  const [top, chances] = [new Int32Array(rows * most), new Float32Array(rows * most)];
  for (let row = 0; row < rows; row++) {
    const here = logits.subarray(row * vocabulary, (row + 1) * vocabulary);
    const best = [];
    for (let token = 0; token < vocabulary; token++) {
      if (best.length === most && here[token] <= here[best[most - 1]]) continue;
      const rank = best.findIndex((other) => here[token] > here[other]);
      best.splice(rank < 0 ? best.length : rank, 0, token);
      best.length = Math.min(best.length, most);
    }
    let sum = 0;
    for (let token = 0; token < vocabulary; token++) sum += Math.exp(here[token] - here[best[0]]);
    const total = here[best[0]] + Math.log(sum);
    best.forEach((token, rank) => {
      top[row * most + rank] = token;
      chances[row * most + rank] = Math.exp(here[token] - total);
    });
    if (row + 1 < rows && keep[row] && keep[row + 1]) losses[row + 1] = total - here[ids[row + 1]];
  }
  return { losses, top, chances };
}

onmessage = async ({ data: { id, what, ...given } }) => {
  if (what === "cancel") return void cancelled.add(id);
  const report = async (share) => {
    postMessage({ id, share });
    await new Promise((go) => setTimeout(go)); // handle messages that have arrived by now
    if (cancelled.has(id)) throw new Error("cancelled");
  };
  try {
    const answer = await DO[what](given, report);
    postMessage({ id, answer }, Object.values(answer).flatMap(({ buffer }) => buffer ?? []));
  } catch (error) {
    postMessage({ id, error: error.message });
  }
  cancelled.delete(id);
};
