"""Time from a text to the figure of all heads of GPT-2 small: BertViz's model view ÷ our page, in one Chromium.

`make bench` installs BertViz and, under the environment's folder, the three scripts that its page requests.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

import numpy as np
import torch
from playwright.sync_api import BrowserContext, Page, Route
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from tests.benchmarks.page import CHANGED, PICTURES, SETTLED
from tests.benchmarks.report import Ratio
from tests.browser.running import chromium, running

TOKENS = (64, 128)
BAR = 20
TURNS = 7  # of our page, the first to warm up; BertViz's view takes long enough to be measured once
SCRIPTS = Path(sys.prefix) / "bertviz" / "node_modules"
ASKED_FOR = {
    "require.min.js": "requirejs/require.js",
    "d3.min.js": "d3/dist/d3.min.js",
    "jquery.min.js": "jquery/dist/jquery.min.js",
}
WORDS = [f"w{number}" for number in range(1000)]
DRAWN = "() => document.querySelectorAll('.attn_background').length === 144"
PATIENCE = 900_000  # in ms


def beside_bertviz() -> list[Ratio]:
    """Measure BertViz's time ÷ ours. Raises RuntimeError if the scripts of BertViz's page are not installed."""
    missing = [name for name in ASKED_FOR.values() if not (SCRIPTS / name).is_file()]
    if missing:
        raise RuntimeError(f"expected {', '.join(missing)} in {SCRIPTS}: `make bench` puts them there")
    with tempfile.TemporaryDirectory() as path, chromium() as browser:
        folder = Path(path)
        theirs, tokenizer = _model(folder / "gpt2")
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(PATIENCE)
        ratios = []
        with running("app.py", folder / "log", UNMASK_MAX_WEIGHTS_GB="10") as address:
            page = context.new_page()
            page.goto(f"{address}/?{urlencode({'model': str(folder / 'gpt2'), 'text': _text(12, 0)})}")
            page.wait_for_function(PICTURES)
            for tokens in TOKENS:
                ours = median([_typed(page, _text(tokens, turn)) for turn in range(TURNS)][1:])
                bertviz = _bertviz(context, theirs, tokenizer, _text(tokens, 0), folder / "model_view.html")
                what = f"BertViz's model view ÷ ours, text to all heads of GPT-2 small, {tokens} tokens"
                detail = f"{bertviz:.1f} s ÷ {ours:.1f} s, once ÷ median of {TURNS - 1}"
                ratios.append(Ratio(what, bertviz / ours, BAR, detail, at_least=True))
    return ratios


def _model(folder: Path) -> tuple[GPT2LMHeadModel, PreTrainedTokenizerFast]:
    """Return GPT-2 small with random weights and a tokenizer with one token per word; save both to the folder."""
    torch.manual_seed(0)
    config = GPT2Config()
    config._attn_implementation = "eager"  # the only implementation that returns attention weights
    theirs = GPT2LMHeadModel(config).eval()
    theirs.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return theirs, PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def _typed(page: Page, text: str) -> float:
    """Return the seconds from the key press that submits the text until overview and large heatmap have changed."""
    page.wait_for_function(SETTLED)
    page.wait_for_timeout(1000)
    before = page.evaluate(PICTURES)
    box = page.locator(".st-key-text textarea")
    box.fill(text)
    began = time.perf_counter()
    box.press("Control+Enter")
    page.wait_for_function(CHANGED, arg=before)
    _painted(page)
    return time.perf_counter() - began


@torch.inference_mode()
def _bertviz(
    context: BrowserContext, model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, text: str, file: Path
) -> float:
    """Return the seconds from the text to its model view, made as in BertViz's README."""
    from bertviz import model_view

    page = context.new_page()
    page.route("**/*.js", _serve)
    began = time.perf_counter()
    ids = tokenizer.encode(text, return_tensors="pt")
    attention = model(ids, output_attentions=True).attentions
    shown = model_view(attention, tokenizer.convert_ids_to_tokens(ids[0]), html_action="return")
    file.write_text(shown.data, encoding="utf-8")
    page.goto(file.as_uri(), wait_until="commit")
    page.wait_for_function(DRAWN, polling=100)
    _painted(page)
    took = time.perf_counter() - began
    page.close()
    return took


def _painted(page: Page) -> None:
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def _serve(route: Route) -> None:
    """Serve the scripts from this machine instead of the network."""
    route.fulfill(path=SCRIPTS / ASKED_FOR[route.request.url.rpartition("/")[2]])


def _text(tokens: int, turn: int) -> str:
    """Return a text of this many words, a different one each turn."""
    return " ".join(np.random.default_rng((tokens, turn)).choice(WORDS, tokens))
