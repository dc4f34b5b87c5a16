// A Transformer in GPT-2's layout, computed as model/transformer.py does it: T tokens, W width, H heads, D = W / H,
// V vocabulary. Vectors of tokens lie one after another in Float32Arrays; a linear layer's weight is [outputs, inputs].

// Convert little-endian float16 to float32. report(share) is called with the share done, 0 to 1, and awaited.
async function fromHalves(halves, report) {
  const values = Float32Array.from({ length: 65536 }, (_, bits) => {
    const [exponent, fraction] = [(bits >> 10) & 31, (bits & 1023) / 1024];
    const size = exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction;
    return bits & 0x8000 ? -size : size;
  });
  const numbers = new Float32Array(halves.length);
  for (let at = 0; at < halves.length; at++) {
    numbers[at] = values[halves[at]];
    if (at % 1e6 === 0) await report(at / halves.length);
  }
  return numbers;
}

// Read the network from its parameters, which come in the order of model/gpt2.py.
function readNetwork(config, numbers) {
  const { vocabulary, context, layers, width, mlpWidth, tied } = config;
  let at = 0;
  const take = (count) => numbers.subarray(at, (at += count));
  const read = (shapes) => { // all weights, then all biases
    const parts = shapes.map(([name, inputs, outputs]) => [name, { inputs, outputs, weight: take(inputs * outputs) }]);
    for (const [, part] of parts) part.bias = take(part.outputs);
    return Object.fromEntries(parts);
  };
  const tokens = take(vocabulary * width);
  const positions = take(context * width);
  const blocks = Array.from({ length: layers }, () => read([
    ["attentionNorm", 1, width], ["query", width, width], ["key", width, width], ["value", width, width],
    ["output", width, width], ["mlpNorm", 1, width], ["mlpIn", width, mlpWidth], ["mlpOut", mlpWidth, width],
  ]));
  const { norm } = read([["norm", 1, width]]);
  const weight = tied ? tokens : take(vocabulary * width);
  if (at !== numbers.length) throw new Error(`expected ${at} parameters, got ${numbers.length}`);
  const unembedding = { inputs: width, outputs: vocabulary, weight, bias: new Float32Array(vocabulary) };
  return { ...config, tokens, positions, blocks, norm, unembedding };
}

// x [rows, inputs] -> [rows, outputs], two columns of four rows at a time, to use each number read at least twice.
function linear(x, rows, { weight, bias, inputs, outputs }, first = 0, last = outputs, out = new Float32Array(rows * outputs)) {
  for (let column = first; column < last; column += 2) {
    const other = Math.min(column + 1, last - 1);
    const [one, two] = [column * inputs, other * inputs];
    for (let row = 0; row < rows; row += 4) {
      const [r1, r2, r3] = [Math.min(row + 1, rows - 1), Math.min(row + 2, rows - 1), Math.min(row + 3, rows - 1)];
      const [a, b, c, d] = [row * inputs, r1 * inputs, r2 * inputs, r3 * inputs];
      let [a1, b1, c1, d1] = [bias[column], bias[column], bias[column], bias[column]];
      let [a2, b2, c2, d2] = [bias[other], bias[other], bias[other], bias[other]];
      for (let i = 0; i < inputs; i++) {
        const u = weight[one + i];
        const v = weight[two + i];
        const xa = x[a + i];
        const xb = x[b + i];
        const xc = x[c + i];
        const xd = x[d + i];
        a1 += xa * u; b1 += xb * u; c1 += xc * u; d1 += xd * u;
        a2 += xa * v; b2 += xb * v; c2 += xc * v; d2 += xd * v;
      }
      const [toA, toB, toC, toD] = [row * outputs, r1 * outputs, r2 * outputs, r3 * outputs];
      out[toA + column] = a1; out[toB + column] = b1; out[toC + column] = c1; out[toD + column] = d1;
      out[toA + other] = a2; out[toB + other] = b2; out[toC + other] = c2; out[toD + other] = d2;
    }
  }
  return out;
}

function layerNorm(x, rows, { weight, bias, outputs }, epsilon) {
  const out = new Float32Array(x.length);
  for (let row = 0; row < rows; row++) {
    const here = x.subarray(row * outputs, (row + 1) * outputs);
    let [mean, variance] = [0, 0];
    for (const value of here) mean += value / outputs;
    for (const value of here) variance += (value - mean) ** 2 / outputs;
    const scale = 1 / Math.sqrt(variance + epsilon);
    for (let i = 0; i < outputs; i++) out[row * outputs + i] = (here[i] - mean) * scale * weight[i] + bias[i];
  }
  return out;
}

