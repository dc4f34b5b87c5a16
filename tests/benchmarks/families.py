"""Which families are shown, and how far what is shown is from transformers' own eager attention, as a Markdown table.

    python -m tests.benchmarks.families     about two minutes

The checkpoints are the tests': tiny, random, each saved and loaded as a reader's folder.
"""

import tempfile
from pathlib import Path

import torch
from transformers import PreTrainedModel

from model.huggingface import adapter, verify
from model.huggingface.adapter import HuggingFaceModel
from serving.settings import Settings
from tests.model.huggingface import families, more_families
from tests.model.huggingface.test_families import batch_of, eager, network_class, saved
from tests.tensors import largest_difference

CAUSES = {
    "through transformers' attention interface": families.ALL,
    "attention by their own code": more_families.OWN_CODE,
    "hybrids: their attention layers": more_families.HYBRIDS,
    "language parts of larger models, on text": more_families.MULTIMODAL,
    "encoder-decoders that wrap it": more_families.PAIRS,
    "those that select the tokens to attend to": more_families.CHOOSING,
}


def main() -> None:
    print("| families | how many | logits, of the largest | weights |\n|---|---|---|---|")
    for cause, configs in CAUSES.items():
        found = [_differences(name, own=configs is families.ALL) for name in configs]
        logits, weights = (max(one[place] for one in found) for place in (0, 1))
        print(f"| {cause}: {', '.join(configs)} | {len(found)} | {logits:.0e} | {weights:.0e} |")
    reasons: dict[str, list[str]] = {}
    for model_type, why in verify.NOT_SHOWN.items():
        reasons.setdefault(why, []).append(model_type)
    print("\n| refused by its config.json | because |\n|---|---|")
    for why, types in reasons.items():
        print(f"| {', '.join(types)} | {why} |")


def _differences(name: str, *, own: bool) -> tuple[float, float]:
    """The largest difference of logits, as a share of the largest logit, and of weights, on padded rows."""
    with tempfile.TemporaryDirectory() as where:
        folder = families.save(name, Path(where)) if own else saved(name, Path(where))
        loader = families.network_class(name) if own else network_class(name)
        theirs: PreTrainedModel = loader.from_pretrained(folder, attn_implementation="eager").eval()
        return _compared(name, adapter.load(str(folder), settings=Settings()), theirs)


def _compared(name: str, ours: HuggingFaceModel, theirs: PreTrainedModel) -> tuple[float, float]:
    logits, weights = 0.0, 0.0
    for padding in ("left", "right"):
        trace = ours.run(batch_of(ours, padding))
        for row in range(len(trace.batch.ids)):
            expected, attentions = eager(name, theirs, trace.batch, row)
            off = largest_difference(trace.logits[row, trace.batch.real(row)], expected)
            logits = max(logits, off / float(expected.abs().max()))
            for part, layers in attentions.items():
                shown = trace.select(part)
                if len(layers) != shown.num_layers:
                    continue
                for layer, of_theirs in enumerate(layers):
                    here = torch.stack([shown.weights(layer, head, row) for head in range(shown.num_heads)])
                    weights = max(
                        weights, largest_difference(here[:, shown.queries.real(row), shown.keys.real(row)], of_theirs)
                    )
    return logits, weights


if __name__ == "__main__":
    main()
