"""The mask check in Python, notebooks and tests: check(module) returns a report that prints and draws itself."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from mask_check import findings
from mask_check.check import SECONDS
from mask_check.check import check as _check
from mask_check.declared import Mask
from mask_check.findings import CannotCheck, CheckReport
from mask_check.longer import quick_check
from mask_check.loss import check_loss as check_loss
from mask_check.samples import SAMPLES
from model.base import Model
from model.errors import first_line, index
from model.text import TokenBatch
from serving.settings import Settings
from viz.mask_check import report_html

if TYPE_CHECKING:
    from model.huggingface.hub import Progress

__all__ = ["CannotCheck", "Report", "assert_causal", "check"]
LIGHTNING = ("lightning.pytorch", "pytorch_lightning")
PREFIXES = ("sample:", "patient:")
Ids = Tensor | Sequence[int] | None


class Report(CheckReport):
    """The report of a check, see CheckReport; `print` shows it as text, a notebook as a picture and a table."""

    def __str__(self) -> str:
        return findings.as_text(self)

    __repr__ = __str__

    def numpy(self) -> np.ndarray:
        """Return the measured mask, [T,T]: how much each output (row) changes when each token is changed. Raises
        ValueError if that could not be measured."""
        if self.mask is None:
            raise ValueError(f"expected a measured mask; of {self.name} there is none: see .findings")
        return self.mask.moved

    def _repr_html_(self) -> str:
        return report_html(self)


def check(
    module: "nn.Module | Checkable | str | Path",
    *,
    ids: Ids = None,
    text: str | None = None,
    tokenizer: Any = None,
    mask: Mask = None,
    length: int | None = None,
    seed: int = 0,
    seconds: float | None = SECONDS,
    kernels: tuple[str, ...] | None = None,
    tokens: int | None = None,
    thorough: bool = False,
    packing: str | None = None,
) -> Report:
    """Measure which token influences which output of a module, by its own forward and its own kernels.

    module: called with input_ids [B,T], and with attention_mask, position_ids, past_key_values if it takes them;
    returns logits [B,T,V], or something that has .logits. It is left as it was. Or what `unmask.load` returned, a run
    of it, or a name that `unmask.load` takes, of a model that is on this machine ("sample:NAME": a sample module).
    ids [T], or a text: its input. A module or name needs a tokenizer for a text, called as transformers' are, or a
    function that returns ids. By default, the beginning of a run's text, else random ids, `length` of them: 24, or
    enough to exceed its window.
    mask: the mask to obey: None (that of its configuration; without one: causal), "causal", "full", "window:W",
    "chunk:C" or "prefix:P", of the module as a whole; several of these with commas, one for each layer; or bool [T,T],
    True = may attend.
    kernels: the attention kernels to compare, by transformers' names. tokens: the length of the longest further row:
    520 by default, fewer for a large module. thorough: change each of its tokens, and try torch.compile.
    packing: "position_ids" if a module of your own separates packed documents by positions that restart.

    Raises CannotCheck, a ValueError, if it cannot be called, its outputs are not finite or differ between two runs, its
    positions or the memory do not allow so many tokens, or it takes more than `seconds`; OSError for a model that is
    not on this machine.
    """
    network, name = _network_and_name(module)
    pieces = None
    if text is not None and (ids is not None or not isinstance(text, str) or not text.strip()):
        raise CannotCheck(f"expected a text or ids, got {'both' if ids is not None else repr(text)[:80]}")
    if tokenizer is not None and not callable(tokenizer):
        raise CannotCheck(f"expected a tokenizer called as transformers' are, got {type(tokenizer).__name__}")
    if text is not None and tokenizer is not None:
        found = tokenizer(text)
        ids = list(found if isinstance(found, list | Tensor) else found["input_ids"])  # encode functions return ids
        pieces = [tokenizer.decode([one]) for one in ids] if hasattr(tokenizer, "decode") else None
    elif isinstance(module, Checkable):
        found = module.tokens_of(text) if ids is None and (text or length is None) else None
        ids, pieces = found or (ids, None)
    elif text is not None:
        raise CannotCheck("expected ids, or a text with its tokenizer: unmask.load(…).check(text=…) has its own")
    title = f"{name} ({type(network).__name__})" if name else None
    options: dict[str, Any] = {"mask": mask, "kernels": kernels, "tokens": tokens, "thorough": thorough}
    options |= {"length": length, "seed": seed, "seconds": seconds, "packing": packing}
    return Report(**vars(_check(network, ids=ids, pieces=pieces, name=title, **options)))


def assert_causal(
    module: "nn.Module | Checkable | str | Path",
    *,
    ids: Ids = None,
    text: str | None = None,
    tokenizer: Any = None,
    mask: Mask = "causal",
    length: int | None = None,
    seed: int = 0,
    seconds: float | None = SECONDS,
    kernels: tuple[str, ...] | None = None,
    tokens: int | None = None,
    thorough: bool = False,
    packing: str | None = None,
) -> Report:
    """Fail, with a report, if a blocked token changes an output, or if none changes any: for tests and training loops.

    Takes at most 3 forward passes, of a few rows each; one more before it fails, one if outputs may be random, and one
    if the module does not declare how many tokens it takes. The arguments are those of `check`; with thorough, a text,
    a tokenizer, kernels, tokens or packing it is `check` and tests every property. The mask is causal whatever the
    configuration declares, unless one is given.
    """
    options: dict[str, Any] = {"ids": ids, "mask": mask, "length": length, "seed": seed, "seconds": seconds}
    options |= {"text": text, "tokenizer": tokenizer, "kernels": kernels, "tokens": tokens, "packing": packing}
    report = _causal_report(module, thorough=thorough, **options)
    assert report.obeys, f"\n{report}"
    return report


def _causal_report(
    module: "nn.Module | Checkable | str | Path", *, mask: Mask = "causal", thorough: bool = False, **options: Any
) -> Report:
    """Return the report, by a few forward passes or by `check`; options: those of assert_causal."""
    needs_check = {name: options.pop(name, None) for name in ("text", "tokenizer", "kernels", "tokens", "packing")}
    if thorough or any(one is not None for one in needs_check.values()):
        return check(module, mask=mask, **needs_check, **options)
    return Report(**vars(quick_check(_network_and_name(module)[0], mask=mask, **{"seconds": SECONDS} | options)))


def _stop_if_broken(module: "nn.Module", options: dict[str, Any]) -> None:
    """Fail in training if the mask is broken. It passes while projections are 0 and no token changes another's
    output."""
    report = _causal_report(module, **options)
    assert not report.broken, f"\n{report}"


class Checkable:
    """A model with its tokenizer. network: transformers' own, if it was given in memory."""

    model: Model
    network: Any

    check = check

    @property
    def name(self) -> str:
        return self.model.name

    def own_network(self) -> nn.Module:
        """Return the network given in memory, or the one that transformers makes from the model's files. Raises OSError
        and ValueError if there is none."""
        return network_of(self.model.name) if self.network is None else self.network

    def tokens_of(self, text: str | None) -> tuple[Tensor, list[str]] | None:
        """Return the ids [T] of a text, and their labels; without a text those to check, None for random ones."""
        return None if text is None else tokens_in(self.model.encode([text]), 0)


