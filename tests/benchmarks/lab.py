"""What a reader of the Mask Lab waits for: a drawn cell → the new heatmap. In a real Chromium, on 256 tokens."""

import tempfile
import time
from pathlib import Path
from statistics import median
from urllib.parse import quote

import numpy as np
from playwright.sync_api import Page

from model import catalog
from tests.benchmarks.page import HEATMAP, PATIENCE, WORDS
from tests.benchmarks.report import Ratio
from tests.browser.running import chromium, running

TOKENS, TURNS, BAR = 256, 7, 2
CANVAS = (
    "document.querySelector('.st-key-mask_canvas [data-testid=stBidiComponentIsolated]')"
    "?.shadowRoot?.querySelector('canvas')"
)
PICTURE = f"() => ({HEATMAP})('.st-key-head_figure .js-plotly-plot')"
READY = f"""() => ({PICTURE})() && {CANVAS}?.maskEditor?.mask
  && document.querySelector('[data-testid=stApp]').dataset.testScriptState === 'notRunning'"""
WATCH = """() => { const app = document.querySelector('[data-testid=stApp]'); window.ran = false;
  new MutationObserver(() => { if (app.dataset.testScriptState !== 'notRunning') window.ran = true; })
    .observe(app, { attributes: true }); }"""


def drawn_cell() -> list[Ratio]:
    """From the click on a cell, the wait for a second one included, ÷ a rerun that changes nothing."""
    strokes, reruns = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        running("app.py", Path(folder, "log")) as address,
        chromium() as browser,
    ):
        page = browser.new_page(viewport={"width": 1280, "height": 1200})
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}/mask_lab?text={quote(_text(TOKENS))}&layer=2&head=1")
        page.wait_for_function(READY)
        page.wait_for_timeout(2000)
        for turn in range(TURNS):
            reruns.append(_rerun(page))
            strokes.append(_stroke(page, turn))
    stroke, rerun = median(strokes[1:]), median(reruns[1:])  # the first of each warms the server up
    detail = f"{1000 * stroke:.0f} ms ÷ {1000 * rerun:.0f} ms, medians of {TURNS - 1}"
    return [
        Ratio(
            f"a drawn cell → new heatmap ÷ a rerun with nothing changed, {TOKENS} tokens", stroke / rerun, BAR, detail
        )
    ]


def _stroke(page: Page, turn: int) -> float:
    before = page.evaluate(PICTURE)
    box = page.locator(".st-key-mask_canvas canvas").bounding_box()
    assert box is not None
    began = time.perf_counter()
    page.mouse.click(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * (0.3 + 0.03 * turn))  # within the grid
    page.wait_for_function(f"before => {{ const now = ({PICTURE})(); return now && now !== before; }}", arg=before)
    took = time.perf_counter() - began
    page.wait_for_function(READY)
    page.wait_for_timeout(1000)
    return took


def _rerun(page: Page) -> float:
    """Streamlit's own key for it: the script runs, and draws what it drew before."""
    page.mouse.click(1270, 5)  # no field has the keyboard
    page.evaluate(WATCH)
    began = time.perf_counter()
    page.keyboard.press("r")
    page.wait_for_function(f"() => window.ran && ({READY})()")
    took = time.perf_counter() - began
    page.wait_for_timeout(1000)
    return took


def _text(tokens: int) -> str:
    model = catalog.load("story")
    words = np.random.default_rng(0).choice(WORDS.split(), 2 * tokens).tolist()
    texts = (" ".join(words[:count]) for count in range(2 * tokens, 1, -1))
    return next(
        text for text in texts if model.encode([text]).ids.shape[1] <= tokens and not model.encode([text]).cut[0]
    )
