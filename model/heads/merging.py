"""Merging of tokens into words or sentences: weights are summed over the keys of a group, and averaged over its
queries, so that a merged row tells where a word, or a sentence, attends, and sums to what its rows sum to.

Sizes: Q queries, K keys, R groups of queries, C groups of keys. Groups are consecutive: an array of the position that
each begins at, the first at 0.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from model.errors import whole_numbers
from model.heads.view import HeadView, head_view
from model.masks import MaskSpec
from model.text import TokenBatch, readable
from model.trace import Trace

By = Literal["tokens", "words", "sentences"]
BY: tuple[By, ...] = ("tokens", "words", "sentences")
LONGEST_LABEL = 80  # characters of a group's label
TAIL = 12  # last characters of a group that decide whether the next token belongs to it
MARKS = str.maketrans({"·": " ", "Ġ": " ", "▁": " ", "⏎": "\n", "Ċ": "\n", "⇥": "\t"})  # marks of spaces in labels
SPECIAL = re.compile(  # <s>, [CLS], [TOOL_CALLS] …; and image tokens, which are no letters of a word: ▦1, r0 c5: 2
    r"<[^<>\s]+>|\[/?([A-Z][A-Z_]*|[gs]MASK|unused)[0-9]*\]|▦[0-9]+|r[0-9]+ c[0-9]+(: [0-9])?"
)
PART_OF_A_CHARACTER = re.compile("(⟨[89A-F][0-9A-F]( [89A-F][0-9A-F])*⟩)+")  # as model/text.py labels it
APOSTROPHES = ("'", "’")
NO_SPACES = re.compile(  # scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
WORD_PIECE = re.compile("##[^#]")
ENDED = re.compile(r"[.!?…．؟۔।॥։።။។]['\"”’)\]]*\s*$")
ENDED_WITHOUT_SPACE = re.compile(r"[。！？｡][”’」』）]*\s*$")
Groups = tuple[np.ndarray, np.ndarray]  # of queries, of keys


def merged_head(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, by: By) -> HeadView:
    """Return a head under the run's masks, or (same queries and keys) under others, merged."""
    view, groups = head_view(trace, row, masks, layer, head), merge_groups(trace, row, by)
    return view if groups is None else merged(view, *groups)


def merge_groups(trace: Trace, row: int, by: By) -> Groups | None:
    """Return the groups of a row's queries and of its keys; None if tokens are not merged. Raises ValueError for a `by`
    not in BY."""
    if by == "tokens":
        return None
    return groups_of(trace.queries, row, by), groups_of(trace.keys, row, by)


def groups_of(batch: TokenBatch, row: int, by: By) -> np.ndarray:
    """Group a row's tokens by the text that they were read from, or by their labels if there is none."""
    labels = batch.pieces[row]
    if by == "tokens":
        return np.arange(len(labels))
    if row >= len(batch.texts) or len(batch.ends[row]) != len(labels):
        begins = groups_of_labels(labels, by)
    else:
        text, ends = batch.texts[row], batch.ends[row]
        read = [text[begin:end] for begin, end in zip((0, *ends), ends, strict=False)]
        written = [SPECIAL.fullmatch(label) and span.strip() == label for label, span in zip(labels, read, strict=True)]
        spans = ["" if special else span for special, span in zip(written, read, strict=True)]  # as in a chat template
        begins = _groups(spans, labels, by)
    # T5 and Marian begin a target with their padding token: beside padding, its label alone does not tell
    return np.union1d(begins, np.flatnonzero(np.diff(batch.kept[row])) + 1)


def groups_of_labels(labels: Sequence[str], by: By) -> np.ndarray:
    """Group tokens by labels alone, which mark a space before a word (GPT-2's Ġ, SentencePiece's ▁, our ·), or what
    continues one (WordPiece's ##); without such labels, each token is a word."""
    if by == "tokens":
        return np.arange(len(labels))
    spans = ["" if SPECIAL.fullmatch(label) else label.translate(MARKS) for label in labels]
    if any(map(WORD_PIECE.match, labels)) or not any(" " in span for span in spans):
        spans = [span[2:] if WORD_PIECE.match(span) else span and f" {span}" for span in spans]
    return _groups(spans, labels, by)


