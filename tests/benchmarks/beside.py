"""Time of the runs on the page Why causal while other users train there, as many as a server allows."""

import time
from statistics import median

from model.why_causal import twins
from serving import training_job
from serving.background import max_running
from serving.training_job import Training
from tests.benchmarks.report import Ratio

RUNS, BAR = 15, 2.0
SENTENCE = "Once upon a time there was a little girl who lived in a house by the sea."
TEXT = "the cat sat on the mat and the dog sat on the cat. " * 20


def beside_trainings() -> list[Ratio]:
    """Measure the twins' four runs with their copy scores, beside trainings ÷ alone."""
    pair = twins.load()
    batch = pair.encode(SENTENCE)

    def page() -> float:
        began = time.perf_counter()
        for combination in twins.COMBINATIONS:
            twins.copy_scores(pair.run(batch, combination))
        return time.perf_counter() - began

    alone = median(page() for _ in range(RUNS))
    trainings = [Training(TEXT, causal=False, steps=training_job.MAX_STEPS) for _ in range(max_running())]
    try:
        while any(training.watch().step == 0 for training in trainings):
            time.sleep(0.1)
        loaded = median(page() for _ in range(RUNS))
    finally:
        for training in trainings:
            training.stop()
    detail = f"{1000 * loaded:.0f} ms ÷ {1000 * alone:.0f} ms, medians of {RUNS}"
    return [Ratio(f"the twins' runs beside {len(trainings)} trainings ÷ alone", loaded / alone, BAR, detail)]