// GPT-2's GELU, in its tanh form; in place.
function gelu(x) {
  for (let i = 0; i < x.length; i++) x[i] *= 0.5 * (1 + Math.tanh(0.7978845608028654 * (x[i] + 0.044715 * x[i] * x[i] * x[i])));
  return x;
}

// softmax(q·k / √D) over the cells that are allowed, into weights [H, T, T]; a row without any keeps weights 0.
function attentionWeights(q, k, heads, allowed, weights) {
  const rows = Math.sqrt(allowed.length);
  const width = q.length / rows;
  const [size, scale] = [width / heads, 1 / Math.sqrt(width / heads)];
  for (let head = 0; head < heads; head++) {
    for (let query = 0; query < rows; query++) {
      const row = weights.subarray((head * rows + query) * rows, (head * rows + query + 1) * rows);
      const [from, mask] = [query * width + head * size, query * rows];
      let [most, sum] = [-Infinity, 0];
      for (let key = 0; key < rows; key++) {
        if (!allowed[mask + key]) continue;
        let score = 0;
        for (let i = 0, to = key * width + head * size; i < size; i++) score += q[from + i] * k[to + i];
        row[key] = score * scale;
        if (row[key] > most) most = row[key];
      }
      for (let key = 0; key < rows; key++) if (allowed[mask + key]) sum += row[key] = Math.exp(row[key] - most);
      for (let key = 0; sum && key < rows; key++) row[key] /= sum;
    }
  }
  return weights;
}

// The heads' outputs [T, W]: each row's weighted sum of v.
function attended(weights, v, heads, rows) {
  const out = new Float32Array(v.length);
  const width = v.length / rows;
  const size = width / heads;
  for (let head = 0; head < heads; head++) {
    for (let query = 0; query < rows; query++) {
      const to = query * width + head * size;
      for (let key = 0; key < rows; key++) {
        const weight = weights[(head * rows + query) * rows + key];
        for (let i = 0, from = key * width + head * size; weight && i < size; i++) out[to + i] += weight * v[from + i];
      }
    }
  }
  return out;
}

function add(x, more) {
  for (let i = 0; i < x.length; i++) x[i] += more[i];
}

// Run the network. ids, positions: [T]; allowed: [T, T], 1 = may attend. report(share): as in fromHalves; it may throw
// to end the run. Returns every layer's q and k [T, W], weights [L, H, T, T] and logits [T, V].
async function forward(network, ids, positions, allowed, report) {
  const { width, heads, layers, epsilon, vocabulary } = network;
  const rows = ids.length;
  const x = new Float32Array(rows * width);
  for (let at = 0; at < x.length; at++) {
    const [row, i] = [Math.floor(at / width), at % width];
    x[at] = network.tokens[ids[row] * width + i] + network.positions[positions[row] * width + i];
  }
  const weights = new Float32Array(layers * heads * rows * rows);
  const queriesKeys = [];
  for (const [layer, block] of network.blocks.entries()) {
    await report(layer / (layers + 1));
    const normed = layerNorm(x, rows, block.attentionNorm, epsilon);
    const [q, k, v] = ["query", "key", "value"].map((name) => linear(normed, rows, block[name]));
    const own = attentionWeights(q, k, heads, allowed, weights.subarray(layer * heads * rows * rows, (layer + 1) * heads * rows * rows));
    add(x, linear(attended(own, v, heads, rows), rows, block.output));
    add(x, linear(gelu(linear(layerNorm(x, rows, block.mlpNorm, epsilon), rows, block.mlpIn)), rows, block.mlpOut));
    queriesKeys.push({ q, k });
  }
  const states = layerNorm(x, rows, network.norm, epsilon);
  const logits = new Float32Array(rows * vocabulary);
  for (let first = 0; first < vocabulary; first += 4096) {
    await report((layers + first / vocabulary) / (layers + 1));
    linear(states, rows, network.unembedding, first, Math.min(first + 4096, vocabulary), logits);
  }
  return { queriesKeys, weights, logits };
}
