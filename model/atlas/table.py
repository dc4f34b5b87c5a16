"""The tables of an atlas: a row for each head, and a row for each example. Used by the page and the command."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import torch

from model.atlas.result import BINS, MEASURES, NAMES, Atlas
from model.masks import MaskSpec
from model.trace import Trace


@torch.inference_mode()
def weight_there(trace: Trace, row: int, masks: MaskSpec, queries: Sequence[int], keys: Sequence[int]) -> np.ndarray:
    """Return the queries' mean weight on all the keys together, float64 [L,H], 0 to 1. Counts queries that may attend
    to one of the keys; NaN in a layer without any. Raises ValueError for no or invalid queries and keys."""
    sizes = len(trace.queries.pieces[row]), len(trace.keys.pieces[row])
    for name, some, size in (("queries", queries, sizes[0]), ("keys", keys, sizes[1])):
        if not some or not all(0 <= one < size for one in some):
            raise ValueError(f"expected {name} from 0 to {size - 1}, at least one, got {list(some)}")  # not shown
    result = np.zeros((trace.num_layers, trace.num_heads))
    for layer in range(trace.num_layers):
        some = [query for query in queries if trace.allowed(layer, row, masks)[query, list(keys)].any()]
        for head in range(trace.num_heads):
            weights = trace.weights(layer, head, row, masks)[some][:, list(keys)]
            result[layer, head] = float(weights.double().sum(-1).mean()) if some else np.nan
    return result


EXAMPLES = 3  # of each head, measure and decile


def measures_table(atlas: Atlas) -> pd.DataFrame:
    """Return a row per head: its layer, numbered as in the network, its head, its names ("called"), every measure."""
    heads = list(np.ndindex(atlas.layers, atlas.heads))
    called = [", ".join(MEASURES[name].title for name in atlas.named(*head)) for head in heads]
    layers, numbers = zip(*heads, strict=True)
    columns = {"layer": [atlas.numbers[layer] for layer in layers], "head": numbers, "called": called}
    return pd.DataFrame(columns | {name: atlas.measure(name).ravel() for name in (*NAMES, *atlas.of_weights)})


def heads_table(atlas: Atlas) -> pd.DataFrame:
    """Return `measures_table` with all else that is known of a head: even_…, what a head with uniform weights would
    measure in its layer; queries_…, over how many; spread [{from, to, share}] by distance back, 0 is itself, negative
    ahead; key_tokens, query_tokens [{token, share, count}]."""
    table = measures_table(atlas)
    heads = list(np.ndindex(atlas.layers, atlas.heads))
    for number, name in enumerate(NAMES):
        table[f"even_{name}"] = [atlas.even[number, layer] for layer, _ in heads]
        table[f"queries_{name}"] = [int(atlas.counts[number, layer]) for layer, _ in heads]
    longest = atlas.at_offset.shape[-1] // 2
    edges = [(-longest, -1), (0, 0), *((low, min(high, longest)) for low, high in BINS if low <= longest)]
    table["spread"] = [
        [
            {"from": low, "to": high, "share": share}
            for (low, high), share in zip(edges, atlas.spread[head], strict=False)
        ]
        for head in heads
    ]
    table["key_tokens"] = [[vars(one) for one in atlas.key_tokens(*head)] for head in heads]
    table["query_tokens"] = [[vars(one) for one in atlas.query_tokens(*head)] for head in heads]
    return table


def examples_table(atlas: Atlas) -> pd.DataFrame:
    """Return a row per example: of each head and measure, EXAMPLES of every tenth of the sampled queries. source and
    text number the files and the texts of each from 0; keys: [{position, token, weight}]."""
    rows = []
    for name in MEASURES:
        for layer, head in np.ndindex(atlas.layers, atlas.heads):
            for decile in atlas.deciles(name, layer, head, EXAMPLES):
                for one in decile.examples:
                    keys = [{"position": key, "token": one.pieces[key], "weight": weight} for key, weight in one.keys]
                    rows.append({
                        "layer": atlas.numbers[layer], "head": head, "measure": name, "decile": decile.number,
                        "value": one.value, "source": one.source, "text": one.number, "row": one.text,
                        "position": one.query, "token": one.pieces[one.query], "keys": keys,
                    })  # fmt: skip
    return pd.DataFrame(rows)


def as_parquet(table: pd.DataFrame, about: dict[str, object]) -> bytes:
    """Convert a table to a Parquet file; about: its metadata under "unmask", as JSON."""
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    arrow = arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), b"unmask": json.dumps(about).encode()})
    sink = pa.BufferOutputStream()
    parquet.write_table(arrow, sink, compression="zstd")
    return bytes(sink.getvalue())


def examples_path(out: Path) -> Path:
    """Return the path of the examples beside the heads': atlas.parquet, atlas.examples.parquet."""
    return out.with_suffix(".examples" + out.suffix)
