"""Laws tested by gradients: each layer's mask, unused parameters, gradients that are not derivatives, checkpointing.

Sizes: B rows, T tokens, W width.
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from i18n import N_, msg, msg_count, msg_list
from mask_check.declared import Declared, LayerMask
from mask_check.findings import BROKEN, OBEYS, Finding, format_amount, skipped, unknown
from mask_check.kernels import training_without_dropout
from mask_check.reach import gradients_by, watching_embeddings
from mask_check.rounding import fits_in_float64, outputs_and_coarsest, tensors
from mask_check.subject import embeddings, hooks_on, max_difference, model_of_transformers, setting
from mask_check.trial import CheckTrial, within
from model.errors import CheckpointError

# Steps of finite differences, several in case a kink lies within one, and the largest error, as a share of the scale
# of all directions: in float64, and if a module computes in float32 inside, as many do in norms and softmax
STEPS = {torch.float64: ((1e-5, 1e-6, 1e-4), 1e-4), torch.float32: ((3e-3, 1e-3, 3e-4), 3e-2)}
SMOOTH = 0.05  # largest relative spread of these differences where there is a derivative
MAX_NAMED = 200
LAYER_LENGTHS = 130, 520
ABRUPT = 1e-6  # share of the largest gradient: gradients below it before they end may have decayed to 0
CHECKPOINTED = ("gradient_checkpointing", "use_checkpoint", "checkpointing", "use_checkpointing")
INPUT_HOOKS = ("_require_grads_hooks", "_require_grads_hook")  # where transformers keeps its hooks on embeddings
TOP_K = ("index_topk", "sparse_topk", "top_k_keys")
WIDER = N_("layer {layer}: output {row} reads token {column}, {distance} before it, which its mask ({mask}) blocks.")
NARROWER = N_(
    "layer {layer}: none of its last 3 outputs reads the token {distance} before it, which its mask ({mask}) allows."
)
CUT = N_(
    "layer {layer}: none of its last 3 outputs reads a token more than {distance} before it, which its mask ({mask}) "
    "allows."
)
NEARBY = N_(
    "layer {layer}: in a row of {length} tokens its last 3 outputs do not read the first tokens, and nothing declares "
    'a window or chunks. If that is meant, pass a mask for each layer; if not, mask="causal" counts it as a violation.'
)
NO_DERIVATIVE = N_("the gradient for {name} is not the derivative of the outputs: a wrong backward, or a detach()?")
TOO_MANY = N_("layer {layer}: output {row} reads {count} other tokens, where the {top} highest are declared.")


def judge_layers(trial: CheckTrial) -> Finding:
    """In each layer by itself, the last outputs have a gradient with respect to exactly the inputs that its mask allows
    or, where it declares a top k, to no more than k of them.

    Tolerated: nothing; a gradient is exactly 0 or not. Limits: a list of layers must be found in the module, and a row
    longer than the window must fit; up to --tokens are read. A layer that has a convolution reads past its window, and
    is left out.
    """
    subject = trial.subject
    masks, two = trial.declared.masks, subject.kind == "encoder-decoder" and hasattr(subject.inner, "get_decoder")
    reader = subject.inner.get_decoder() if two else subject.inner
    lists = (one for one in reader.modules() if isinstance(one, nn.ModuleList))
    parts = next((one for one in lists if len(one) == len(masks)), None)
    if not masks:
        given_as_cells = N_("its layers are checked on a longer row, and a mask given by hand has only one length.")
        whole = N_("the masks of its layers are not known: the mask was given for the whole module.")
        return skipped(msg(given_as_cells if trial.given_as_cells else whole))
    if parts is None:
        words = N_(
            "its layers were not found: its configuration does not say how many it has (num_hidden_layers), or no "
            "ModuleList has as many parts."
        )
        return skipped(msg(words))
    top = next((int(value) for name in TOP_K if (value := getattr(subject.config, name, None))), 0)
    wide = {
        number: mask.window or mask.chunk or top
        for number, mask in enumerate(masks)
        if not any("conv" in name for name, _ in parts[number].named_modules())
    }
    context = trial.max_tokens or max(LAYER_LENGTHS)
    max_length = min(context, max(*LAYER_LENGTHS, trial.options.tokens or 0))
    fitting = [size for size in wide.values() if size + 2 < max_length]
    usual = min(LAYER_LENGTHS[0], within(trial.max_tokens))
    length = trial.fitting(min(max_length, max(usual, max(fitting, default=0) + 8)))
    testable = [number for number, size in wide.items() if size + 2 < length]
    if not testable:
        size = max(wide.values(), default=0)
        return skipped(msg("its window or top k ({size}) is longer than the rows checked.", size=size))
    read = _read_by_layers(trial.at(length), {number: parts[number] for number in testable})
    for number, reads in read.items():
        if wrong := _judge_layer(number, masks[number], reads, top, trial.declared):
            return wrong
    if not read:
        return unknown(msg("no layer could be run by itself."))
    numbers = msg_list([str(one) for one in read])
    words = msg_count(
        "the last 3 outputs of layer {numbers} read what its mask allows, in {length} tokens.",
        "the last 3 outputs of layers {numbers} read what their masks allow, in {length} tokens.",
        len(read), numbers=numbers, length=length,
    )  # fmt: skip
    return Finding(OBEYS, words)


def _read_by_layers(trial: CheckTrial, parts: dict[int, nn.Module]) -> dict[int, Tensor]:
    """Return [3,T] by layer number: the largest gradient of its last three outputs with respect to each input."""
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def keep(part: nn.Module, given: tuple[Any, ...], named: dict[str, Any], found: Any) -> None:
        own: Any = given[0] if given else named.get("hidden_states")
        states = found[0] if isinstance(found, tuple) else found
        known = all(isinstance(one, Tensor) and one.ndim == 3 and one.requires_grad for one in (own, states))
        if known and own is not states:
            seen.setdefault(part, (own, states))

    ids, rows = trial.ids[None], range(trial.length - 3, trial.length)
    with watching_embeddings(trial.subject, ids), hooks_on(parts.values(), keep, with_kwargs=True), torch.enable_grad():
        trial.subject.call(ids)
    read = {}
    for number, part in parts.items():
        if part not in seen:
            continue
        own, states = seen[part]
        sign = torch.randint(0, 2, states.shape[2:], generator=trial.generator(12)).to(states) * 2 - 1
        each = [torch.autograd.grad((states[0, row] * sign).sum(), own, retain_graph=True)[0][0] for row in rows]
        gradients = torch.stack(each).abs().amax(-1).cpu()
        if int((gradients > 0).sum()) > 3:  # else it attends to another layer's keys, or to none
            read[number] = gradients
    return read


def _judge_layer(number: int, mask: LayerMask, gradients: Tensor, top: int, declared: Declared) -> Finding | None:
    reads, length = gradients > 0, gradients.shape[1]
    rows = torch.arange(length - 3, length)
    open_ = mask.allowed(length)[rows]
    values: dict[str, Any] = {"layer": number, "mask": mask.words}
    wider = (reads & ~open_).nonzero().tolist()
    if wider and (mask.window or mask.chunk):  # for other masks, the laws of influence report more
        row, column = int(rows[wider[0][0]]), wider[0][1]
        return Finding.at((row, column), WIDER, **values, distance=row - column)
    others = reads & (rows[:, None] != torch.arange(length))  # a residual connection reads the token itself
    if top and bool((others.sum(1) > top).any()):
        index = int((others.sum(1) > top).nonzero()[0])
        pair = (int(rows[index]), int(reads[index].nonzero()[0]))
        return Finding.at(pair, TOO_MANY, **values, count=int(others[index].sum()), top=top)
    if top or not declared.exact or mask.chunk:
        return None
    farthest = length - 3 if mask.window is None else mask.window - mask.causal
    at = [gradients[torch.arange(3), rows - one].max() for one in range(farthest + 1)]  # by distance
    shut = [one for one, size in enumerate(at) if size == 0]
    if not shut:
        return None
    if mask.window is None and (any(at[shut[0] :]) or at[shut[0] - 1] < ABRUPT * max(at)):
        return None  # which tokens it reads depends on the ids, or its gradients decay
    if declared.assumed:
        return unknown(msg(NEARBY, layer=number, length=length))
    words, pair = CUT if mask.window is None else NARROWER, (length - 1, length - 1 - shut[0])
    return Finding.at(pair, words, **values, distance=shut[0] - (mask.window is None), silent=len(shut))


def judge_derivative(trial: CheckTrial) -> Finding:
    """The gradient with respect to all parameters agrees with finite differences, in a copy of the module in float64.

    Tolerated: 1e-4 of the derivative with respect to all parameters in a random direction, 3e-2 where some of it is
    computed in float32 anyway. Limits: a straight-through estimator, or a clipped gradient, differs from the
    derivative on purpose; modules over 30 M parameters need --thorough.
    """
    subject = trial.subject
    if not fits_in_float64(trial):
        return skipped(msg("it is too large to be copied to float64 without --thorough."))
    copied, ids = subject.in_float64(), trial.ids[None]
    named = trained_parameters(copied.inner)
    steps = _directions(copied.inner, named, trial.generator(14))

    def mix() -> Tensor:
        return random_mix(copied.read(copied.call(ids), ids), trial.generator(13))

    outputs, dtype = outputs_and_coarsest(copied, ids)
    same = trial.difference(outputs.to(trial.alone), trial.alone)
    if same.amount > trial.tolerance:  # PyTorch adds a mask of float32 wrongly to scores of float64
        return skipped(msg("its copy in float64 gives different outputs, by {amount}.", **same.values))
    if dtype not in STEPS:
        return skipped(msg("it computes in {dtype} inside, which is too coarse for finite differences.", dtype=dtype))
    with setting((parameter, "requires_grad", True) for parameter in named.values()), torch.enable_grad():
        total = mix()
        if not total.requires_grad:
            return unknown(msg("its outputs have no gradient, as those of argmax or under torch.no_grad()."))
        gradients = torch.autograd.grad(total, list(named.values()), allow_unused=True)
    slopes = {
        name: 0.0 if gradient is None else float((gradient * steps[name]).sum())
        for name, gradient in zip(named, gradients, strict=True)
    }
    scale = max(sum(one**2 for one in slopes.values()) ** 0.5, 1e-12)

    def differences(names: list[str], sizes: Sequence[float]) -> list[float]:
        """Return how far finite differences along these directions are from the gradients, for each step size."""
        expected, moved = sum(slopes[name] for name in names), [(named[name], steps[name]) for name in names]
        return [(_slope(mix, moved, h) - expected) / scale for h in sizes]

    for sizes, wrong in dict.fromkeys((STEPS[torch.float64], STEPS[dtype])):
        amount = min(map(abs, differences(list(named), sizes)))
        if amount <= wrong:
            return Finding(OBEYS, msg("gradients are the derivatives of the outputs."), amount, wrong)
    for name in list(named)[:MAX_NAMED]:
        each = differences([name], sizes)
        amount = min(map(abs, each))
        if amount > wrong and max(each) - min(each) < SMOOTH * amount:
            return Finding(BROKEN, msg(NO_DERIVATIVE, name=name), amount, wrong)
    return unknown(msg("its outputs are not smooth in its parameters: finite differences of two sizes differ."))


def _directions(module: nn.Module, named: dict[str, nn.Parameter], generator: torch.Generator) -> dict[str, Tensor]:
    """Return a random step for each parameter, scaled to the mean size of its values."""
    steps = {}
    for name, parameter in named.items():
        drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter)
        steps[name] = drawn * max(float(parameter.detach().abs().mean()), 1e-3)
        for part in embeddings(module):
            if part.weight is parameter and part.padding_idx is not None:  # a row that has no gradient on purpose
                steps[name][part.padding_idx] = 0.0
    return steps


def _slope(mix: Callable[[], Tensor], moved: Sequence[tuple[Tensor, Tensor]], h: float) -> float:
    """Return the central difference along these steps."""
    found = []
    for sign in (h, -2 * h, h):
        with torch.no_grad():
            for parameter, step in moved:
                parameter += sign * step
        with torch.enable_grad():  # as for gradients: nn.TransformerEncoderLayer runs other code without it
            found.append(float(mix().detach()))
    return (found[0] - found[1]) / (2 * h)


def judge_checkpointing(trial: CheckTrial) -> Finding:
    """Outputs, and gradients with respect to the embeddings, are the same with and without gradient checkpointing, in
    training mode without dropout.

    Tolerated: rounding of outputs, a thousandth of the largest gradient. Limits: it is turned on by transformers'
    method or an attribute such as gradient_checkpointing.
    """
    module = trial.subject.inner
    with training_without_dropout(module), warnings.catch_warnings(), _checkpointing(module) as switches:
        if not switches:
            return skipped(msg("it has no gradient checkpointing."))
        checkpointed = _outputs_and_gradient(trial)
        with setting((*one, False) for one in switches):
            plain = _outputs_and_gradient(trial)
    broken = N_("with gradient checkpointing output {where} differs by {amount}.")
    finding = trial.compared(checkpointed[0], plain[0], broken, msg("gradient checkpointing changes no output."))
    if finding.verdict == BROKEN or plain[1] is None or checkpointed[1] is None:
        return finding
    difference = float(max_difference(checkpointed[1], plain[1]).max())
    tolerance = max(1e-3, 32 * torch.finfo(trial.subject.dtype).eps) * float(plain[1].abs().max())
    if difference > tolerance:
        words = msg("with gradient checkpointing a gradient differs by {amount}.", amount=format_amount(difference))
        return Finding(BROKEN, words, difference, tolerance)
    return Finding(OBEYS, msg("gradient checkpointing changes no output and no gradient."), difference, tolerance)


@contextmanager
def _checkpointing(module: nn.Module) -> Iterator[list[tuple[nn.Module, str]]]:
    """Turn gradient checkpointing on within the context. Yields the attributes that turn it off, [] without any."""
    warnings.simplefilter("ignore")

    def switches(on: bool) -> list[tuple[nn.Module, str]]:
        return [(part, name) for part in module.modules() for name in CHECKPOINTED if vars(part).get(name) is on]

    off, known = switches(False), hasattr(module, "gradient_checkpointing_enable")
    if switches(True) or not off or not getattr(module, "supports_gradient_checkpointing", True):
        yield switches(True)
        return
    if not known:
        with setting((*one, True) for one in off):
            yield off
        return
    own = {name: vars(module)[name] for name in INPUT_HOOKS if name in vars(module)}
    try:
        module.gradient_checkpointing_enable()  # type: ignore[operator]
        yield switches(True)
    finally:
        module.gradient_checkpointing_disable()  # type: ignore[operator]
        getattr(module, "disable_input_require_grads", lambda: None)()  # hooks that enabling has registered
        for name in INPUT_HOOKS:
            vars(module).pop(name, None)
        vars(module).update(own)


def judge_compile(trial: CheckTrial) -> Finding:
    """The module traced by torch.compile, without a compiler backend, gives the same outputs.

    Tolerated: rounding. Limits: traced only with --thorough; what a compiler does is not tested.
    """
    if not trial.options.thorough:
        return skipped(msg("torch.compile is tried only with --thorough."))
    traced = copy.copy(trial.subject)
    traced.module = torch.compile(trial.subject.inner, backend="eager", dynamic=False)  # type: ignore[assignment]
    torch._dynamo.reset()
    try:
        found = traced.outputs(trial.ids[None])[0]
    finally:
        torch._dynamo.reset()
    broken = N_("under torch.compile output {where} differs by {amount}.")
    return trial.compared(found, trial.alone, broken, msg("torch.compile changes no output."))


def _outputs_and_gradient(trial: CheckTrial) -> tuple[Tensor, Tensor | None]:
    """Return outputs [T,V], and the gradient [1,T,W] of a mix of them with respect to the embeddings of the ids."""
    ids = trial.ids[None]
    with watching_embeddings(trial.subject, ids) as leaves, torch.enable_grad():
        logits = trial.subject.read(trial.subject.call(ids), ids)
        each = gradients_by(leaves, random_mix(logits, trial.generator(13))) if leaves else []
    return logits.detach()[0], torch.cat(each, -1) if each else None


def random_mix(found: Any, generator: torch.Generator) -> Tensor:
    """Return a random ±1 combination of all finite numbers in the tensors that a forward returned."""
    total = torch.zeros((), dtype=torch.float64)
    for one in tensors(found):
        sign = torch.randint(0, 2, one.shape, generator=generator).to(one) * 2 - 1
        total = total.to(one.device) + (torch.where(one.isfinite(), one, 0.0) * sign).double().sum()
    return total


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained; if all are frozen, all but those that are never trained."""
    fixed = _fixed(module)
    named = {name: p for name, p in module.named_parameters() if p.is_floating_point() and p not in fixed}
    return {name: p for name, p in named.items() if p.requires_grad} or named


def _fixed(module: nn.Module) -> set[nn.Parameter]:
    """Return the parameters that a transformers class freezes, as sinusoidal tables. from_pretrained unfreezes them."""
    model_class, network = model_of_transformers(module)
    if model_class is None:
        return set()
    from model.huggingface.described import without_weights  # takes seconds to import

    try:
        made = without_weights(model_class.__name__, network.config, model_class)
    except CheckpointError:
        return set()
    frozen = {name for name, parameter in made.named_parameters() if not parameter.requires_grad}
    return {parameter for name, parameter in network.named_parameters() if name in frozen}