def trainer_callback(every: int = 1000, **options: Any) -> Any:
    """Return a TrainerCallback of transformers: Trainer(callbacks=[unmask.trainer_callback()]). options: of
    assert_causal, which fails here only if something is broken."""
    _expect_calls(every, options)
    from transformers import TrainerCallback

    class CausalTrainerCallback(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            _stop_if_broken(model, options)

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.global_step % every == 0:
                _stop_if_broken(model, options)

    return CausalTrainerCallback()


def lightning_callback(every: int = 1000, network: Callable[[Any], Any] = lambda module: module, **options: Any) -> Any:
    """Return a Lightning Callback: Trainer(callbacks=[unmask.lightning_callback()]). network: the part of the
    LightningModule that is called with ids, by default the whole. options: of assert_causal."""
    _expect_calls(every, options)
    base: Any = object
    for name in LIGHTNING:
        with suppress(ImportError):
            base = import_module(name).Callback
            break

    class CausalLightningCallback(base):
        checked = 0  # multiples of `every` steps at the last check; several batches may be one step

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.checked = trainer.global_step // every
            _stop_if_broken(network(pl_module), options)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step // every != self.checked:
                self.checked = trainer.global_step // every
                _stop_if_broken(network(pl_module), options)

    return CausalLightningCallback()


def _expect_calls(every: int, options: dict[str, Any]) -> None:
    """Check a callback's arguments. Raises ValueError, and TypeError for what assert_causal does not take."""
    index("number of steps", every, 10**9, first=1)
    signature(assert_causal).bind(None, **options)


def tokens_in(batch: TokenBatch, row: int) -> tuple[Tensor, list[str]]:
    """Return the ids of a row's real tokens, and their labels."""
    here = batch.real(row)
    return batch.ids[row, here], list(batch.pieces[row][here])


def network_of(
    name: str, dtype: torch.dtype = torch.float32, *, download: bool = False, progress: "Progress | None" = None
) -> nn.Module:
    """Return a sample module by "sample:NAME", a module made by a class or function without arguments by
    "FILE.py:NAME", whose file is run, or a model as transformers runs it, by its name, hub id or folder.

    Nothing is downloaded unless `download` is set. Raises ValueError and OSError with a sentence.
    """
    if name.startswith(PREFIXES):
        sample = SAMPLES.get(name.partition(":")[2])
        if sample is None:
            raise CannotCheck(f"there is no such sample module; choose one of {', '.join(SAMPLES)}")
        return sample.make().to(dtype)
    file, _, attribute = name.rpartition(":")
    if file.endswith(".py"):
        return _made_by(Path(file), attribute).to(dtype)
    if name.endswith(".py"):
        raise CannotCheck(f"expected FILE.py:NAME, a class or function of {name[:80]}")  # not shown
    from model.huggingface import own_network  # takes seconds to import

    settings = Settings.from_environment()
    folder = own_network.find(name, settings, download=download, progress=progress)
    return own_network.load(name, folder, settings, dtype)


def _made_by(file: Path, name: str) -> nn.Module:
    """Return the module NAME of a Python file, or NAME's result. Raises CannotCheck, also for what its code raises."""
    if not file.is_file():
        raise CannotCheck(f"there is no file {str(file)[:80]}")
    folder, known = str(file.resolve().parent), str(file.resolve()).replace(".", "_")  # a name that no package has
    sys.path.insert(0, folder)  # as Python does for a file that it runs
    module = sys.modules[known] = ModuleType(known)  # kept for its classes, which are looked up there
    module.__file__ = str(file)
    try:
        exec(compile(file.read_bytes(), str(file), "exec"), vars(module))  # without a file of bytecode beside it
        found = getattr(module, name, None)
        made = found if isinstance(found, nn.Module) or not callable(found) else found()
    except (Exception, SystemExit) as error:  # sys.exit(main()) at the end of a script
        why = f"{type(error).__name__}: {first_line(error)}"
        raise CannotCheck(f"{file.name} raised {why} where {name[:40]} was made") from error
    finally:
        with suppress(ValueError):  # the file may have changed it
            sys.path.remove(folder)
    if not isinstance(made, nn.Module):
        raise CannotCheck(f"expected {name[:40]} of {file.name} to be a torch.nn.Module or to make one")
    if folder not in sys.path:
        sys.path.append(folder)  # its forward may import what is beside it too
    return made


def _network_and_name(module: Any) -> tuple[nn.Module, str]:
    """Return the network, and its name if it has one."""
    if isinstance(module, nn.Module):
        return module, ""
    if isinstance(module, Checkable):
        return module.own_network(), module.name
    if isinstance(module, str | Path):
        return network_of(str(module)), Path(module).name
    raise CannotCheck(f"expected a torch.nn.Module, what unmask.load gave or a model's name, got {module!r:.80}")
