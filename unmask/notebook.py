"""A model in Python and notebooks, unmask.load(…).run(text), and training checkpoints, measured one after another."""

import json
import warnings
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from model import catalog
from model.base import Model, check_finite
from model.errors import index, items
from model.files import read_regular
from model.heads.survey import step_measures
from model.heads.view import head_name
from model.huggingface.checkpoint_files import MAX_SMALL_BYTES
from model.images.reading import picture_of
from model.inference.cost import cost as cost
from model.kv_cache import batch_of
from model.mask_lab.recognize import name_mask as name_mask
from model.masks import MaskSpec
from model.network_state import NetworkState, hooks_and_parameters, weights_in
from model.text import TokenBatch
from serving import backends
from serving.job import Job
from serving.result_cache import once
from serving.scheduler import LostTwice, Scheduler, TooSlow
from serving.settings import Settings
from unmask.analyses import Circuits
from unmask.checking import Checkable
from unmask.limits import check_lengths, cut_sentence
from unmask.masks import expect_text, spec_of
from unmask.pictures import Picture, printed_file
from unmask.runs import Run
from viz.html import tag
from viz.numbers import head_count, layer_count
from viz.saved.standalone import page

if TYPE_CHECKING:
    from unmask.atlas import AtlasPicture
    from unmask.images import ImageRun

Ids = Sequence[int] | Sequence[Sequence[int]] | np.ndarray | Tensor
RunKind = TypeVar("RunKind", bound=Run)
CLASSIFIERS = ("vit", "deit", "dinov2", "dinov2_with_registers")  # model types
MESSAGES = 'messages as dicts, each with texts as "role" and "content"'
CHANGED = (
    "the network's hooks or parameters have changed since unmask.load: this run uses those it had then. "
    "Call unmask.load again to include the change."
)


def load(
    model: Any,
    tokenizer: Any = None,
    *,
    name: str | None = None,
    step: int | None = None,
    gguf_file: str | None = None,
    device: str | torch.device = "auto",
    precision: str | torch.dtype = "auto",
    device_map: str = "",
    tokens: int | None = None,
) -> "LoadedModel":
    """Load a model by its name in the catalog ("story", "gpt2"), its id on the hub or its folder; or take a model of
    transformers in memory with its tokenizer, which is left as it is: a run has its weights, and the hooks it has now.
    name: the name of such a network. The others but tokens are for names and folders; models that ship take step too.

    step: of a folder of training checkpoints, by default the last. gguf_file: of a repository or folder. device: "cpu",
    "cuda", "cuda:1" or "mps"; precision (transformers' dtype): "float32", "float16" or "bfloat16"; "auto" is a CUDA
    device with room for the weights, and the precision of the file if that is fast there (see `repr`). device_map:
    "auto", "balanced" or "sequential" of accelerate, for several devices. tokens: the most in a row.

    Raises NotAvailable (an OSError) if its files are not available, ValueError if they, or the network, cannot be used.
    """
    given = Settings.from_environment().model_dump() | ({} if tokens is None else {"tokens": tokens})
    if isinstance(model, str | Path):
        if tokenizer is not None:
            raise ValueError(f"expected a tokenizer with a network alone, got one with the name {str(model)!r}")
        if name is not None:
            raise ValueError(f"expected a name for a network alone, got {name!r:.80} for {str(model)!r:.80}")
        if gguf_file and str(model) in catalog.ENTRIES:
            raise ValueError(f"expected gguf_file with a repository or a folder, got one with {str(model)!r}")
        source = f"{model}/{gguf_file}" if gguf_file else catalog.at_step(str(model), step)
        own = {"device": str(device), "precision": str(precision).removeprefix("torch."), "device_map": device_map}
        unset = {"device": "auto", "precision": "auto", "device_map": ""}
        chosen: dict[str, Any] = {name: value for name, value in own.items() if value != unset[name]}
        others = [name for name, value in chosen.items() if value not in ("cpu", "float32")]
        settings = Settings.of(given | chosen)
        if others and catalog.ships(source):
            raise ValueError(f"expected no {others[0]} for {source!r}, which is small: it runs in float32 on the CPU")
        if (classifier := _classifier(source)) and (others or tokens):
            raise ValueError(f"expected no {[*others, 'tokens'][0]} for {source!r}, which runs in float32 on the CPU")
        return LoadedModel(classifier or catalog.load(source, settings=settings))
    if tokenizer is None:
        got = type(model).__name__
        raise ValueError(f"expected a name, a folder, or a network with its tokenizer, got {got} alone")
    if (step, gguf_file, device, precision, device_map) != (None, None, "auto", "auto", ""):
        raise ValueError("expected a step, file, device or precision with a name alone, got one with a network")
    from model.huggingface import adapter  # takes seconds to import

    return LoadedModel(adapter.from_network(model, tokenizer, name, Settings.of(given)), model, tokenizer)