def _groups(spans: Sequence[str], labels: Sequence[str], by: By) -> np.ndarray:
    """Return where groups begin. spans: each token's text with the space before it, "" for a special token, a group of
    its own, or with equal ones (padding); and for further tokens of one character (½ as 1, ⁄ and 2, or bytes)."""
    continues_group = {"words": _same_word, "sentences": _same_sentence}.get(by if isinstance(by, str) else "")
    if continues_group is None:
        raise ValueError(f"expected one of {', '.join(BY)}, got {by!r}")  # not shown
    begins, before, was_special, read = [], "", True, False
    for position, (span, label) in enumerate(zip(spans, labels, strict=True)):
        special = not span and (not read or bool(SPECIAL.fullmatch(label)))
        read = read or bool(span)
        if special:
            same = was_special and label == labels[position - 1]
        else:
            after = spans[position + 1] if position + 1 < len(spans) else ""
            same = not was_special and (not span or continues_group(before, span, after))
        if not position or not same:
            begins.append(position)
            before = ""
        before, was_special = (before + span)[-TAIL:], special
    return np.array(begins)


def _same_word(before: str, span: str, after: str) -> bool:
    """Whether a token continues the word before it. after: the next token's text, "" for none."""
    if not before or (before.isspace() and "\n" not in before):
        return True
    if before[-1:].isspace() or span[0].isspace():
        return False
    if unicodedata.category(span[0]).startswith("M"):  # a combining mark belongs to the letter before it
        return True
    if NO_SPACES.match(before[-1:]) or NO_SPACES.match(span):
        return False
    if span in APOSTROPHES:
        return before[-1:].isalpha() and after[:1].isalpha()  # o'clock
    if re.search(r"\w['’]$", before) and span[0].isalpha():
        return True
    return _in_word(before[-1:]) == _in_word(span[0]) or bool(re.match(r"['’]\w", span))


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")


def _same_sentence(before: str, span: str, _after: str) -> bool:
    """Whether a token continues the sentence before it; a line's end ends one too."""
    if not span.strip():
        return True
    if before.rstrip(" \t").endswith("\n"):
        return False
    if ENDED_WITHOUT_SPACE.search(before):
        return span[0] in "。！？｡”’」』）"
    return not (ENDED.search(before) and (span[0].isspace() or before[-1:].isspace()))


def merged(view: HeadView, rows: np.ndarray, columns: np.ndarray) -> HeadView:
    """Merge a whole view: a row for each group of queries, a column for each group of keys. A cell's score is the
    log-sum-exp of its allowed keys', which the softmax takes to the sum of their weights, averaged over the queries
    that have one; of all its keys if none is allowed."""
    scaled = _merged_scores(np.where(view.any_blocked(), -np.inf, view.scaled), rows, columns)
    closed = np.isnan(scaled)
    if closed.any():
        scaled = np.where(closed, _merged_scores(view.scaled, rows, columns), scaled)
    return replace(
        view,
        weights=merged_weights(view.weights, rows, columns),
        scaled=scaled.astype(np.float32),
        blocked=merged_masks(view.blocked, rows, columns),
        queries=merged_labels(view.queries, rows),
        keys=merged_labels(view.keys, columns),
        merged=True,
    )


