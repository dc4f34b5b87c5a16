// A picture, its patches and its caption: a word lights the patches that it attends to, a patch the words that attend to it.
// Packet: see viz/images.py; the planes are weights float32 [heads, words, patches], the mean of all heads first, and what blocks
// each patch for each word, uint8 [words, patches], 0 for nothing. onPick("word", n), onPick("head", n) tell what was chosen,
// onPick("spot", [x, y]) a point of the picture, in thousandths of its width and height.

const VEIL = 0.8; // the opacity over a patch of weight 0
const PARTS = `
  <div class="caption" role="group" data-label="caption"></div>
  <canvas tabindex="0" role="application"></canvas>
  <p class="why" aria-live="polite"></p>
  <div class="every" role="group" data-label="every"></div>
`;

// The weights of a head on every patch: of one word, or the mean over all.
function weightsOf(self, head, word) {
  const { page, weights } = self;
  const [words, patches] = [page.caption.length, page.boxes.length];
  const of = (one) => weights.subarray((head * words + one) * patches, (head * words + one + 1) * patches);
  if (word !== null) return of(word);
  return Float32Array.from({ length: patches }, (_, patch) => page.caption.reduce((sum, _, one) => sum + of(one)[patch], 0) / Math.max(words, 1));
}

// The word that lights the patches: the one pointed at, or the one that stays lit.
const shownWord = ({ pointed, page }) => pointed ?? (page.word < 0 ? null : page.word);
const blockedOf = (self, word, patch) => (word === null ? 0 : self.blocked[word * self.page.boxes.length + patch]);

// A patch's place on a canvas of so many pixels.
const placeOfPatch = ([left, top, right, bottom], wide, tall) => [left * wide, top * tall, (right - left) * wide, (bottom - top) * tall];

// The picture under a veil that is thin where the weight is large; plain where nothing is asked.
function paintPicture(pen, self, wide, tall, weights, word) {
  const { page, image } = self;
  pen.imageSmoothingEnabled = page.smooth;
  pen.drawImage(image, 0, 0, wide, tall);
  const most = weights ? Math.max(...weights) || 1 : 1;
  page.boxes.forEach((box, patch) => {
    const place = placeOfPatch(box, wide, tall);
    const why = page.removed.includes(patch) ? page.hatches.length : blockedOf(self, word, patch);
    pen.fillStyle = `rgba(16, 18, 24, ${weights ? VEIL * (1 - Math.sqrt(weights[patch] / most)) : 0})`;
    pen.fillRect(...place);
    if (!why) return;
    pen.fillStyle = hatching(pen, [page.hatches[why - 1]], "rgba(128, 132, 142, .55)");
    pen.fillRect(...place);
  });
}

function repaint(canvas, self) {
  const { page, image } = self;
  if (!image.naturalWidth) return;
  const wide = canvas.clientWidth || 320;
  const tall = (wide * image.naturalHeight) / image.naturalWidth;
  canvas.style.height = `${tall}px`;
  const pen = copy(canvas, sheet(wide, tall));
  const word = shownWord(self);
  paintPicture(pen, self, wide, tall, word === null ? null : weightsOf(self, page.head, word), word);
  if (self.patch !== null) {
    const [x, y, across, down] = placeOfPatch(page.boxes[self.patch], wide, tall);
    frame(pen, "#000", 4, x + 2, y + 2, across - 4, down - 4);
    frame(pen, "#fff", 2, x + 2, y + 2, across - 4, down - 4);
  }
}

// What is pointed at, in words; and the words of the caption in the light of the patch that is.
function tell(root, self) {
  const { page, patch } = self;
  const word = shownWord(self);
  const asked = patch === null ? null : page.caption.map((_, one) => weightsOf(self, page.head, one)[patch]);
  const most = asked ? Math.max(...asked, 1e-9) : 1;
  root.querySelectorAll(".caption button").forEach((button, one) => {
    button.style.setProperty("--light", asked ? Math.sqrt(asked[one] / most) : 0);
    button.setAttribute("aria-pressed", one === page.word);
  });
  const said = { head: page.heads[page.head].name };
  let sentence = page.hint;
  if (patch !== null && page.caption.length) {
    const order = asked.map((_, one) => one).sort((one, other) => asked[other] - asked[one]).slice(0, 3);
    said.words = order.map((one) => `${page.caption[one]} ${percent(asked[one])}`).join(page.words.comma);
    sentence = fill(page.words.patch, { ...said, patch: page.names[patch] });
  } else if (word !== null) {
    const weights = weightsOf(self, page.head, word);
    const best = weights.indexOf(Math.max(...weights));
    const share = weights.reduce((sum, weight) => sum + weight, 0);
    sentence = fill(page.words.word, { ...said, word: page.caption[word], chance: page.chances[word], share: percent(share),
                                       patch: page.names[best], most: percent(weights[best]) });
  }
  root.querySelector(".why").textContent = sentence;
}