class RunOptions(TypedDict, total=False):
    """The optional arguments of a run, for type checkers."""

    causal: bool | None
    padding: bool | None
    masks: MaskSpec | dict[str, Any] | None
    row: int
    pad_side: str
    target: str | Sequence[str] | None


@dataclass(frozen=True, eq=False, repr=False)
class LoadedModel(Checkable, Circuits):
    """A model with its tokenizer. network, tokenizer: transformers' own, if they were given in memory."""

    model: Model
    network: Any = None
    tokenizer: Any = None
    _loaded: NetworkState = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_loaded", NetworkState(self.network, hooks_and_parameters))

    @overload
    def run(
        self, text: str | Sequence[str] = "", *, image: None = None, ids: Ids | None = None, **more: Unpack[RunOptions]
    ) -> Run: ...

    @overload
    def run(self, text: str = "", *, image: Any, **more: Unpack[RunOptions]) -> "ImageRun": ...

    def run(
        self,
        text: str | Sequence[str] = "",
        *,
        causal: bool | None = None,
        padding: bool | None = None,
        masks: MaskSpec | dict[str, Any] | None = None,
        row: int = 0,
        pad_side: str = "right",
        target: str | Sequence[str] | None = None,
        image: Any = None,
        ids: Ids | None = None,
    ) -> Run:
        """Run one forward pass. text: one row, or several, padded on pad_side, of which `row` is shown. ids: token ids
        in place of a text, [T] or rows of them, to which nothing is added.

        causal, padding: None: as in training. masks: a whole MaskSpec, or some of its fields by name, the others as in
        training: {"sliding": 4, "layers": [2]}. target: of an encoder-decoder, one for each text; by default generated,
        at most 40 tokens. image: of an image-text model, a path, an image of Pillow or an array; it is inserted at the
        processor's token for it in the text, or at its beginning. Warns if the network was given hooks or other weights
        since it was loaded, which the run does not have, and if the row's text has too many tokens: `Run.cut` is what
        was not read. Raises ValueError for invalid arguments, OSError for an image that cannot be read.
        """
        if pad_side not in ("left", "right"):
            raise ValueError(f"expected padding on the left or right, got {pad_side!r}")
        if ids is None:
            batch = self._encoded(text, target, image, pad_side)
        elif text or target is not None or image is not None:
            raise ValueError("expected ids alone, got a text, a target or an image as well")
        else:
            batch = batch_of(self.model, *_rows_of_ids(self.model, ids), pad_side=pad_side)
        row = index("row", row, len(batch.ids))
        spec = spec_of(self.model.standard, masks, causal=causal, padding=padding)
        expect_text(spec, batch)
        if image is None:
            return self._run(Run, batch, spec, row)
        from unmask.images import ImageRun  # with transformers, which takes seconds to import

        return self._run(ImageRun, batch, spec, row)

    def _run(self, kind: type[RunKind], batch: TokenBatch, spec: MaskSpec, row: int = 0) -> RunKind:
        """Run a batch, with `run`'s warnings for the line that called our caller."""
        if self._loaded.changed:
            warnings.warn(CHANGED, stacklevel=3)
        weights = NetworkState(self.network, weights_in)
        trace = self.model.run(batch, spec)
        if not bool(trace.states.isfinite().all()):
            check_finite(self.model.name, self.model.network)  # training since it was loaded may have diverged
        run = kind(self.model, trace, row, network=self.network, weights=weights)
        if run.cut:
            warnings.warn(cut_sentence(run), stacklevel=3)
        return run

    def _encoded(self, text: Any, target: Any, image: Any, pad_side: str) -> TokenBatch:
        texts = _texts("text", text)
        if image is None and not any(texts) and not self.model.vocabulary:
            raise ValueError(f"expected an image, as run(image=…), for {self.model.name}, which reads no text")
        if not texts or not all(one.strip() or image is not None for one in texts):
            raise ValueError(f"expected a text, or several, got {text!r:.80}")
        targets = None if target is None else _texts("target", target)
        if image is None:
            return self.model.encode(texts, pad_side, targets)
        if len(texts) > 1 or targets is not None:
            raise ValueError("expected one text with an image, and no target")
        if not hasattr(self.model, "encode_image"):
            raise ValueError(f"expected an image-text model of transformers for an image, got {self.model.name}")
        return self.model.encode_image(texts[0], picture_of(image))

    def atlas(self, texts: str | Sequence[str], *, masks: MaskSpec | dict[str, Any] | None = None) -> "AtlasPicture":
        """Measure every head over texts, each a row or, if longer than 256 tokens, several. Raises ValueError for an
        encoder-decoder, masks of some layers or heads or without padding, and if no text has two tokens."""
        from unmask.atlas import atlas  # with pandas, which takes a second to import

        if self._loaded.changed:
            warnings.warn(CHANGED, stacklevel=2)
        return atlas(self.model, _texts("text", texts), spec_of(self.model.standard, masks))

    def chat(
        self, messages: Sequence[dict[str, str]], *, masks: MaskSpec | dict[str, Any] | None = None, **more: bool
    ) -> Run:
        """Run on messages [{"role": "user", "content": …}, …], rendered by the model's own chat template, with the
        beginning of the assistant's answer. masks, causal, padding: as `run`'s. The text is `run.trace.batch.texts[0]`.

        The template of a folder or repository is rendered in a process with limits of time and memory. Raises
        ValueError for a model without a template, roles other than system, user and assistant, and messages that the
        template does not take.
        """
        from model.huggingface import chat

        messages = items(MESSAGES, messages)
        for one in messages:
            texts = [one.get(name) for name in ("role", "content")] if isinstance(one, Mapping) else [None]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError(f"expected {MESSAGES}, got {one!r:.80}")
        pairs = chat.checked((one["role"], one["content"]) for one in messages)
        if not self.model.chats:
            self.model.encode_rendered("")  # raises with the reason
        own = getattr(self.tokenizer, "tokenizer", self.tokenizer)
        if own:
            text = chat.rendered(self.model.name, own, pairs)
        else:
            arguments = self.model.name, Settings.from_environment(), pairs
            try:
                text = _inspector().ask(Job(chat.render, arguments))
            except (TooSlow, LostTwice):
                why = f"{self.model.name}: its chat template takes too long, or too much memory"
                raise ValueError(why) from None
        batch, _ = self.model.encode_rendered(text)
        return self._run(Run, batch, spec_of(self.model.standard, masks, **more))

    @property
    def first_head(self) -> tuple[int, int]:
        return catalog.first_head(self.model)

    def __repr__(self) -> str:
        found = self.model.describe()
        named = {part: "" if part == "self" else f" ({part})" for part in found.layers}
        layers = ", ".join(f"{layer_count(count)}{named[part]}" for part, count in found.layers.items())
        how = f", {found.precision}" if found.precision else ""
        return f"{self.model.name}: {found.architecture}, {found.kind}, {layers}, {head_count(found.heads)}{how}"


