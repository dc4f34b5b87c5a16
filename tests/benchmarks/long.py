"""Long texts: a mask flip at 1,020 tokens × 144 heads ÷ its forward pass; overviews of 4,096 and 16,384 tokens."""

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from unittest.mock import patch

import psutil

from model.base import Model
from model.heads.survey import survey
from model.heads.view import head_part
from model.huggingface import adapter
from model.masks import MaskSpec
from serving.settings import Settings
from tests.benchmarks.gpt2_small import random_batch, random_model
from tests.benchmarks.llama import SHAPE, loaded, save
from tests.benchmarks.report import Ratio
from ui import results
from ui.run_view import run_pair
from viz.head import comparison_figure
from viz.heads.overview import overview_packet

TOKENS, FLIPS = 1020, 5
LAYER, HEAD = 5, 1
HEAD_BAR, ALL_BAR = 1.4, 1.6
MAX_TOKENS, TURNS = 4096, 3
OVERVIEW_BAR, MEMORY_BAR = 1.5, 1.25
LLAMA = SHAPE | {"max_position_embeddings": MAX_TOKENS}
LONGEST, SQUARE_BAR = 16_384, 0.75
STORY_SIZED = {
    "vocab_size": 4096, "hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 2,
    "intermediate_size": 512, "max_position_embeddings": LONGEST,
}  # fmt: skip
UNMASKED = MaskSpec(causal=False)

Times = list[tuple[float, float]]


def long_texts() -> list[Ratio]:
    """Measure without a browser, until the chosen head's figure is made, and until all that the page shows is."""
    return [*_flips(), *_overview_of_a_llama(), *_longest()]


def _flips() -> list[Ratio]:
    """Lift the causal mask, each time on another text whose standard run is cached already."""
    model = random_model()
    _give(model)
    forwards, both, heads, alls = [], [], [], []
    for turn in range(FLIPS):
        batch = random_batch(TOKENS, turn)
        run_pair(model, batch, model.standard, 0, "self")[0].predictions()
        began = time.perf_counter()
        trace = model.run(batch, UNMASKED)
        forwards.append(time.perf_counter() - began)
        trace.losses()
        both.append(time.perf_counter() - began)

        began = time.perf_counter()
        now, standard = run_pair(model, batch, UNMASKED, 0, "self")
        comparison_figure(now.head(LAYER, HEAD), standard.head(LAYER, HEAD), dark=False).to_json()
        heads.append(time.perf_counter() - began)
        survey = now.survey()
        overview_packet(survey.thumbnails, survey.blocked, layer=LAYER, head=HEAD)
        now.predictions()
        alls.append(time.perf_counter() - began)
    return [
        _ratio(f"flip, {TOKENS} tokens × 144 heads: chosen head ÷ forward", heads, forwards, HEAD_BAR),
        _ratio(f"flip, {TOKENS} tokens × 144 heads: everything ÷ (forward + losses)", alls, both, ALL_BAR),
    ]


def _overview_of_a_llama() -> list[Ratio]:
    """Measure the overview after the forward pass, and the peak memory with and without it, in fresh processes."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        save(LLAMA, folder)
        _, alone = _in_a_process(_forward_of, folder)
        times, with_overview = _in_a_process(_overview_of, folder)
    forwards, overviews = zip(*times, strict=True)
    what = f"{MAX_TOKENS:,} tokens of a 12 × 12 Llama"
    megabytes = f"{with_overview:.0f} MB ÷ {alone:.0f} MB above the loaded model"
    return [
        _ratio(f"{what}: overview of all heads ÷ forward", list(overviews), list(forwards), OVERVIEW_BAR),
        Ratio(f"{what}: peak memory with the overview ÷ of the forward", with_overview / alone, MEMORY_BAR, megabytes),
    ]


def _longest() -> list[Ratio]:
    """Measure a Llama of the story model's size with grouped queries on 16,384 tokens, in a fresh process: peak memory
    above the loaded model ÷ one head's weights (a float32 for each query and key), and the time of each part."""
    with tempfile.TemporaryDirectory() as path:
        save(STORY_SIZED, Path(path))
        times, peak = _in_a_process(_longest_of, Path(path))
    square = 4 * LONGEST**2 / 1e6
    (ran, exact), (coarse, every) = times
    detail = (
        f"{peak:.0f} MB ÷ {square:.0f} MB; run {ran:.1f} s, a head exactly (128 × 128) {exact:.2f} s, coarsely "
        f"{coarse:.1f} s, overview of all {every:.0f} s"
    )
    what = f"{LONGEST:,} tokens of a 6 × 6 Llama over 2 key-value heads"
    return [Ratio(f"{what}: peak memory ÷ one head's weights", peak / square, SQUARE_BAR, detail)]


def _longest_of(folder: Path) -> tuple[Times, float]:
    model = adapter.from_folder(str(folder), folder, Settings(tokens=LONGEST))
    model.run(random_batch(8, 0, STORY_SIZED["vocab_size"]))
    before, batch = psutil.Process().memory_info().rss / 1e6, random_batch(LONGEST, 0, STORY_SIZED["vocab_size"])
    took, whole = [time.perf_counter()], (0, LONGEST)
    trace = model.run(batch)
    took.append(time.perf_counter())
    head_part(trace, 0, model.standard, 3, 2, (LONGEST - 128, LONGEST), (LONGEST - 128, LONGEST))
    took.append(time.perf_counter())
    head_part(trace, 0, model.standard, 3, 2, whole, whole)
    took.append(time.perf_counter())
    survey(trace)
    took.append(time.perf_counter())
    ran, exact, coarse, every = (end - begin for begin, end in pairwise(took))
    return [(ran, exact), (coarse, every)], _peak() - before


def _in_a_process(measure: Callable[[Path], tuple[Times, float]], folder: Path) -> tuple[Times, float]:
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        return fresh.submit(measure, folder).result()


def _forward_of(folder: Path) -> tuple[Times, float]:
    """Return the peak memory of a traced run alone, in MB above the loaded model."""
    model, before = _warm(folder)
    model.run(random_batch(MAX_TOKENS, 0, LLAMA["vocab_size"]))
    return [], _peak() - before


def _overview_of(folder: Path) -> tuple[Times, float]:
    """Return seconds (run, survey) for each of TURNS texts, and the first one's peak, in MB above the loaded model."""
    model, before = _warm(folder)
    times, peak = [], 0.0
    for turn in range(TURNS):
        batch = random_batch(MAX_TOKENS, turn, LLAMA["vocab_size"])
        began = time.perf_counter()
        now, _ = run_pair(model, batch, model.standard, 0, "self")
        results.engine().trace(now.run)
        ran = time.perf_counter()
        now.survey()
        times.append((ran - began, time.perf_counter() - ran))
        peak = peak or _peak()  # in later runs, earlier ones are still cached
    return times, peak - before


def _warm(folder: Path) -> tuple[Model, float]:
    model = loaded(folder)
    _give(model)
    model.run(random_batch(8, 0, LLAMA["vocab_size"]))  # memory that it leaves does not belong to the text
    return model, psutil.Process().memory_info().rss / 1e6


def _give(model: Model) -> None:
    """Make jobs run this model, which no catalog name refers to."""
    patch.object(results.engine().models, "of", return_value=model).start()


def _peak() -> float:
    """Return the peak memory of this process since its start, in MB. Linux only."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024 / 1e6


def _ratio(what: str, some: list[float], others: list[float], bar: float) -> Ratio:
    one, other = median(some), median(others)
    return Ratio(what, one / other, bar, f"{one:.2f} s ÷ {other:.2f} s, medians of {len(some)}")
