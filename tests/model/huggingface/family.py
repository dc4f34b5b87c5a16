"""A family's checkpoint loaded twice: into Unmask's attention and into transformers' eager attention."""

from pathlib import Path

import torch
from transformers import PreTrainedModel

from model import catalog
from model.base import Model
from model.huggingface import adapter
from model.masks import MaskSpec
from model.text import TokenBatch
from model.trace import Trace
from serving.settings import Settings
from tests.model.huggingface import families
from tests.tensors import assert_near

TEXTS = ["the cat sat on a mat and then it saw", "one big red ball", "red ball near the old mat"]
TARGETS = ["a big cat and a ball", "it sat", "one old mat saw the red ball"]
WEIGHTS, LOGITS = 1e-5, 1e-4  # the largest differences allowed


class Family:
    """A tiny checkpoint, loaded by Unmask (`ours`) and by transformers with eager attention (`theirs`)."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.ours = adapter.load(str(families.save(name, folder)), settings=Settings())
        loader = families.network_class(name)
        self.theirs: PreTrainedModel = loader.from_pretrained(folder, attn_implementation="eager").eval()

    def batch(self, padding: str) -> TokenBatch:
        """Return the texts as a batch. padding: "none" (one text), "left" or "right"."""
        texts, targets = (TEXTS[:1], TARGETS[:1]) if padding == "none" else (TEXTS, TARGETS)
        side = "right" if padding == "none" else padding
        given = {"targets": targets} if self.name in families.PAIRS else {}
        return self.ours.encode(texts, side, **given)

    def run(self, padding: str = "none", spec: MaskSpec | None = None) -> Trace:
        return self.ours.run(self.batch(padding), spec)


def assert_shown(name: str, stored: str, network: PreTrainedModel) -> Model:
    """Assert that a GGUF or bitsandbytes model is shown as this eager network, which has its weights in float32; return
    the model."""
    catalog.inspect(name, Settings())
    model = catalog.load(name, settings=Settings())
    assert f"stored in {stored} and computed in float32 on CPU" in model.describe().precision
    batch = model.encode(TEXTS[:2])
    trace = model.run(batch)
    with torch.inference_mode():
        theirs = network(batch.ids, attention_mask=batch.keep.long(), output_attentions=True)
    assert_near(trace.logits[batch.keep], theirs.logits[batch.keep], 1e-5, "logits")
    for layer, weights in enumerate(theirs.attentions):
        for head in range(weights.shape[1]):
            assert_near(trace.weights(layer, head), weights[0, head], 1e-5, f"layer {layer}, head {head}")
    return model
