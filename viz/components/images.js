// A picture, its patches and its caption: words highlight the patches they attend to; patches, the words that attend.
// Packet: see viz/images.py. Planes: weights float32 [heads, words + 1, patches], the mean of all heads first, the mean
// of all words last; and each patch's hatching for each word, uint8 [words + 1, patches], 0 for none. relative: weights
// are multiples. onPick("word", n), ("head", n), ("patch", n), ("spot", [x, y]): a point in thousandths of the sides.

const VEIL = 0.8; // the opacity of the shade over a patch of weight 0
const PARTS = `
  <div class="caption" role="group" data-label="caption"></div>
  <canvas tabindex="0" role="application"></canvas>
  <p class="why" aria-live="polite"></p>
  <div class="every" role="group" data-label="every"></div>
`;

// Draw the picture under a shade that is thin where the weight is large; without weights, there is no shade.
function paintPicture(canvas, { page, image, blocked }, wide, weights, word) {
  const tall = (wide * image.naturalHeight) / image.naturalWidth;
  const pen = copy(canvas, sheet(wide, tall));
  pen.imageSmoothingEnabled = page.smooth;
  pen.drawImage(image, 0, 0, wide, tall);
  const largest = weights ? Math.max(...weights) || 1 : 1;
  const rectangles = page.boxes.map(([left, top, right, bottom]) => [left * wide, top * tall, (right - left) * wide, (bottom - top) * tall]);
  rectangles.forEach((rectangle, patch) => {
    pen.fillStyle = `rgba(16, 18, 24, ${weights ? VEIL * (1 - Math.sqrt(weights[patch] / largest)) : 0})`;
    pen.fillRect(...rectangle);
    const why = blocked[word * page.boxes.length + patch];
    if (why) {
      pen.fillStyle = hatching(pen, [page.hatches[why - 1]], "rgba(128, 132, 142, .55)");
      pen.fillRect(...rectangle);
    }
  });
  return (patch) => [["#000", 4], ["#fff", 2]].forEach(([colour, line]) => {
    const [x, y, across, down] = rectangles[patch];
    frame(pen, colour, line, x + line / 2, y + line / 2, across - line, down - line);
  });
}

// Return `count` buttons in the root; existing ones are reused, so that they keep their focus.
function buttons(root, count, made) {
  while (root.childElementCount > count) root.lastChild.remove();
  while (root.childElementCount < count) root.append(made(root.childElementCount));
  return [...root.children];
}

