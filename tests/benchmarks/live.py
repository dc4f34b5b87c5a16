"""The page that holds the model (`unmask page`): what its reader waits for in Chromium, and the memory of its tab."""

import tempfile
from pathlib import Path
from statistics import median

import psutil

from tests.benchmarks.page import FLIPS, PATIENCE, text_of_64_tokens
from tests.benchmarks.report import Ratio
from tests.browser.running import chromium
from unmask.__main__ import main

# From what is done on the page until both the overview and the large heatmap have changed, in seconds
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
    """Opened FLIPS times, each with another text of 64 tokens and one flip of the causal mask."""
    opened, texts, flips, memory = [], [], [], []
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        file = Path(folder, "attention.html")
        main(["page", "-o", str(file)])
        for number in range(FLIPS):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(PATIENCE)
            page.goto(file.as_uri())
            opened.append(page.wait_for_function(OPENED).json_value())
            texts.append(page.evaluate(TIMED, ["text", text_of_64_tokens(number)]))
            flips.append(page.evaluate(TIMED, ["flip", ""]))
            memory.append(_memory())
            page.close()
    return [
        Ratio("a page that holds the model: opened → heatmap, s", median(opened), 3, _spread(opened)),
        Ratio("a page that holds the model: 64 tokens, text → all heads, s", median(texts), 1, _spread(texts)),
        Ratio("a page that holds the model: flip → all heads, 64 tokens, s", median(flips), 0.7, _spread(flips)),
        Ratio(
            "a page that holds the model: memory of its tab, MB",
            median(memory),
            300,
            "proportional set size of the renderer",
        ),
    ]


def _spread(seconds: list[float]) -> str:
    return f"median of {len(seconds)}; {min(seconds):.2f} to {max(seconds):.2f} s"


def _memory() -> float:
    """Of the largest renderer that was started from here, in MB."""
    started = psutil.Process().children(recursive=True)
    renderers = [one for one in started if "--type=renderer" in one.cmdline()]
    return max(one.memory_full_info().pss for one in renderers) / 1e6
