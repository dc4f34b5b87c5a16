"""Proof, when a network is loaded, that what we show of it is its own.

A small batch, longer than every window of the network where that is affordable, goes through it three times: as
transformers runs it; to find its attentions and its masks; and through our attention under its standard masks. Unless
every attention came through our function and both give the same logits, the network is refused: better no picture than
a wrong one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import CONFIG_MAPPING

from i18n import N_, say
from model.errors import NotSupported, first_line
from model.huggingface import attention_hook, formats, internals, layers
from model.huggingface.attention_hook import Call, blank
from model.huggingface.native_masks import edges_of, far_positions
from model.huggingface.probe import Probe, Site
from model.huggingface.recording import Recording
from model.huggingface.stacks import USUAL, OneStack, Stacks, TwoStacks, device_of, through, vocabulary_of
from model.masks import MaskSpec

SUPPORTED = (
    "gpt2, llama, mistral, qwen2, qwen3, gemma2, gemma3, gpt_neox, gptj, bloom, falcon, opt, phi3, olmo2, gpt_oss, "
    "bert, roberta, deberta, distilbert, t5, bart, marian"
)
NOT_SHOWN = {
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba"), N_("its layers are a state space, which does not attend to "
                                                            "tokens")),
    **dict.fromkeys(("rwkv", "xlstm"), N_("its layers are a recurrence, which does not attend to tokens")),
    "fnet": N_("it mixes its tokens by Fourier transforms, without attention"),
    "perceiver": N_("its attention is from latent vectors to a text, not from token to token"),
    **dict.fromkeys(
        ("longformer", "led", "longt5", "pegasus_x", "reformer", "mra", "yoso"),
        N_("its attention is sparse, computed by custom code in blocks or with hashes, not as scores of all tokens"),
    ),
    "funnel": N_("its layers pool the tokens, so queries and keys are no longer tokens of the text"),
    "deepseek_v4": N_("it attends to compressed groups of tokens as well as to tokens"),
    "t5gemma2": N_("its decoder attends to its source and its target in one attention, not in two"),
    "prophetnet": N_("its decoder predicts several tokens at once, with an attention of its own for each"),
    "blt": N_("it reads bytes in patches, and custom code computes its attention between bytes and patches"),
    "cpmant": N_("it puts its own vectors before every text, so its attention is not only on the text's tokens"),
    "fsmt": N_("its decoder takes its masks in a non-standard way, and no tokenizer here has its two vocabularies"),
    **dict.fromkeys(
        ("dots3_note", "dots3_note_text", "minimax_m3_vl", "minimax_m3_vl_text", "qwen4_exp", "qwen4_exp_text"),
        N_("its own indexer chooses the blocks of tokens that each query attends to"),
    ),
    **dict.fromkeys(
        ("musicgen", "musicgen_decoder", "musicgen_melody", "musicgen_melody_decoder"),
        N_("it writes music: its tokens are sounds, not text"),
    ),
    "udop": N_("it reads a text with the position of each word on a page, never text alone"),
    "voxtral_realtime": N_("it needs sound with its text and never runs on text alone"),
    "pi0": N_("it controls robots: it needs images and joint states and never runs on text alone"),
    **dict.fromkeys(("pix2struct", "pp_formulanet", "vision-encoder-decoder"),
                    N_("its encoder reads images, not text")),
    **dict.fromkeys(("blip", "blip-2", "instructblip", "instructblipvideo", "kosmos-2", "idefics"),
                    N_("it needs an image with its text and never runs on text alone")),
}  # fmt: skip
OTHER_SENSES = (
    ("SPEECH_SEQ_2_SEQ", N_("it is a speech model: it reads sound, not text")),
    ("CTC", N_("it is a speech model: it reads sound, not text")),
    ("AUDIO_CLASSIFICATION", N_("it is a sound model: it reads sound, not text")),
    ("IMAGE_CLASSIFICATION", N_("it is an image model: it reads images, not text")),
    ("OBJECT_DETECTION", N_("it is an image model: it reads images, not text")),
    ("TEXT_TO_WAVEFORM", N_("it generates sound, not text")),
)
READS_TEXT = (
    "CAUSAL_LM",
    "MASKED_LM",
    "SEQ_TO_SEQ_CAUSAL_LM",
    "IMAGE_TEXT_TO_TEXT",
)


def refusal(name: str, model_type: str, why: str) -> NotSupported:
    return NotSupported(
        say(
            "{model} ({kind}) cannot be shown: {why}. Supported are {supported} and most others.",
            model=name, kind=model_type, why=why, supported=SUPPORTED,
        )
    )  # fmt: skip


def check_type(name: str, config: dict[str, Any]) -> None:
    """Raises NotSupported for an architecture that transformers lacks or that is known not to be shown, CheckpointError
    for weights that are stored quantised."""
    model_type = config["model_type"]
    formats.check_config(name, config)
    if model_type not in CONFIG_MAPPING and "auto_map" in config:
        raise refusal(name, model_type, say("it needs custom code, which Unmask never runs"))
    if model_type not in CONFIG_MAPPING:
        raise refusal(name, model_type, say("the installed transformers does not support its architecture"))
    why = NOT_SHOWN.get(model_type) or _reads_no_text(model_type, bool(config.get("is_encoder_decoder")))
    if why is not None:
        raise refusal(name, model_type, say(why))


def _reads_no_text(model_type: str, encoder_decoder: bool) -> str | None:
    """An encoder-decoder of speech is among the causal models too, as its decoder alone."""
    text = READS_TEXT[2:] if encoder_decoder else READS_TEXT
    if any(model_type in internals.classes_of_task(task) for task in text):
        return None
    return next((why for task, why in OTHER_SENSES if model_type in internals.classes_of_task(task)), None)


TOKENS = 6  # of each row, where nothing in the configuration asks for more; a source has SOURCE_MORE
SOURCE_MORE = 3  # so that cross-attention shows by its shape
MOST_TOKENS = 600
MOST_WORK = 7e10  # parameters times tokens: a few seconds
TOLERANCE = {torch.float32: 1e-3}  # of the largest logit; a layer left out or a mask ignored changes them by about 1
COARSE = 0.1  # for float16 and bfloat16
NEEDS_MORE = re.compile(
    r"pixel|image|input_features|bbox|flattened_patches|missing \d+ required positional", re.IGNORECASE
)


class NeedsMore(NotSupported):
    """A network that does not run on text alone."""


@dataclass(frozen=True, eq=False)
class Findings:
    """sites: every attention in the order in which they run. heads: query and key-value heads of each site.

    bytes_per_token: what a trace keeps for each token. layer_numbers: of each part, the number of each attention's
    layer in the network, where they are not simply counted. layer_kinds: what each layer of a stack is, where some
    have no attention.
    """

    sites: tuple[Site, ...]
    heads: tuple[tuple[int, int], ...]
    bytes_per_token: int
    layer_numbers: dict[str, tuple[int, ...]]
    layer_kinds: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Batch:
    """Two rows, one of them padded: ids and keep [2,T]; source and its keep [2,S]."""

    ids: Tensor
    keep: Tensor
    source: Tensor
    source_keep: Tensor


@torch.inference_mode()
def examine(stacks: Stacks, report: Callable[[str], None] = lambda _: None) -> Findings:
    """Switch a network, loaded with eager attention, to ours, and find out where its attentions are.

    Raises NotSupported for a network that does not send all of its attention through us, or gives other logits then.
    """
    report(say("running it as transformers does"))
    batch = _batch(stacks)
    expected = _reference(stacks, batch)
    _switch(stacks, attention_hook.NAME)
    report(say("looking for its attentions"))
    if isinstance(stacks, OneStack) and stacks.takes_positions:
        first = first_position(stacks, batch.ids[:1])
        stacks.takes_positions, stacks.first_position = first is not None, first or 0
        if first != 0:
            _switch(stacks, "eager")
            batch = _batch(stacks)
            expected = _reference(stacks, batch)
            _switch(stacks, attention_hook.NAME)
    edges = edges_of(stacks.network.config)
    probe = Probe(_keeps(batch), edges, far_positions(edges, stacks.context()))
    _states(stacks, probe, batch)
    kinds = _layer_kinds(stacks, probe)
    causal = any(site.causal for site in probe.sites)
    report(say("comparing our logits with its own"))
    run = Recording(tuple(probe.sites), MaskSpec(causal=causal), _keeps(batch))
    states = _states(stacks, run, batch)
    run.layers()
    _check_logits(stacks.logits(states), expected, batch.keep)
    bytes_per_token = probe.bytes_per_token + states.shape[-1] * states.element_size()
    return Findings(tuple(probe.sites), tuple(probe.heads), bytes_per_token, *kinds)


def _switch(stacks: Stacks, attention: str) -> None:
    """To our attention and our masks, or to transformers' own. Networks with attention of their own say that they
    cannot be switched, but they too ask for their masks by the name in their configuration."""
    stacks.network.set_attn_implementation(attention)
    internals.set_attention_name(stacks.network, attention)


def _proof_tokens(stacks: Stacks) -> int:
    """More than every window, chunk and block that the configuration names, as far as that is affordable."""
    parameters = sum(parameter.numel() for parameter in stacks.network.parameters())
    most = min(MOST_TOKENS, stacks.context() - SOURCE_MORE, MOST_WORK / (2 * parameters))
    lengths = [edge + SOURCE_MORE for edge in edges_of(stacks.network.config)]
    return max([TOKENS, *(length for length in lengths if length <= most)])


def _batch(stacks: Stacks) -> _Batch:
    """Padded on the left where the network takes positions, so that those are tried too."""
    device, known = device_of(stacks.network), vocabulary_of(stacks.network)
    generator = torch.Generator().manual_seed(0)
    pad = getattr(stacks.network.config, "pad_token_id", None) or 0
    pad = pad if pad < known else 0  # of a larger model's whole vocabulary
    sides = []
    length = _proof_tokens(stacks)
    for tokens in (length, length + SOURCE_MORE):
        ids = torch.randint(known, (2, tokens), generator=generator)
        ids[ids == pad] = (pad + 1) % known
        keep = torch.ones(2, tokens, dtype=torch.bool)
        left = isinstance(stacks, OneStack) and stacks.takes_positions
        keep[1, slice(0, 2) if left else slice(tokens - 2, tokens)] = False
        sides += [ids.masked_fill(~keep, pad).to(device), keep.to(device)]
    return _Batch(*sides)


def _reference(stacks: Stacks, batch: _Batch) -> Tensor:
    try:
        if isinstance(stacks, TwoStacks):
            return stacks.reference(batch.ids, batch.keep, batch.source, batch.source_keep)
        return stacks.reference(batch.ids, batch.keep)
    except Exception as error:  # noqa: BLE001 - sizes that an architecture cannot have show only here, in any way
        if NEEDS_MORE.search(str(error)):
            raise NeedsMore(say("it does not run on text alone ({why})", why=first_line(error))) from None
        why = say("transformers itself cannot run it ({error}: {why})", error=type(error).__name__, why=error)
        raise NotSupported(why) from None


def check_runs_on_text(stacks: Stacks) -> None:
    """Raises NeedsMore for a network that asks for more than a text, as far as one without weights shows it."""
    ids = torch.zeros(1, TOKENS, dtype=torch.long, device=device_of(stacks.network))
    batch = _Batch(ids, torch.ones_like(ids, dtype=torch.bool), ids, torch.ones_like(ids, dtype=torch.bool))
    try:
        _reference(stacks, batch)
    except NeedsMore:
        raise
    except NotSupported:  # for want of weights, perhaps
        pass


def _states(stacks: Stacks, run: Probe | Recording, batch: _Batch) -> Tensor:
    if isinstance(stacks, OneStack):
        return stacks.states(run, batch.ids, batch.keep)
    if isinstance(run, Probe):
        run.part = "encoder"
    memory = stacks.memory(run, batch.source, batch.source_keep)
    if isinstance(run, Probe):
        run.part = "decoder"
    return stacks.states(run, batch.ids, batch.keep, memory, batch.source_keep)


def _keeps(batch: _Batch) -> dict[str, Tensor]:
    return {"self": batch.keep, "decoder": batch.keep, "encoder": batch.source_keep, "cross": batch.source_keep}


def _layer_kinds(stacks: Stacks, probe: Probe) -> tuple[dict[str, tuple[int, ...]], tuple[str, ...]]:
    """The numbers of the layers that have attention, by part, and what all layers of a single stack are.

    Raises NotSupported where there is no attention, or a layer without one is of no kind we know.
    """
    shown = {site.part for site in probe.sites}
    wanted = (
        {"encoder": stacks.encoder, "decoder": stacks.decoder}
        if isinstance(stacks, TwoStacks)
        else {"self": stacks.stack}
    )
    for part, stack in wanted.items():
        if part not in shown:
            raise NotSupported(layers.unseen(stack))
    if isinstance(stacks, TwoStacks) and "cross" not in shown:
        raise NotSupported(say("its decoder does not attend to its source in a way that Unmask can trace"))
    found = {}
    kinds: tuple[str, ...] = ()
    for part in dict.fromkeys(site.part for site in probe.sites):
        places = [site.place for site in probe.sites if site.part == part]
        numbers = layers.numbers(places)
        if numbers is None:
            continue
        if isinstance(stacks, OneStack):
            kinds = layers.kinds(stacks.stack, places, numbers)
        if numbers != tuple(range(len(numbers))):
            found[part] = numbers
    return found, kinds if set(kinds) - {layers.ATTENTION} else ()


def _check_logits(ours: Tensor, theirs: Tensor, keep: Tensor) -> None:
    ours, theirs = ours[keep].float(), theirs[keep]
    allowed = TOLERANCE.get(theirs.dtype, COARSE) * max(float(theirs.abs().max()), 1.0)
    difference = float((ours - theirs.float()).abs().max())
    if not difference <= allowed:
        raise NotSupported(
            say(
                "its attention is computed in a non-standard way (our logits differ by {difference:.2g} from its own)",
                difference=difference,
            )
        )


class _Reached(Exception):
    """The first attention: the rest of the network need not run."""


class _FirstCall:
    """A run that ends at the first attention on the text's tokens, and keeps what that attention gets."""

    positions: Tensor | None = None
    own_code: bool = True

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self.call: Call | None = None

    def concerns(self, queries: int, keys: int) -> bool:
        return self._tokens in (queries, keys)

    def mask(self, arguments: dict[str, Any]) -> Tensor | None:
        return blank(arguments)

    def attend(self, call: Call) -> Tensor:
        self.call = call
        raise _Reached


