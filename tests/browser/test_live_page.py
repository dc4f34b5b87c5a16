"""Tests of the page that contains the model (`unmask page`), as an offline file: its numbers are those of torch.

Its controls are tested in test_live_controls.py."""

import base64
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import unmask
from model import catalog
from model.heads.survey import every_weight
from model.masks import MaskContext, MaskSpec
from tests.browser.conftest import Watch
from tests.model.random_specs import random_spec
from unmask.__main__ import main
from unmask.runs import spec_of
from viz.components import source
from viz.saved.live import BROWSER_KINDS, kinds_script

WORDS = re.findall(r"\S+", "the king and his old horse went down to green wood where a wise bird sang . of snow ,")
STRANGE = [
    "naïve café",
    "日本語のテキスト",
    "😀👩‍👩‍👧‍👦🇩🇪",
    "a  b   c\t\td ",
    "\u00a0\u2003\u3000x\u0085y\ufeffz",
    "don't we'll I'M",
    "x²½Ⅷ٣",
    "<start><pad>",
]
NUMBERS = """async ([text, masks]) => {
  const found = await unmask.run(text, masks);
  const coded = (numbers) => {
    const bytes = new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
    let text = "";
    for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
    return btoa(text);
  };
  return { ...found, weights: coded(found.weights), losses: coded(found.losses), logits: coded(found.logits) };
}"""
HELD = """() => {
  const post = Worker.prototype.postMessage;
  globalThis.held = [];  // what was asked of the worker and has not reached it
  Worker.prototype.postMessage = function (...asked) { held.push(() => post.apply(this, asked)); };
  globalThis.letGo = () => {
    Worker.prototype.postMessage = post;
    held.splice(0).forEach((send) => send());
  };
  globalThis.oneIsHeld = async () => {
    while (!held.length) await new Promise(requestAnimationFrame);
  };
}"""
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "attention.html"
    assert main(["page", "-o", str(path)]) == 0
    assert path.stat().st_size < 12e6
    return path


@pytest.fixture
def open_page(browser: Browser, file: Path) -> Iterator[Open]:
    """Yield a function that opens the page offline. Afterwards: no request to a host, and no error."""
    watch, contexts = Watch(""), []

    def opened(path: Path = file, status: str = "Tokens: ", **how: Any) -> Page:
        context = browser.new_context(offline=True, **({"viewport": {"width": 1280, "height": 900}} | how))
        contexts.append(context)
        page = context.new_page()
        watch.follow(page)
        page.goto(path.as_uri())
        ready(page, status)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not watch.errors
    assert all(url.startswith(("file:", "data:", "blob:")) for url in watch.elsewhere)


def ready(page: Page, status: str = "Tokens: ") -> None:
    """Wait until the text has been run under the masks that the controls set."""
    expect(page.locator("#status")).to_contain_text(status)
    expect(page.locator("#cancel")).to_be_disabled()


def run(page: Page, text: str, masks: dict[str, Any]) -> dict[str, Any]:
    found = page.evaluate(NUMBERS, [text, masks])
    for name in ("weights", "losses", "logits"):
        found[name] = np.frombuffer(base64.b64decode(found[name]), "<f4")
    return found


