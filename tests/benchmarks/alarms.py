"""The alarms of tests.benchmarks.mask_check, reproduced with plain transformers, without the mask check.

    python -m tests.benchmarks.alarms [TYPE ...]     about two minutes

Prints, for every type with an alarm, what is run and the largest difference of its logits over ROWS texts from those of
the same text alone or in one pass, in float32 and in float64. A difference that float64 does not reduce is no rounding.
"""

import copy
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

from tests.model.huggingface.every_type import network_of

T, PADS, FIRST, ROWS = 24, 8, 9, 24
Run = Callable[[Any, Tensor], float]


def logits(network: Any, ids: Tensor, **more: Any) -> Tensor:
    """Return the logits, ids [B,T] -> [B,T,V]. For an encoder-decoder, ids are those of the decoder."""
    if network.config.is_encoder_decoder:
        more = {"input_ids": torch.arange(5, 12).expand(len(ids), -1), "decoder_input_ids": ids} | more
    else:
        more["input_ids"] = ids
    found = network(**more)
    return found.logits if getattr(found, "logits", None) is not None else found[0]


def by_steps(*sizes: int) -> Run:
    """Return a Run that compares the text in steps of these sizes, through the model's own cache, with one pass."""

    def run(network: Any, ids: Tensor) -> float:
        found, cache, done = [], None, 0
        for size in sizes:
            encoded = {"input_ids": torch.arange(5, 12)[None]} if network.config.is_encoder_decoder else {}
            name = "decoder_input_ids" if encoded else "input_ids"
            given = encoded | {name: ids[:, done : done + size], "past_key_values": cache, "use_cache": True}
            step = network(**given)
            found, cache, done = [*found, step.logits], step.past_key_values, done + size
        return difference(torch.cat(found, 1), logits(network, ids)[:, :done])

    return run


def reordered(network: Any, ids: Tensor) -> float:
    """Run two prompts, exchange the rows of the cache and continue both; compare with one pass."""
    both = torch.cat([ids, ids.flip(1)])
    cache = network(input_ids=both[:, :FIRST], use_cache=True).past_key_values
    cache.reorder_cache(torch.tensor([1, 0]))
    rest = network(input_ids=both.flip(0)[:, FIRST:], past_key_values=cache, use_cache=True).logits
    return difference(rest, logits(network, both.flip(0))[:, FIRST:])


def padded(side: str) -> Run:
    """Return a Run that compares the text, with pads under an attention mask, with the same text without pads."""

    def run(network: Any, ids: Tensor) -> float:
        given, keep, real, more = pads(network, ids, side, 0)
        found = logits(network, given, attention_mask=keep, **more)[:, real]
        return difference(found, logits(network, ids[:, : T - PADS]))

    return run


def filled(side: str) -> Run:
    """Return a Run that compares two contents of the pads under the same attention mask."""

    def run(network: Any, ids: Tensor) -> float:
        rows = []
        for fill in (0, 77):
            given, keep, real, more = pads(network, ids, side, fill)
            rows.append(logits(network, given, attention_mask=keep, **more)[:, real])
        return difference(*rows)

    return run


def pads(network: Any, ids: Tensor, side: str, fill: int) -> tuple[Tensor, Tensor, slice, dict[str, Any]]:
    """Return ids, attention mask, the slice of real tokens, and position_ids for a model that takes them."""
    real = slice(PADS, None) if side == "left" else slice(0, T - PADS)
    given, keep = torch.full_like(ids, fill), torch.zeros_like(ids)
    given[:, real], keep[:, real] = ids[:, : T - PADS], 1
    takes_positions = side == "left" and "position_ids" in network.forward.__code__.co_varnames
    return given, keep, real, {"position_ids": (keep.cumsum(-1) - 1).clamp(min=0)} if takes_positions else {}