// The buttons: one a word, and one a head with its small picture. Their elements stay where only their numbers change.
function furnish(root, self, show) {
  const { page } = self;
  const caption = root.querySelector(".caption");
  const words = page.caption.join(" ");
  if (caption.dataset.words !== words || caption.childElementCount !== page.caption.length) {
    caption.dataset.words = words;
    caption.replaceChildren(...page.caption.map((text, one) => {
      const button = make("button", { type: "button", text, style: `animation-delay: ${one * 60}ms` });
      const point = (on) => () => { self.pointed = on ? one : null; show(); };
      Object.assign(button, { onpointerenter: point(true), onpointerleave: point(false), onfocus: point(true), onblur: point(false) });
      button.onclick = () => self.pick("word", one);
      return button;
    }));
  }
  caption.querySelectorAll("button").forEach((button, one) => button.classList.toggle("other", page.changed[one]));
  const every = root.querySelector(".every");
  if (every.childElementCount !== page.heads.length) {
    every.replaceChildren(...page.heads.map((_, head) => {
      const button = make("button", { type: "button", children: [make("canvas", { "aria-hidden": "true" }), make("span"), make("small")] });
      button.onclick = () => self.pick("head", head);
      return button;
    }));
  }
}

function showHeads(root, self) {
  const { page, image } = self;
  const word = shownWord(self);
  root.querySelectorAll(".every button").forEach((button, place) => {
    const head = page.order[place];
    const [canvas, name, share] = button.children;
    button.onclick = () => self.pick("head", head);
    button.setAttribute("aria-pressed", head === page.head);
    [name.textContent, share.textContent] = [page.heads[head].name, page.heads[head].share];
    const tall = (72 * image.naturalHeight) / image.naturalWidth;
    canvas.style.height = `${tall}px`;
    paintPicture(copy(canvas, sheet(72, tall)), self, 72, tall, weightsOf(self, head, word), word);
  });
}

// Lives as long as the canvas.
function viewer(canvas, root) {
  const self = { page: null, image: new Image(), weights: null, blocked: null, pointed: null, patch: null, pick: null };
  const show = () => {
    if (!self.page || !self.image.naturalWidth) return;
    repaint(canvas, self);
    tell(root, self);
    showHeads(root, self);
  };
  const spot = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  const patchAt = ([x, y]) => {
    const found = self.page.boxes.findIndex(([left, top, right, bottom]) => x >= left && x < right && y >= top && y < bottom);
    return found < 0 ? null : found;
  };
  const send = ([x, y]) => self.page.mode !== "look" && self.pick("spot", [x, y].map((one) => Math.floor(Math.min(Math.max(one, 0), 0.999) * 1000)));
  canvas.onpointermove = canvas.onpointerdown = (event) => {
    if (!self.page) return;
    const patch = patchAt(spot(event));
    if (patch === self.patch) return;
    self.patch = patch;
    show();
  };
  canvas.onpointerleave = (event) => {
    if (event.pointerType === "touch") return; // what was touched stays lit
    self.patch = null;
    show();
  };
  canvas.onblur = () => { self.patch = null; show(); };
  canvas.onclick = (event) => self.page && send(spot(event));
  canvas.onkeydown = (event) => {
    if (!self.page) return;
    const { grid, boxes } = self.page;
    if (event.key in STEPS) {
      const at = self.patch ?? 0;
      const [row, column] = self.patch === null ? [0, 0] : stepped(event.key, Math.floor(at / grid), at % grid, boxes.length / grid, grid);
      self.patch = row * grid + column;
    } else if (isPress(event) && self.patch !== null) {
      const [left, top, right, bottom] = boxes[self.patch];
      send([(left + right) / 2, (top + bottom) / 2]);
    } else return;
    event.preventDefault();
    show();
  };
  self.show = show;
  self.take = ({ header, body }) => {
    self.page = header;
    const count = 4 * header.heads.length * header.caption.length * header.boxes.length;
    self.weights = new Float32Array(body.slice(0, count).buffer);
    self.blocked = body.slice(count);
    if (self.pointed !== null && self.pointed >= header.caption.length) self.pointed = null;
    canvas.setAttribute("aria-label", header.alt);
    furnish(root, self, show);
    self.image.onload = show;
    if (self.image.src !== header.picture) self.image.src = header.picture;
    show();
  };
  return self;
}

export function draw(element, data, onPick) {
  const canvas = furnished(element, data, PARTS);
  canvas.viewer ||= viewer(canvas, element);
  canvas.viewer.pick = onPick;
  return receiveSized(canvas, data, canvas.viewer.take, canvas.viewer.show);
}
