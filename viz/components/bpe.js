// Byte-level byte-pair encoding, as in GPT-2 (Radford et al. 2019). A tokenizer: {vocabulary, merges, start, context}
// of viz/saved/live.py, with each byte of a token written as a visible character of ALPHABET.

// White space is spelled out: JavaScript's \s has U+FEFF but not U+0085, unlike Unicode's White_Space.
const WORDS = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;
const CHARACTERS_TRIED = 64; // most characters read for each position of the context

// The character that stands for each byte: itself where it is visible, else those from U+0100 on.
const ALPHABET = (() => {
  let others = 256;
  const visible = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(visible(byte) ? byte : others++));
})();

function readTokenizer(about) {
  const ids = new Map(about.vocabulary.map((token, id) => [token, id]));
  const ranks = new Map(about.merges.map((pair, rank) => [pair, rank]));
  return { ...about, ids, ranks };
}

// Merge adjacent symbols, the pair of the lowest rank first, the leftmost of equal ones.
function merged(symbols, ranks) {
  const parts = [...symbols];
  const rankAt = (at) => ranks.get(`${parts[at]} ${parts[at + 1]}`) ?? Infinity;
  const pairs = parts.slice(1).map((_, at) => rankAt(at));
  for (;;) {
    let at = 0;
    for (let other = 1; other < pairs.length; other++) if (pairs[other] < pairs[at]) at = other;
    if (!pairs.length || pairs[at] === Infinity) return parts;
    parts.splice(at, 2, parts[at] + parts[at + 1]);
    pairs.splice(at, 1);
    if (at > 0) pairs[at - 1] = rankAt(at - 1);
    if (at < pairs.length) pairs[at] = rankAt(at);
  }
}

// Encode a text: as many ids as fit into the context, the end of each token in the text, and the text that did not fit.
function encode(tokenizer, given) {
  const most = tokenizer.context - tokenizer.start.length;
  const whole = given.replace(/\p{Surrogate}/gu, "?"); // unpaired surrogates
  const text = whole.slice(0, CHARACTERS_TRIED * most);
  const encoder = new TextEncoder();
  const known = new Map();
  const [ids, ends] = [[...tokenizer.start], tokenizer.start.map(() => 0)];
  let at = 0;
  for (const [word] of text.matchAll(WORDS)) {
    const characterEnds = [...word].flatMap((character) => {
      at += character.length;
      return Array(encoder.encode(character).length).fill(at);
    });
    if (!known.has(word)) known.set(word, merged(Array.from(encoder.encode(word), (byte) => ALPHABET[byte]), tokenizer.ranks));
    let bytes = 0;
    for (const token of known.get(word)) {
      bytes += token.length;
      if (ids.length === tokenizer.context) return { ids, ends, text: whole, cut: whole.slice(ends.at(-1)) };
      ids.push(tokenizer.ids.get(token));
      ends.push(characterEnds[bytes - 1]);
    }
  }
  return { ids, ends, text: whole, cut: whole.slice(text.length) };
}