def specs(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Yield masks: each kind alone, with and without the causal mask, then random combinations, without end."""
    for name, kind in BROWSER_KINDS.items():
        value = True if kind.first is None else kind.first
        yield from ({name: value}, {"causal": False, name: value})
    while True:
        spec = random_spec(chance)
        plain = {name: getattr(spec, name) for name in BROWSER_KINDS}
        yield plain | {"block_causal": chance.choice([0, 3]), "drawn": [astuple(one) for one in spec.drawn]}


def test_it_computes_what_torch_does_on_50_texts_under_all_kinds(open_page: Open) -> None:
    page, model, chance = open_page(), unmask.load("story"), random.Random(34)
    lengths, largest = set(), {"weights": 0.0, "logits": 0.0, "losses": 0.0}
    for text_number, masks in zip(range(50), specs(chance), strict=False):
        words = chance.choices(WORDS, k=chance.choice([1, 5, 20, 60])) if text_number else WORDS * 20
        text = " ".join([*words, chance.choice(STRANGE)]) if text_number != 1 else "a"
        expected, found = model.run(text, masks=masks), run(page, text, masks)
        lengths.add(len(expected.labels))
        assert found["ids"] == expected.trace.batch.ids[0].tolist()
        assert found["tokens"] == expected.labels
        assert (found["layers"], found["heads"]) == (6, 6)
        wanted = {
            "weights": every_weight(expected.trace, 0),
            "logits": expected.trace.logits[0].numpy(),
            "losses": expected.losses,
        }
        blocked = ~expected.trace.allowed(0).numpy()
        assert (found["weights"].reshape(36, *blocked.shape)[:, blocked] == 0).all()
        for name, numbers in wanted.items():
            difference = np.abs(found[name] - numbers.ravel())
            assert (np.isnan(difference) == np.isnan(numbers.ravel())).all()
            largest[name] = max(largest[name], float(np.nanmax(difference, initial=0.0)))
    assert max(lengths) == 256
    assert min(lengths) == 2  # the start token and one more
    assert largest["weights"] < 1e-4, largest
    assert max(largest["logits"], largest["losses"]) < 1e-3, largest


def lines(count: int) -> list[str]:
    """Return lines of words, code points of several blocks, emoji, white space, and one for each byte's character."""
    chance = random.Random(1)
    ranges = [
        (32, 127),
        (128, 0x24F),
        (0x370, 0x5FF),
        (0x4E00, 0x9FFF),
        (0x1F300, 0x1FAFF),
        (0x2000, 0x206F),
        (0, 32),
        (0xE000, 0xE010),
    ]
    found = [chr(byte) + " x" for byte in range(256)] + STRANGE
    while len(found) < count:
        parts = []
        for _ in range(chance.randrange(1, 8)):
            low, high = chance.choice(ranges)
            some = "".join(chr(chance.randrange(low, high)) for _ in range(chance.randrange(1, 6)))
            parts.append(
                chance.choice([some, chance.choice(WORDS), chance.choice(STRANGE), " " * chance.randrange(4), "\n\n"])
            )
        found.append(chance.choice(["", " "]).join(parts) or " ")
    return found


def test_it_tokenizes_10_000_lines_alike(open_page: Open) -> None:
    page, model = open_page(), catalog.load("story")
    texts = lines(10_000)
    found = page.evaluate("texts => texts.map((text) => unmask.encode(text))", texts)
    for text, one in zip(texts, found, strict=True):
        batch = model.encode([text])
        assert one["ids"] == batch.ids[0].tolist(), repr(text)
        ends = [len(text.encode("utf-16-le")[: 2 * end].decode("utf-16-le")) for end in one["ends"]]
        assert tuple(ends) == batch.ends[0], repr(text)
    long = page.evaluate("text => unmask.encode(text)", " ".join(WORDS * 400))
    batch = model.encode([" ".join(WORDS * 400)])
    assert (long["ids"], long["cut"]) == (batch.ids[0].tolist(), batch.cut[0])


def test_its_masks_are_those_of_the_library_with_padding_too(browser: Browser) -> None:
    """Compare which masks block each cell, for 120 specs on rows padded on either side."""
    model, chance, page = catalog.load("story"), random.Random(5), browser.new_page()
    page.add_script_tag(content=kinds_script() + source("mask_rules.js"))
    texts = ["The cat. The dog. A bird", "One. Two"]
    for side in ("left", "right"):
        batch = model.encode(texts, side)
        for row, masks in zip([0, 1] * 30, specs(chance), strict=False):
            keep = batch.keep[row].numpy()
            index = np.where(keep, keep.cumsum() - 1, -1).tolist()
            about = {"ids": index, "indices": index, "keep": keep.tolist(), "text": texts[row], "ends": batch.ends[row]}
            found = page.evaluate(
                "([masks, row]) => { const { which, blockedBy } = composed(readSpec(masks), row);"
                " return Array.from(which, (one) => blockedBy[one].join()); }",
                [masks, about],
            )
            spec = spec_of(MaskSpec(), masks)
            context = MaskContext(batch.keep, len(index), 6, split=batch.split)
            named = context.in_row(context.masks(spec), row)
            expected = [
                ",".join(name for name, allowed in named.items() if not allowed[q, k])
                for q in range(len(index))
                for k in range(len(index))
            ]
            assert [set(one.split(",")) for one in found] == [set(one.split(",")) for one in expected], (
                side,
                row,
                masks,
            )
    page.close()