@dataclass(frozen=True, eq=False, repr=False)
class Checkpoints:
    """A folder's checkpoints (`checkpoint-*`, as Hugging Face's Trainer writes them), by their training steps."""

    folder: str
    steps: tuple[int, ...]

    def load(self, step: int, **options: Any) -> LoadedModel:
        """Load the model after this step. options: as for unmask.load. Raises ValueError for a step that is not
        there."""
        return load(self.folder, step=step, **options)

    def models(self, **options: Any) -> Iterator[tuple[int, LoadedModel]]:
        """Yield (step, model) in order; one is in memory at a time if you keep none."""
        for step in self.steps:
            yield step, self.load(step, **options)

    def measure(self, text: str, *, masks: MaskSpec | dict[str, Any] | None = None, **options: Any) -> "OverSteps":
        """Measure the loss and every head's patterns on a text after each step. Loads one checkpoint at a time."""
        if not isinstance(text, str):
            raise ValueError(f"expected a text, got {text!r:.80}")
        found = []
        for _, model in self.models(**options):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # warn once, not for each checkpoint
                run = model.run(text, masks=masks)
            found.append(step_measures(run.trace, run.row, run.masks, run.predicts))
        if run.cut:
            warnings.warn(cut_sentence(run), stacklevel=2)
        sizes = list(dict.fromkeys(one.shares["first"].shape for one in found))
        if len(sizes) > 1:
            raise ValueError(f"expected checkpoints of as many layers and heads, got {sizes}")
        shares = {name: np.stack([one.shares[name] for one in found]) for name in found[0].shares}
        losses = np.array([one.loss for one in found], np.float32)
        return OverSteps(self.folder, self.steps, losses, shares, catalog.logged_losses(self.folder), run.numbers)

    def __repr__(self) -> str:
        some = self.steps
        steps = ", ".join(map(str, some)) if len(some) <= 8 else f"{some[0]}, {some[1]} … {some[-1]}"
        return f"{self.folder}: {len(some)} checkpoints, steps {steps}"


