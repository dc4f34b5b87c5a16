"""Verification, as the last step of loading, that Unmask's attention computes what the loaded network computes.

A small batch, longer than every window of the network where that is affordable, goes through it three times: as
transformers runs it; to find its attentions and masks; and through Unmask's attention under its standard masks. A
network is refused unless every attention went through Unmask's function and the logits are the same as transformers'.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import CONFIG_MAPPING

from i18n import N_, msg
from model.blocks import FIRST_POSITIONS
from model.errors import NotSupported, first_line
from model.hardware import precision_name
from model.huggingface import attention_hook, formats, internals, probe
from model.huggingface.attention_hook import AttentionReached, Call, ScriptedAttention
from model.huggingface.probe import LayerLocation, Site
from model.huggingface.recording import Recording
from model.huggingface.stacks import Inputs, OneStack, Stacks, TwoStacks, intercepted, vocabulary_of
from model.masks import MaskSpec

SUPPORTED = (
    "gpt2, llama, mistral, qwen2, qwen3, gemma2, gemma3, gpt_neox, gptj, bloom, falcon, opt, phi3, olmo2, gpt_oss, "
    "bert, roberta, deberta, distilbert, t5, bart, marian"
)
NOT_SHOWN_TYPES = {  # model types -> why they are not shown
    "mamba mamba2 falcon_mamba": N_("its layers are a state space, which does not attend to tokens"),
    "rwkv xlstm": N_("its layers are a recurrence, which does not attend to tokens"),  # not shown: model types
    "fnet": N_("it mixes its tokens by Fourier transforms, without attention"),
    "perceiver": N_("its attention is from latent vectors to a text, not from token to token"),
    "longformer led longt5 pegasus_x reformer mra yoso": N_(
        "its attention is sparse, computed by custom code in blocks or with hashes, not as scores of all tokens"
    ),
    "funnel": N_("its layers pool the tokens, so queries and keys are no longer tokens of the text"),
    "deepseek_v4": N_("it attends to compressed groups of tokens as well as to tokens"),
    "t5gemma2": N_("its decoder attends to its source and its target in one attention, not in two"),
    "prophetnet": N_("its decoder predicts several tokens at once, with an attention of its own for each"),
    "blt": N_("it reads bytes in patches, and custom code computes its attention between bytes and patches"),
    "cpmant": N_("it puts its own vectors before every text, so its attention is not only on the text's tokens"),
    "fsmt": N_("its decoder takes its masks in a non-standard way, and no tokenizer here has its two vocabularies"),
    "dots3_note dots3_note_text minimax_m3_vl minimax_m3_vl_text qwen4_exp qwen4_exp_text": N_(
        "its own indexer chooses the blocks of tokens that each query attends to"
    ),
    "musicgen musicgen_decoder musicgen_melody musicgen_melody_decoder": N_(
        "it writes music: its tokens are sounds, not text"
    ),
    "udop": N_("it reads a text with the position of each word on a page, never text alone"),
    "voxtral_realtime": N_("it needs sound with its text and never runs on text alone"),
    "pi0": N_("it controls robots: it needs images and joint states and never runs on text alone"),
    "pix2struct pp_formulanet vision-encoder-decoder": N_("its encoder reads images, not text"),
    "blip blip-2 instructblip instructblipvideo kosmos-2 idefics": N_(  # not shown: model types
        "it needs an image with its text and never runs on text alone"
    ),
}
CONVOLUTION = N_("its attention adds a convolution over neighbouring tokens, padding included, which no mask blocks")
NOT_SHOWN = {model_type: why for types, why in NOT_SHOWN_TYPES.items() for model_type in types.split()}
SPEECH = N_("it is a speech model: it reads sound, not text")
UNSUPPORTED_TASKS = (  # task -> why its models are not shown
    ("SPEECH_SEQ_2_SEQ", SPEECH),
    ("CTC", SPEECH),
    ("AUDIO_CLASSIFICATION", N_("it is a sound model: it reads sound, not text")),
    ("ZERO_SHOT_IMAGE_CLASSIFICATION", None),  # models such as CLIP have a text encoder: class_for refuses them
    ("IMAGE_CLASSIFICATION", N_("it is an image model: it reads images, not text")),
    ("OBJECT_DETECTION", N_("it is an image model: it reads images, not text")),
    ("TEXT_TO_WAVEFORM", N_("it generates sound, not text")),
)
READS_TEXT = ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT")
CANNOT_BE_SHOWN = N_("{model} ({kind}) cannot be shown: {why}. Supported are {supported} and most others.")
OTHER_LOGITS = N_("its attention is computed in a non-standard way (logits differ by {difference:.2g} from its own)")
NOT_FINITE = N_("in {precision} its own logits, as transformers computes them, are not finite numbers")
NOT_FINITE_ROUNDED = N_(
    "in {precision} its own logits, as transformers computes them, are not finite numbers. Choose the precision "
    "float32, in which they may be"
)
OTHER_LOGITS_ROUNDED = N_(
    "in {precision} the logits differ by {difference:.2g} from its own, by rounding or because its attention is "
    "computed in a non-standard way. Choose the precision float32, in which it may be shown"
)


def refusal(name: str, model_type: str, why: str | NotSupported) -> NotSupported:
    return NotSupported(msg(CANNOT_BE_SHOWN, model=name, kind=model_type, why=why, supported=SUPPORTED))


def check_type(name: str, config: dict[str, Any]) -> None:
    """Check an architecture. Raises NotSupported for one that transformers lacks or check_known refuses,
    CheckpointError for weights that are stored quantized."""
    model_type = config["model_type"]
    formats.check_config(name, config)
    if model_type not in CONFIG_MAPPING and "auto_map" in config:
        raise refusal(name, model_type, msg("it needs custom code, which Unmask never runs"))
    if model_type not in CONFIG_MAPPING:
        raise refusal(name, model_type, msg("the installed transformers does not support its architecture"))
    check_known(name, config)


def check_known(name: str, config: dict[str, Any]) -> None:
    """Check that an architecture is not known to be unsupported. Raises NotSupported."""
    model_type = config["model_type"]
    convolves = model_type == "nystromformer" and config.get("conv_kernel_size", 65) != 1  # 65: transformers' default
    known = CONVOLUTION if convolves else NOT_SHOWN.get(model_type)
    text = READS_TEXT[2:] if config.get("is_encoder_decoder") else READS_TEXT  # a speech model's decoder is causal
    if known is None and not any(model_type in internals.classes_of_task(task) for task in text):
        known = next((why for task, why in UNSUPPORTED_TASKS if model_type in internals.classes_of_task(task)), None)
    if known is not None:
        raise refusal(name, model_type, msg(known))


TOKENS = 6  # in each row, unless the configuration needs more; a source has EXTRA_SOURCE_TOKENS more
EXTRA_SOURCE_TOKENS = 3  # makes cross-attention recognizable by its shape
MAX_TOKENS = 600
MAX_WORK = 7e10  # parameters times tokens: a few seconds
TOLERANCE = {torch.float32: 1e-3}  # of the largest logit; a missing layer or an ignored mask changes logits by about 1
TOLERANCE_16_BIT = 0.1  # the tolerance for float16 and bfloat16
NEEDS_MORE = re.compile(
    r"pixel|image|input_features|bbox|flattened_patches|missing \d+ required positional", re.IGNORECASE
)


class NeedsMoreThanText(NotSupported):
    """The error for a network that does not run on text alone."""


@dataclass(frozen=True, eq=False)
class ExaminedNetwork:
    """The result of `examine`. sites: every attention, in the order in which they run. bytes_per_token: what a trace
    keeps. heads: for each part, its query and key-value heads; as many key-value as query heads if its layers differ in
    them. layer_numbers: for each part, the number of each attention's layer in the network, unless they are 0, 1, 2 …
    layer_kinds: the kind of each layer of a stack, unless all are attention alone.
    """

    sites: tuple[Site, ...]
    bytes_per_token: int
    heads: dict[str, tuple[int, int]]
    layer_numbers: dict[str, tuple[int, ...]]
    layer_kinds: tuple[str, ...]


@torch.inference_mode()
def examine(stacks: Stacks, report: Callable[[str], None] = lambda _: None) -> ExaminedNetwork:
    """Switch a network that was loaded with eager attention to Unmask's, and find its attentions.

    Raises NotSupported if an attention does not go through Unmask's function, or if the logits then differ.
    """
    report(msg("running it as transformers does"))
    internals.add_alibi_once(stacks.network)
    inputs, expected = _rows(stacks, left=stacks.takes_positions)  # left padding also tests positions
    _switch(stacks, attention_hook.NAME)
    report(msg("looking for its attentions"))
    if isinstance(stacks, OneStack) and stacks.takes_positions:
        first = first_position(stacks, inputs.ids[:1])
        stacks.takes_positions, stacks.first_position = first is not None, first or 0
        if first != 0:
            _switch(stacks, "eager")
            inputs, expected = _rows(stacks, left=stacks.takes_positions)
            _switch(stacks, attention_hook.NAME)
    edges = probe.edges_of_masks(stacks.network.config)
    looking = probe.Probe(inputs.keeps(), edges, probe.far_positions(edges, stacks.context()))
    stacks.states(looking, inputs)
    sites = tuple(looking.sites)
    parts = dict.fromkeys(site.part for site in sites)
    heads = {part: _heads([site.heads for site in sites if site.part == part]) for part in parts}
    kinds = _layer_kinds(stacks, sites)
    report(msg("comparing logits with its own"))
    try:
        states = _check(stacks, sites, inputs, expected)
    except NotSupported:
        if not kinds[1] or not stacks.takes_positions:
            raise
        # RecurrentGemma's recurrence reads padding on the left, whose queries attend to all padding in transformers and
        # to nothing in Unmask
        _switch(stacks, "eager")
        inputs, expected = _rows(stacks, left=False)
        _switch(stacks, attention_hook.NAME)
        states = _check(stacks, sites, inputs, expected)
    return ExaminedNetwork(sites, sum(site.bytes_per_token for site in sites) + states[0, 0].nbytes, heads, *kinds)


def _heads(layers: list[tuple[int, int]]) -> tuple[int, int]:
    """Return Findings.heads. Raises NotSupported if layers differ in their query heads: every view has one number."""
    queries, shared = ({*counts} for counts in zip(*layers, strict=True))
    if len(queries) > 1:
        listed = ", ".join(map(str, sorted(queries)))
        raise NotSupported(msg("its layers have different numbers of heads ({counts})", counts=listed))
    return min(queries), min(shared if len(shared) == 1 else queries)


def _rows(stacks: Stacks, *, left: bool) -> tuple[Inputs, Tensor]:
    """Return the inputs to compare on, with the network's own logits. Padded on the right if padding on the left makes
    these NaN, as in float64: transformers' eager attention blocks with the most negative number."""
    inputs = _inputs(stacks, left=left)
    expected = _reference(stacks, inputs)
    if left and bool(expected[inputs.keep].isnan().any()):
        return _rows(stacks, left=False)
    return inputs, expected


