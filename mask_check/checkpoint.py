"""The check of a model's own code, as transformers runs it, as a background job."""

from collections.abc import Callable
from pathlib import Path

import torch

from i18n import remembered
from mask_check.check import check
from mask_check.findings import CheckReport
from model.huggingface import own_network
from serving.settings import Settings


def check_checkpoint(
    report: Callable[[tuple[str, float]], None],
    name: str,
    folder: Path,
    ids: tuple[int, ...],
    pieces: tuple[str, ...],
    number_type: str,
    seconds: float,
) -> CheckReport:
    """Reports the law in hand and the share of the laws that is done. Raises what loading and checking raise."""
    with remembered():
        network = own_network.load(name, folder, Settings.from_environment(), getattr(torch, number_type))
    title = f"{Path(name).name} ({type(network).__name__})"

    def progress(law: str, share: float) -> None:
        report((law, share))

    return check(network, name=title, ids=ids, pieces=pieces, seconds=seconds, progress=progress)