@dataclass(frozen=True, eq=False, repr=False)
class OverSteps:
    """Measures of one text after each of S training steps. loss: mean nats per token, float32 [S]. shares: of each
    head's attention by its name ("previous", "induction" …), 0 to 1, float32 [S,L,H]. logged: what Hugging Face's
    Trainer logged, (step, loss), by "loss" and "eval_loss". numbers: of each layer in the network, if not 0, 1, 2 …"""

    folder: str
    steps: tuple[int, ...]
    loss: np.ndarray
    shares: dict[str, np.ndarray]
    logged: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    numbers: Sequence[int] = ()

    def numpy(self) -> np.ndarray:
        return self.loss

    def head(self, layer: int, head: int) -> Picture:
        """Show one head's patterns and the loss over the steps: its numbers are float32 [N,S], the loss last; its view
        is a Plotly figure."""
        from viz.heads.overview import steps_figure

        layers, heads = next(iter(self.shares.values())).shape[1:]
        index("layer", layer, layers, numbers=self.numbers)
        index("head", head, heads)
        of_head = {name: shares[:, layer, head] for name, shares in self.shares.items()}
        make = partial(steps_figure, self.steps, self.loss, of_head, None, self.logged)
        line = f"{head_name(self.numbers[layer] if self.numbers else layer, head)} over {len(self.steps)} checkpoints"
        printed = partial(printed_file, "chart", line, self.folder, make)

        def html() -> str:
            drawn = b64encode(printed("svg")).decode()
            return page(line, [tag("img", src=f"data:image/svg+xml;base64,{drawn}", alt=line, width="100%")])

        axes = {"line": [*of_head, "loss"], "step": self.steps}
        return Picture(line, make(), np.stack([*of_head.values(), self.loss]), html, None, printed, axes)

    def to_dataframe(self) -> Any:
        """Return a row for each step: its loss, and the largest share of any head by each name, NaN if it applies to no
        query of the text."""
        import pandas as pd  # takes a second to import

        largest = {name: np.fmax.reduce(shares, (1, 2)) for name, shares in self.shares.items()}
        return pd.DataFrame({"step": self.steps, "loss": self.loss, **largest}).set_index("step")

    def _repr_html_(self) -> str:
        return str(self.to_dataframe().to_html(float_format="{:.3f}".format))

    def __repr__(self) -> str:
        loss = f"loss {self.loss[0]:.2f} → {self.loss[-1]:.2f} nats over " if np.isfinite(self.loss).all() else ""
        return f"{self.folder}: {loss}{len(self.steps)} checkpoints"


def checkpoints(folder: str | Path) -> Checkpoints:
    """Return the checkpoints in a folder. Raises ValueError if there are none."""
    steps = tuple(step for step in catalog.steps(str(folder)).values() if step is not None)
    if not steps:
        raise ValueError(f"expected a folder of checkpoints (checkpoint-100 …), got {folder!r:.200}")
    return Checkpoints(str(folder), steps)


@once
def _inspector() -> Scheduler:
    return backends.inspector(Settings.from_environment())


def _classifier(name: str) -> Model | None:
    """Load the image classifier in a folder, None if there is none."""
    try:
        if json.loads(read_regular(Path(name) / "config.json", MAX_SMALL_BYTES))["model_type"] not in CLASSIFIERS:
            return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # catalog.load reports what is wrong
        return None
    from model.huggingface import image_classifier  # takes seconds to import

    return image_classifier.load(name)


def _rows_of_ids(model: Model, ids: Any) -> list[list[int]]:
    """Return token ids as rows. Raises ValueError for ids that the model does not have, and for more than it reads."""
    given = ids.tolist() if hasattr(ids, "tolist") else items("token ids", ids)
    flat = not isinstance(given, list) or not given or isinstance(given[0], Integral)
    rows = [items("token ids", row) for row in ([given] if flat else given)]
    if model.kind == "encoder-decoder" or not model.vocabulary:
        raise ValueError(f"expected a model that reads one text for ids, got {model.name}")
    check_lengths(model, [*map(len, rows)])
    return [[index("token id", one, model.num_ids) for one in row] for row in rows]


def _texts(name: str, given: Any) -> list[str]:
    """Return one text or several as a list. Raises ValueError for anything else."""
    texts = [given] if isinstance(given, str) else items(f"a {name}, or several", given)
    if not all(isinstance(one, str) for one in texts):
        raise ValueError(f"expected a {name}, or several, got {given!r:.80}")
    return texts