def _check(stacks: Stacks, sites: Sequence[Site], inputs: Inputs, expected: Tensor) -> Tensor:
    """Return the states under Unmask's attention. Raises NotSupported unless their logits are the expected ones."""
    run = Recording(tuple(sites), MaskSpec(causal=any(site.native.causal for site in sites)), inputs.keeps())
    states = stacks.states(run, inputs)
    run.layers()
    check_logits(stacks.logits(states), expected, inputs.keep)
    return states


def check_runs_on_text(stacks: Stacks) -> None:
    """Check, as far as possible without weights, that a network needs no more than a text. Raises NeedsMoreThanText."""
    ids = torch.zeros(1, TOKENS, dtype=torch.long, device=stacks.network.device)
    text = Inputs(ids, torch.ones_like(ids, dtype=torch.bool))
    try:
        _reference(stacks, replace(text, source=text))
    except NeedsMoreThanText:
        raise
    except NotSupported:  # perhaps only because the weights are missing
        pass


def _switch(stacks: Stacks, attention: str) -> None:
    """Switch to Unmask's attention and masks, or to transformers' own. Networks that compute attention by their own
    code refuse the first, but they too look up their mask function by the name in their configuration."""
    stacks.network.set_attn_implementation(attention)
    internals.set_attention_name(stacks.network, attention, stacks.parts.values())


