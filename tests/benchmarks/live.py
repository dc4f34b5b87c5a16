"""Latency in Chromium of the page that holds the model (`unmask page`), and the memory of its tab."""

import tempfile
from pathlib import Path
from statistics import median

import psutil
from playwright.sync_api import Page

from tests.benchmarks.page import FLIPS, PATIENCE, text_of_64_tokens
from tests.benchmarks.report import Ratio
from tests.browser import running
from unmask.__main__ import main

FLAGS = [flag for flag in running.FLAGS if "--js-flags" not in flag]  # a user's browser collects garbage earlier
# Seconds from an action on the page until both the overview and the large heatmap have changed
TIMED = """async ([type, text]) => {
  const look = () => ["overview", "now"].map((part) =>
    document.querySelector(`[data-part="${part}"] canvas`).toDataURL());
  const before = look();
  const began = performance.now();
  if (type === "text") {
    document.getElementById("text").value = text;
    document.querySelector("[type=submit]").click();
  } else document.querySelector("[data-mask]").click();
  for (;;) {
    await new Promise(requestAnimationFrame);
    if (!document.getElementById("cancel").disabled) continue;
    if (look().every((picture, at) => picture !== before[at])) return (performance.now() - began) / 1000;
  }
}"""
OPENED = """() => document.querySelector('[data-part="now"] canvas')?.height > 150
  && performance.now() / 1000"""


def live_page() -> list[Ratio]:
    """Open the page FLIPS times, each time with a new text of 64 tokens and one flip of the causal mask."""
    opened, texts, flips, memory = [], [], [], []
    with tempfile.TemporaryDirectory() as folder, running.chromium(FLAGS) as browser:
        file = Path(folder, "attention.html")
        main(["page", "-o", str(file)])
        for number in range(FLIPS):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(PATIENCE)
            page.goto(file.as_uri())
            opened.append((page.wait_for_function(OPENED).json_value(), sum(_tab().cpu_times()[:2])))
            texts.append(_timed(page, "text", text_of_64_tokens(number)))
            flips.append(_timed(page, "flip"))
            memory.append(_tab().memory_full_info().pss / 1e6)
            page.close()
    what = "a page that holds the model: "
    return [
        _seconds(f"{what}opened → heatmap, s", opened, 3),
        _seconds(f"{what}64 tokens, text → all heads, s", texts, 1),
        _seconds(f"{what}flip → all heads, 64 tokens, s", flips, 0.7),
        Ratio(f"{what}memory of its tab, MB", median(memory), 300, "proportional set size of the renderer"),
    ]


def _seconds(what: str, pairs: list[tuple[float, float]], bar: float) -> Ratio:
    seconds, cores = zip(*pairs, strict=True)
    detail = f"median of {len(pairs)}; {min(seconds):.2f} to {max(seconds):.2f} s; {median(cores):.2f} s of a core"
    return Ratio(what, median(seconds), bar, detail)


def _timed(page: Page, what: str, text: str = "") -> tuple[float, float]:
    """Return the seconds that a user waits, and the CPU seconds of the tab."""
    before = sum(_tab().cpu_times()[:2])
    seconds: float = page.evaluate(TIMED, [what, text])
    return seconds, sum(_tab().cpu_times()[:2]) - before


def _tab() -> psutil.Process:
    """Return the largest renderer process started from this one."""
    started = psutil.Process().children(recursive=True)
    renderers = [one for one in started if "--type=renderer" in one.cmdline()]
    return max(renderers, key=lambda one: one.memory_info().rss)
