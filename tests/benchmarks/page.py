"""Time of a mask flip and of the first page, in a real Chromium, and the bytes of the overview."""

import tempfile
import time
from pathlib import Path
from statistics import median
from urllib.parse import quote

import numpy as np
from playwright.sync_api import Browser, Page

from model import catalog
from model.heads.survey import thumbnail_size
from tests.benchmarks.report import Ratio
from tests.browser.running import chromium, running
from viz.heads.overview import overview_packet

EMPTY_PAGE = "import streamlit as st\nimport torch\nst.write('ready', torch.__version__)\n"
STARTS, FLIPS = 5, 7
PATIENCE = 120_000  # in ms; long enough for a machine on which other work runs
WORDS = "the king and his old horse went down to the green wood where a wise bird sang of snow and fire"

# All images of a heatmap: one of them may show the blocked cells and never change
HEATMAP = """(selector) => [...document.querySelectorAll(`${selector} .heatmaplayer image`)]
  .map(one => one.getAttribute('href') || one.href.baseVal).join(' ')"""
PICTURES = f"""() => {{
  const heatmap = ({HEATMAP})('.js-plotly-plot');
  const canvas = [...document.querySelectorAll('*')].map(one => one.shadowRoot?.querySelector('canvas')).find(Boolean);
  return heatmap && canvas ? [heatmap, canvas.toDataURL()] : null;
}}"""
# Evaluated in every frame: reading a canvas takes milliseconds, so it is read only once the heatmap has changed
CHANGED = f"""before => {{
  if ([before[0], ''].includes(({HEATMAP})('.js-plotly-plot'))) return false;
  const now = ({PICTURES})();
  return now && now[0] !== before[0] && now[1] !== before[1];
}}"""
TIMED = f"""before => {{
  window.flipped = null;
  document.addEventListener('click', (event) => {{
    const look = () => {{
      if (({CHANGED})(before)) window.flipped = performance.now() - event.timeStamp;
      else requestAnimationFrame(look);
    }};
    requestAnimationFrame(look);
  }}, {{ capture: true, once: true }});
}}"""
SETTLED = "() => document.querySelector('[data-testid=stApp]').dataset.testScriptState === 'notRunning'"


def overview_bytes() -> list[Ratio]:
    """Measure the packet of 12 × 12 heads of noise, which does not compress; same size for 64 and 1024 tokens."""
    size = thumbnail_size(12, 12)
    noise = np.random.default_rng(0).random((12, 12, size, size), dtype=np.float32)
    packet = overview_packet(noise, np.zeros((12, 1, size, size), bool), layer=0, head=0)
    detail = f"{len(packet):,} bytes of noise ÷ 1,000,000"
    return [Ratio("bytes to the browser for the overview, MB", len(packet) / 1e6, 0.6, detail)]


def flipped_mask() -> list[Ratio]:
    """Measure the time from the click on Causal to new pixels in heatmap and overview, and its ratio to a rerun that
    changes nothing; each on a new text. The seconds are measured within the page, from its click event; both times of
    the ratio include Playwright's overhead."""
    flips, reruns, seconds, again = [], [], [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        running("app.py", Path(folder, "log")) as address,
        chromium() as browser,
    ):
        for number in range(FLIPS):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(PATIENCE)
            page.goto(f"{address}/?text={quote(text_of_64_tokens(number))}")
            page.wait_for_function(PICTURES)
            page.wait_for_function(SETTLED)
            page.wait_for_timeout(1500)
            reruns.append(_rerun(page))
            flips.append(_flip(page))
            seconds.append(page.evaluate("window.flipped") / 1000)
            page.wait_for_timeout(1000)
            _flip(page)
            again.append(page.evaluate("window.flipped") / 1000)
            page.close()
    flip, rerun, own, later = (
        median(some[1:]) for some in (flips, reruns, seconds, again)
    )  # the first of each warms up the server
    detail = f"{1000 * flip:.0f} ms ÷ {1000 * rerun:.0f} ms, medians of {FLIPS - 1}"
    fastest = f"median of {FLIPS - 1}; the fastest {min(seconds):.2f} s; the second flip of a page {later:.2f} s"
    return [
        Ratio("mask flip → new pixels ÷ rerun without a change, 64 tokens", flip / rerun, 2, detail),
        Ratio("mask flip → new pixels, 64 tokens, s", own, 0.25, fastest),
    ]


def first_page() -> list[Ratio]:
    """Measure app start → first heatmap ÷ start of an empty page that imports torch → its text, alternately."""
    ours, empty = [], []
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        script = Path(folder, "empty.py")
        script.write_text(EMPTY_PAGE)
        for _ in range(STARTS):
            ours.append(_start("app.py", PICTURES, browser, Path(folder, "ours")))
            ready = "() => document.body.innerText.includes('ready')"
            empty.append(_start(str(script), ready, browser, Path(folder, "empty")))
    detail = f"{median(ours):.2f} s ÷ {median(empty):.2f} s, medians of {STARTS}"
    return [Ratio("app start → first heatmap ÷ an empty page", median(ours) / median(empty), 1.5, detail)]


def _start(script: str, ready: str, browser: Browser, log: Path) -> float:
    began = time.perf_counter()
    with running(script, log) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.wait_for_function(ready)
        took = time.perf_counter() - began
        page.close()
    return took


def _flip(page: Page) -> float:
    page.evaluate(TIMED, page.evaluate(PICTURES))
    began = time.perf_counter()
    page.get_by_text("Causal", exact=True).click()
    page.wait_for_function("() => window.flipped")
    return time.perf_counter() - began


def _rerun(page: Page) -> float:
    """Rerun the script, with nothing changed, by Streamlit's own key; return the seconds."""
    page.evaluate(
        """() => { const app = document.querySelector('[data-testid=stApp]'); window.ran = false;
        new MutationObserver(() => { if (app.dataset.testScriptState !== 'notRunning') window.ran = true; })
          .observe(app, { attributes: true }); }"""
    )
    began = time.perf_counter()
    page.get_by_text("Causal", exact=True).hover()  # the same wait as before Playwright's click
    page.keyboard.press("r")
    page.wait_for_function(f"() => window.ran && ({SETTLED})()")
    took = time.perf_counter() - began
    page.wait_for_timeout(1000)
    return took


def text_of_64_tokens(number: int) -> str:
    model = catalog.load("story")
    words = np.random.default_rng(number).choice(WORDS.split(), 80).tolist()
    texts = (" ".join(words[:count]) for count in range(80, 1, -1))
    return next(text for text in texts if model.encode([text]).ids.shape[1] <= 64)