def _inputs(stacks: Stacks, *, left: bool) -> Inputs:
    """Return two rows, one of them padded, on the left or right. They are longer than every window, chunk and block
    that the configuration names, as far as that is affordable."""
    device, known = stacks.network.device, vocabulary_of(stacks.network)
    generator = torch.Generator().manual_seed(0)
    pad = getattr(stacks.network.config, "pad_token_id", None) or 0
    pad = pad if pad < known else 0  # it may be from the vocabulary of a larger model
    longest = min(MAX_TOKENS, stacks.context() - EXTRA_SOURCE_TOKENS, MAX_WORK / (2 * stacks.network.num_parameters()))
    lengths = [edge + EXTRA_SOURCE_TOKENS for edge in probe.edges_of_masks(stacks.network.config)]
    length = max([TOKENS, *(length for length in lengths if length <= longest)])

    def batch(tokens: int) -> Inputs:
        ids = torch.randint(known, (2, tokens), generator=generator)
        ids[ids == pad] = (pad + 1) % known
        keep = torch.ones(2, tokens, dtype=torch.bool)
        keep[1, slice(0, 2) if left else slice(tokens - 2, tokens)] = False
        return Inputs(ids.masked_fill(~keep, pad).to(device), keep.to(device))

    inputs = batch(length)
    return replace(inputs, source=batch(length + EXTRA_SOURCE_TOKENS)) if isinstance(stacks, TwoStacks) else inputs