def _merged_scores(scores: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Merge scores [Q,K] -> [R,C], NaN where a cell has no finite score."""
    with np.errstate(invalid="ignore"):
        by_query = np.logaddexp.reduceat(scores, columns, axis=1)
        known = np.isfinite(by_query)
        sums = np.add.reduceat(np.where(known, by_query, 0), rows, axis=0)
        return sums / np.add.reduceat(known.astype(np.float64), rows, axis=0)


def merged_masks(blocked: dict[str, np.ndarray], rows: np.ndarray, columns: np.ndarray) -> dict[str, np.ndarray]:
    """Merge each mask bool [Q,K] -> [R,C]: a merged cell is blocked only if all of its cells are, by every mask that
    blocks some of them."""
    if not blocked:
        return {}
    whole = _both(np.logical_and, np.logical_or.reduce([*blocked.values()]), rows, columns)
    return {name: whole & _both(np.logical_or, mask, rows, columns) for name, mask in blocked.items()}


def merged_weights(weights: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Merge weights, float32 [.., Q,K] -> [.., R,C]. A query without any weight is left out of its group's mean."""
    sums = np.add.reduceat(weights, columns, axis=-1)
    attending = np.add.reduceat(weights.any(-1).astype(np.float32), rows, axis=-1)
    return np.add.reduceat(sums, rows, axis=-2) / np.maximum(attending, 1)[..., None]


def merged_labels(labels: Sequence[str], begins: np.ndarray) -> list[str]:
    """Return a label for each group: those of its tokens, one after another, or "<pad> × 20"."""
    if len(begins) == len(labels):
        return list(labels)
    found = []
    for begin, end in zip(begins, [*begins[1:], len(labels)], strict=True):
        group = labels[begin:end]
        label = PART_OF_A_CHARACTER.sub(_characters, "".join(group))
        if len(group) > 1 and SPECIAL.fullmatch(group[0]) and len(set(group)) == 1:
            label = f"{group[0]} × {len(group)}"
        found.append(label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…")
    return found


def _characters(parts: re.Match[str]) -> str:
    return readable(bytes.fromhex(parts.group().replace("⟨", " ").replace("⟩", " ")))


def _both(reduce: np.ufunc, mask: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return np.asarray(reduce.reduceat(reduce.reduceat(mask, columns, axis=1), rows, axis=0))


def merged_blocked(blocked: np.ndarray, groups: Groups | None) -> np.ndarray:
    """Merge blocked cells, bool [Q,K] -> [R,C], True where all cells are blocked."""
    return blocked if groups is None else _both(np.logical_and, blocked, *groups)


def over_queries(view: HeadView, queries: Sequence[int], how: Literal["mean", "sum"] = "mean") -> HeadView:
    """Merge some queries of a view into one row, the mean or the sum of theirs (its weights go up to the number of
    queries). queries: positions. Raises ValueError for no query, one that does not exist, and another `how`."""
    first, end = view.first, view.first + len(view.queries)
    rows = sorted({query - first for query in whole_numbers("queries as positions", queries)})  # not shown
    if not rows or not 0 <= rows[0] <= rows[-1] < end - first or how not in ("mean", "sum"):
        wanted = f"queries from {first} to {end - 1} and mean or sum"  # not shown
        raise ValueError(f"expected {wanted}, got {queries!r:.60}, {how}")  # not shown
    taken = replace(
        view,
        weights=view.weights[rows],
        scaled=view.scaled[rows],
        blocked={name: mask[rows] for name, mask in view.blocked.items()},
        queries=[view.queries[query] for query in rows],
        first=first + rows[0],
    )
    row = merged(taken, np.array([0]), np.arange(len(view.keys)))
    attending = int(taken.weights.any(1).sum())
    return replace(row, weights=row.weights * attending) if how == "sum" else row


class MergedBlocks:
    """A merger of a layer's blocks of weights, a block of queries at a time. Holds in memory one block and the group
    that it ends in."""

    def __init__(self, groups: Groups | None, queries: int) -> None:
        self._groups, self._first = groups, 0
        self._held: list[np.ndarray] = []
        if groups is not None:
            self._ends = np.append(groups[0][1:], queries)

    def add(self, queries: slice, weights: Tensor) -> tuple[slice, Tensor]:
        """Add weights [H, queries, K]; return the groups that are now complete, and their weights [H, groups, C]."""
        if self._groups is None:
            return queries, weights
        if not queries.start:
            self._held, self._first = [], 0
        self._held.append(weights.cpu().numpy())
        rows, columns = self._groups
        last = int(np.searchsorted(self._ends, queries.stop, side="right"))
        complete = slice(self._first, last)
        if last == self._first:
            return complete, weights.new_zeros(len(weights), 0, len(columns))
        held, begin = np.concatenate(self._held, axis=1), int(rows[self._first])
        end = int(self._ends[last - 1])
        found = merged_weights(held[:, : end - begin], rows[complete] - begin, columns)
        self._held, self._first = [held[:, end - begin :]], last
        return complete, torch.from_numpy(found)