def first_position(stack: OneStack, ids: Tensor) -> int | None:
    """The number of a text's first token; None where the network does not count on from there, one by one.

    ids [1,T], a text without padding. The stack is left as it was.
    """
    takes, before = stack.takes_positions, stack.first_position
    try:
        stack.takes_positions = False
        by_itself = _first_call(stack, ids)
        stack.takes_positions = True
        for stack.first_position in USUAL:
            if _alike(_first_call(stack, ids), by_itself):
                return stack.first_position
        return None
    finally:
        stack.takes_positions, stack.first_position = takes, before


def _first_call(stack: OneStack, ids: Tensor) -> Call | None:
    run = _FirstCall(ids.shape[1])
    try:
        with through(run, stack.network, len(ids)):
            stack.reference(ids, torch.ones_like(ids, dtype=torch.bool))
    except _Reached:
        pass
    except IndexError:  # positions beyond its table
        return None
    return run.call


def _alike(one: Call | None, other: Call | None) -> bool:
    if one is None or other is None or len(one.added) != len(other.added):
        return one is other  # without any attention, that is said when it is looked for
    pairs = zip((one.q, one.k, *one.added), (other.q, other.k, *other.added), strict=True)
    return all(a.shape == b.shape and torch.allclose(a.float(), b.float(), rtol=1e-4, atol=1e-5) for a, b in pairs)