def _reference(stacks: Stacks, inputs: Inputs) -> Tensor:
    try:
        return stacks.reference(inputs)
    except Exception as error:  # noqa: BLE001 - impossible sizes may raise anything here
        if NEEDS_MORE.search(str(error)):
            raise NeedsMoreThanText(msg("it does not run on text alone ({why})", why=first_line(error))) from None
        why = msg("transformers itself cannot run it ({error}: {why})", error=type(error).__name__, why=error)
        raise NotSupported(why) from None


def _layer_kinds(stacks: Stacks, sites: Sequence[Site]) -> tuple[dict[str, tuple[int, ...]], tuple[str, ...]]:
    """Return the numbers of the layers that have attention, by part, and the kinds of all layers of a single stack.
    Raises NotSupported if there is no attention, or a layer without attention is of an unknown kind."""
    locations: dict[str, list[LayerLocation | None]] = {}
    for site in sites:
        locations.setdefault(site.part, []).append(site.location)
    for part, stack in stacks.parts.items():
        if part not in locations:
            raise NotSupported(_why_no_attention(stack))
    if "decoder" in locations and "cross" not in locations:
        raise NotSupported(msg("its decoder does not attend to its source in a way that Unmask can trace"))
    numbers = {part: found for part in locations if (found := probe.layer_numbers(locations[part])) is not None}
    kinds = probe.layer_kinds(stacks.stack, sites) if "self" in numbers else ()
    counted = {part: found for part, found in numbers.items() if found != tuple(range(len(found)))}
    return counted, kinds if set(kinds) - {probe.ATTENTION} else ()


def _why_no_attention(stack: nn.Module) -> str:
    """Explain why no attention was found in a stack."""
    own = sorted({type(module).__name__ for module in stack.modules() if re.search("Att", type(module).__name__)})
    parts = " ".join(type(module).__name__ for module in stack.modules()).lower()
    kind = next((kind for pattern, kind in probe.LAYER_KINDS if kind is not None and re.search(pattern, parts)), None)
    if kind in (probe.STATE_SPACE, probe.RECURRENCE, probe.LINEAR_ATTENTION):
        return msg("it has no attention between tokens: its layers are a {kind}", kind=msg(kind))
    if own:
        return msg("its attention ({name}) is not a softmax over all tokens that Unmask can trace", name=own[0])
    return msg("it has no attention")


def check_logits(ours: Tensor, theirs: Tensor, keep: Tensor) -> None:
    ours, theirs = ours[keep].float(), theirs[keep]
    precise, precision = theirs.dtype in TOLERANCE, precision_name(theirs.dtype)
    if not theirs.isfinite().all():  # NaN differs from everything
        template = NOT_FINITE if precise else NOT_FINITE_ROUNDED
        raise NotSupported(msg(template, precision=precision))
    allowed = TOLERANCE.get(theirs.dtype, TOLERANCE_16_BIT) * max(float(theirs.abs().max()), 1.0)
    difference = float((ours - theirs.float()).abs().max())
    if not difference <= allowed:
        template = OTHER_LOGITS if precise else OTHER_LOGITS_ROUNDED  # rounding may select other experts
        raise NotSupported(msg(template, difference=difference, precision=precision))


def first_position(stack: OneStack, ids: Tensor) -> int | None:
    """Return the position id that a network gives to a text's first token; None unless it counts up by one from there.

    ids [1,T], a text without padding. The stack is left unchanged.
    """
    takes, before = stack.takes_positions, stack.first_position
    try:
        stack.takes_positions = False
        by_itself = _first_call(stack, ids)
        stack.takes_positions = True
        for stack.first_position in FIRST_POSITIONS:
            if _same_inputs(_first_call(stack, ids), by_itself):
                return stack.first_position
        return None
    finally:
        stack.takes_positions, stack.first_position = takes, before


def _first_call(stack: OneStack, ids: Tensor) -> Call | None:
    run = ScriptedAttention([ids.shape[1]])
    run.ends = True
    try:
        with suppress(AttentionReached), intercepted(run, stack.network, len(ids)):
            stack.reference(Inputs(ids, torch.ones_like(ids, dtype=torch.bool)))
    except IndexError:  # positions beyond its embedding table
        return None
    return run.call


def _same_inputs(one: Call | None, other: Call | None) -> bool:
    if one is None or other is None or len(one.added) != len(other.added):
        return one is other  # a network without attention is refused later
    pairs = zip((one.q, one.k, *one.added), (other.q, other.k, *other.added), strict=True)
    return all(a.shape == b.shape and torch.allclose(a.float(), b.float(), rtol=1e-4, atol=1e-5) for a, b in pairs)