// The state of a canvas, kept between packets.
function viewer(canvas, root) {
  const self = { page: null, image: new Image(), weights: null, blocked: null, pointed: null, patch: null, pick: null };
  const [caption, why, every] = [".caption", ".why", ".every"].map((part) => root.querySelector(part));
  const weightsOf = (head, word) => {
    const { boxes, caption } = self.page;
    const first = (head * (caption.length + 1) + word) * boxes.length;
    return self.weights.subarray(first, first + boxes.length);
  };
  const sentence = (word, patchWeights) => {
    const { page, patch } = self;
    const amount = page.relative ? (times) => `${times.toFixed(1)}×` : percent;
    const said = { head: page.heads[page.head].name };
    if (patchWeights) {
      const order = patchWeights.map((_, one) => one).sort((one, other) => patchWeights[other] - patchWeights[one]).slice(0, 3);
      const words = order.map((one) => `${page.caption[one]} ${amount(patchWeights[one])}`).join(page.words.comma);
      return fill(page.words.patch, { ...said, patch: page.names[patch], words });
    }
    if (word === page.caption.length) return page.hint;
    const weights = weightsOf(page.head, word), count = page.boxes.length;
    if (count && self.blocked.subarray(word * count, (word + 1) * count).every(Boolean)) return fill(page.words.masked, { ...said, word: page.caption[word] });
    const best = weights.indexOf(Math.max(...weights));
    if (page.itself && word === 0) return fill(page.itself, { word: page.caption[word], chance: page.chances[word] });
    const share = percent(weights.reduce((sum, weight) => sum + weight, 0));
    return fill(page.words.word, { ...said, word: page.caption[word], chance: page.chances[word], share, patch: page.names[best], most: amount(weights[best]) });
  };
  const show = () => {
    const { page, image, patch } = self;
    if (!page || !image.naturalWidth) return;
    const word = self.pointed ?? page.word;
    const wordWeights = word < page.caption.length ? weightsOf(page.head, word) : null;
    const framePatch = paintPicture(canvas, self, canvas.clientWidth || 320, wordWeights, word);
    if (patch !== null) framePatch(patch);
    const patchWeights = patch === null || !page.caption.length ? null : page.caption.map((_, one) => weightsOf(page.head, one)[patch]);
    why.textContent = sentence(word, patchWeights);
    buttons(caption, page.caption.length, wordButton).forEach((button, number) => {
      button.textContent = page.caption[number];
      button.classList.toggle("other", page.changed[number]);
      button.setAttribute("aria-pressed", number === page.word);
      button.style.setProperty("--light", patchWeights ? Math.sqrt(patchWeights[number] / Math.max(...patchWeights, 1e-9)) : 0);
    });
    buttons(every, page.order.length > 1 ? page.order.length : 0, headButton).forEach((button, index) => {
      const head = page.order[index];
      button.setAttribute("aria-pressed", head === page.head);
      [button.children[1].textContent, button.children[2].textContent] = [page.heads[head].name, page.heads[head].share];
      paintPicture(button.firstChild, self, 72, weightsOf(head, word), word);
    });
  };
  const wordButton = (number) => {
    const button = make("button", { type: "button", style: `animation-delay: ${number * 60}ms` });
    const point = (word) => () => { self.pointed = word; show(); };
    return Object.assign(button, { onpointerenter: point(number), onfocus: point(number), onpointerleave: point(null), onblur: point(null),
                                   onclick: () => self.pick("word", number) });
  };
  const headButton = (index) => {
    const button = make("button", { type: "button", children: [make("canvas", { "aria-hidden": "true" }), make("span"), make("small")] });
    return Object.assign(button, { onclick: () => self.pick("head", self.page.order[index]) });
  };
  const spot = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  const at = (patch) => {
    if (patch !== self.patch) { self.patch = patch; show(); }
  };
  const send = (point) => {
    if (self.page.mode === "place") self.pick("spot", point.map((share) => Math.floor(Math.min(Math.max(share, 0), 0.999) * 1000)));
    if (self.page.mode === "remove" && self.patch !== null) self.pick("patch", self.patch);
  };
  canvas.onpointermove = canvas.onpointerdown = (event) => {
    const [x, y] = spot(event);
    const found = self.page ? self.page.boxes.findIndex(([left, top, right, bottom]) => x >= left && x < right && y >= top && y < bottom) : -1;
    at(found < 0 ? null : found);
  };
  canvas.onpointerleave = ({ pointerType }) => pointerType === "touch" || at(null); // a touch keeps its highlight
  canvas.onblur = () => at(null);
  canvas.onclick = (event) => send(spot(event));
  canvas.onkeydown = (event) => {
    if (isShortcut(event)) return;
    const boxes = self.page?.boxes ?? [];
    const wide = boxes.filter(([, top]) => top === boxes[0][1]).length;
    if (event.key in STEPS && wide) {
      const [row, column] = self.patch === null ? [0, 0] : stepped(event.key, Math.floor(self.patch / wide), self.patch % wide, Math.ceil(boxes.length / wide), wide);
      at(Math.min(row * wide + column, boxes.length - 1));
    } else if (isPress(event) && self.patch !== null) {
      const [left, top, right, bottom] = self.page.boxes[self.patch];
      send([(left + right) / 2, (top + bottom) / 2]);
    } else return;
    event.preventDefault();
  };
  self.take = ({ header, body }) => {
    const count = 4 * header.heads.length * (header.caption.length + 1) * header.boxes.length;
    Object.assign(self, { page: header, weights: new Float32Array(body.slice(0, count).buffer), blocked: body.slice(count), pointed: null });
    if (self.patch >= header.boxes.length) self.patch = null; // it belongs to a picture with more patches
    canvas.setAttribute("aria-label", header.alt);
    self.image.onload = show;
    if (self.image.src !== header.picture) self.image.src = header.picture;
    show();
  };
  return Object.assign(self, { show });
}

export function draw(element, data, onPick) {
  const canvas = ensureParts(element, data, PARTS);
  canvas.viewer ||= viewer(canvas, element);
  canvas.viewer.pick = onPick;
  return receiveSized(canvas, data, canvas.viewer.take, canvas.viewer.show);
}
