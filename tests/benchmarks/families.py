"""The supported families, and their largest differences from transformers' eager attention, as a Markdown table.

    python -m tests.benchmarks.families             about two minutes
    python -m tests.benchmarks.families --images    image-text models with an image in the prompt: half a minute

The checkpoints are those of the tests: tiny and random, each saved and then loaded as a user's folder is.
"""

import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForImageTextToText, PreTrainedModel

from model.huggingface import adapter, verify
from model.huggingface.adapter import HuggingFaceModel
from model.huggingface.image_prompts import image_mask
from serving.settings import Settings
from tests.model.huggingface import families, image_families, more_families, test_image_prompts
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
    """Compare all families on text. Raises SystemExit, with a message if logits or weights differ too much."""
    worst = 0.0
    print("| families | how many | logits, of the largest | weights |\n|---|---|---|---|")
    for cause, configs in CAUSES.items():
        found = [_differences(name, own=configs is families.ALL) for name in configs]
        logits, weights = (max(one[column] for one in found) for column in (0, 1))
        worst = max(worst, logits / 1e-3, weights / 1e-5)
        print(f"| {cause}: {', '.join(configs)} | {len(found)} | {logits:.0e} | {weights:.0e} |")
    reasons: dict[str, list[str]] = {}
    for model_type, why in verify.NOT_SHOWN.items():
        reasons.setdefault(why, []).append(model_type)
    print("\n| refused by its config.json | because |\n|---|---|")
    for why, types in reasons.items():
        print(f"| {', '.join(types)} | {why} |")
    raise SystemExit(f"{worst:.1f} of what is tolerated" if worst > 1 else None)


def images() -> None:
    """Compare image-text models. Raises SystemExit, with the families whose logits or weights differ too much."""
    print(
        "| type | tokens, of the image | image mask | pixel boxes | logits, of the largest | weights |\n|" + "---|" * 6
    )
    wrong = []
    for name in image_families.FAMILIES:
        with tempfile.TemporaryDirectory() as where:
            folder = image_families.save(name, Path(where))
            theirs = AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager").eval()
            ours = adapter.load(str(folder), settings=Settings())
            logits, weights = 0.0, 0.0
            for size in ((60, 40), (40, 60), (33, 32)):
                batch = ours.encode_image(test_image_prompts.TEXT, image_families.picture(*size))
                trace = ours.run(batch)
                expected, attentions = test_image_prompts.eager(theirs, batch)
                logits = max(logits, largest_difference(trace.logits[0], expected) / float(expected.abs().max()))
                shown = torch.stack([trace.weights(layer, head) for layer in range(trace.num_layers)
                                     for head in range(trace.num_heads)])  # fmt: skip
                weights = max(weights, largest_difference(shown, attentions.flatten(0, 1)))
        tokens = f"{batch.ids.shape[1]}, {len(batch.image_positions)}"
        print(f"| {name} | {tokens} | {image_mask(trace)} | {len(batch.image_tokens)} | {logits:.0e} | {weights:.0e} |")
        wrong += [name] if logits > 1e-4 or weights > 1e-5 else []
    print(f"\n{len(image_families.FAMILIES)} types, {len(wrong)} wrong")
    raise SystemExit(", ".join(wrong) or None)


def _differences(name: str, *, own: bool) -> tuple[float, float]:
    """Return the largest difference of logits, relative to the largest logit, and of weights, on padded rows."""
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
    images() if "--images" in sys.argv[1:] else main()