def steps_after_pads(network: Any, ids: Tensor) -> float:
    """Run a prompt padded on the left, then token by token with a growing mask; compare with the text alone."""
    given, keep, _, _ = pads(network, ids, "left", 0)
    keep = torch.cat([torch.zeros(1, PADS // 2), torch.ones(1, T - PADS // 2)], 1).long()
    given = torch.cat([torch.zeros_like(ids[:, : PADS // 2]), ids[:, : T - PADS // 2]], 1)
    takes_positions = "position_ids" in network.forward.__code__.co_varnames
    found, cache, done = [], None, 0
    for size in (FIRST + PADS // 2, *[1] * (T - PADS // 2 - FIRST)):
        part = slice(done, done + size)
        more = {"position_ids": (keep.cumsum(-1) - 1).clamp(min=0)[:, part]} if takes_positions else {}
        more |= {"attention_mask": keep[:, : done + size], "past_key_values": cache, "use_cache": True}
        step = network(input_ids=given[:, part], **more)
        found, cache, done = [*found, step.logits], step.past_key_values, done + size
    return difference(torch.cat(found, 1)[:, PADS // 2 :], logits(network, ids[:, : T - PADS // 2]))


def packed(network: Any, ids: Tensor) -> float:
    """Run two documents in one row, separated by positions that restart; compare with each alone."""
    positions = torch.cat([torch.arange(FIRST), torch.arange(T - FIRST)])[None]
    alone = torch.cat([logits(network, ids[:, :FIRST]), logits(network, ids[:, FIRST:])], 1)
    return difference(logits(network, ids, position_ids=positions), alone)


def packed_by_mask(network: Any, ids: Tensor) -> float:
    """Run two documents separated by a mask [1,1,T,T] added to the scores; change the first, compare the second."""
    open_ = torch.block_diag(torch.ones(FIRST, FIRST), torch.ones(T - FIRST, T - FIRST))
    lowest = torch.finfo(network.dtype).min
    mask = torch.zeros(T, T, dtype=network.dtype).masked_fill(open_ == 0, lowest)[None, None]
    positions = torch.cat([torch.arange(FIRST), torch.arange(T - FIRST)])[None]
    other = ids.clone()
    other[:, FIRST - 1] = 77
    rows = [logits(network, one, attention_mask=mask, position_ids=positions) for one in (ids, other)]
    return difference(*(one[:, FIRST:] for one in rows))


def ahead(network: Any, ids: Tensor) -> float:
    """Change each token in turn; return the largest change of the logits before it."""
    rows = ids.repeat(T, 1)
    rows[range(T), range(T)] = 77
    moved = (logits(network, rows) - logits(network, ids)).abs().amax(-1)
    return float(moved.tril(-1).max())


def window(network: Any, ids: Tensor) -> float:
    """Change the first token; return the largest change of the logits beyond the declared windows of all layers."""
    other = ids.clone()
    other[:, 0] = 77
    far = (network.config.sliding_window - 1) * network.config.num_hidden_layers + 1
    return difference(logits(network, ids)[:, far:], logits(network, other)[:, far:])


def first_layer(network: Any, ids: Tensor) -> float:
    """Change the first token; return the change of the last output of the first layer, of type full_attention."""
    outputs: list[Tensor] = []
    handle = network.model.layers[0].register_forward_hook(lambda _part, _given, found: outputs.append(found))
    for first in (int(ids[0, 0]), 77):
        logits(network, torch.cat([torch.tensor([[first]]), ids[:, 1:]], 1))
    handle.remove()
    return difference(*((one[0] if isinstance(one, tuple) else one)[:, -1] for one in outputs))


def in_training(network: Any, ids: Tensor) -> float:
    """Run in training mode with every dropout at 0; compare with eval mode."""
    expected = logits(network, ids)
    network = copy.deepcopy(network).train()
    for part in network.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        for name in [one for one in vars(part) if "dropout" in one or "jitter" in one]:
            setattr(part, name, 0.0 if isinstance(getattr(part, name), float) else getattr(part, name))
    return difference(logits(network, ids), expected)


def derivative(network: Any, ids: Tensor) -> float:
    """Return the relative error of the gradient of one embedding weight, by a central difference in float64."""
    network = network.double()
    weight, entry = network.get_input_embeddings().weight, (int(ids[0, 3]), 1)
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(logits(network, ids).square().sum(), weight)
    found = []
    for step in (1e-4, -2e-4, 1e-4):
        weight.data[entry] += step
        found.append(float(logits(network, ids).square().sum()))
    slope = (found[0] - found[1]) / 2e-4
    return abs(slope - float(gradient[entry])) / abs(slope)


def difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


SHOWN: dict[tuple[str, str], tuple[Run, ...]] = {
    ("causal", "axk2"): (padded("left"), packed, steps_after_pads),
    ("causal", "bamba"): (by_steps(*[1] * T),),
    ("causal", "deepseek_v32"): (padded("right"), packed, by_steps(*[1] * T)),
    ("causal", "deepseek_v4"): (padded("left"), filled("left"), steps_after_pads),
    ("causal", "git"): (steps_after_pads,),
    ("causal", "hrm_text"): (derivative,),
    ("causal", "hy_v4"): (by_steps(8, 1, 3, 2, 1, 3, 2, 1, 3),),
    ("causal", "jamba"): (by_steps(*[1] * T), by_steps(8, 1, 3, 2, 1, 3, 2, 1, 3)),
    ("causal", "minimax"): (reordered, first_layer),
    ("causal", "minimax_m3_vl_text"): (padded("left"), filled("left"), steps_after_pads),
    ("causal", "moshi"): (window, by_steps(*[1] * T)),
    ("causal", "nemotron_h"): (by_steps(*[1] * T),),
    ("causal", "phimoe"): (in_training,),
    ("causal", "prophetnet"): (ahead, padded("right")),
    ("causal", "recurrent_gemma"): (padded("left"), filled("left")),
    ("causal", "rwkv"): (padded("left"), filled("left")),
    ("causal", "zamba"): (by_steps(8, 1, 3, 2, 1, 3, 2, 1, 3),),
    ("masked", "convbert"): (padded("right"), filled("right"), packed_by_mask),
    ("masked", "funnel"): (padded("right"), filled("right")),
    ("masked", "mobilebert"): (padded("right"), filled("right"), packed_by_mask),
    ("masked", "mpnet"): (padded("right"), padded("left"), filled("left")),
    ("masked", "nystromformer"): (padded("right"), filled("right"), packed_by_mask),
    ("masked", "yoso"): (padded("right"), filled("right")),
    ("seq2seq", "fsmt"): (by_steps(*[1] * T), by_steps(8, 1, 3, 2)),
    ("seq2seq", "prophetnet"): (ahead,),
}


def shown(mapping: str, name: str, run: Run) -> Iterator[str]:
    rows = torch.randint(5, 300, (ROWS, 1, T), generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float32, torch.float64):
        network = network_of(mapping, name).to(dtype)
        with suppress(Exception):  # grouped matrix products of experts do not support float64
            network.set_experts_implementation("eager")
        try:
            with torch.no_grad():
                yield f"{max(run(network, ids) for ids in rows):.2g}"
        except Exception as error:  # noqa: BLE001 - some compute in float32 inside
            yield f"{type(error).__name__}: {str(error)[:60]}"


def main() -> None:
    hf.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    print("| mapping | model type | what is run | float32 | float64 |\n|---|---|---|---|---|")
    for (mapping, name), runs in SHOWN.items():
        for run in runs if not sys.argv[1:] or name in sys.argv[1:] else ():
            words = run.__qualname__.split(".")[0]
            print(f"| {mapping} | {name} | {words} | {' | '.join(shown(mapping, name, run))} |", flush=True)


if __name__ == "__main__":
    main()
