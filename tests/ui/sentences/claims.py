"""Checks of the pages' sentences: whether each is true of a run's weights, masks and logits."""

# ruff: noqa: E501 - each sentence on one line, so that a search finds it

import html
import re
from collections.abc import Callable

import numpy as np

from model.atlas.result import MIN_QUERIES
from tests.ui.sentences.facts import Facts
from viz.mask_lab.effect import NATS


def plain(words: str) -> str:
    """Remove tags and resolve entities."""
    return html.unescape(re.sub(r"</?\w[^<>]*>", "", words))


def same(said: str, share: float, slack: float = 2e-5) -> bool:
    """Whether a percentage such as "41.3%" is right for a share. slack: tolerance for float32."""
    if np.isnan(share):
        return said == "–"
    if said == "<0.1%":
        return 0 < share < 0.0005 + slack
    if said == ">99.9%":
        return 0.9995 - slack < share
    if said in ("0%", "100%"):
        return abs(share - float(said == "100%")) < slack
    return abs(float(said[:-1]) / 100 - share) <= 0.0005 + slack


def near(said: str, value: float, digits: int = 2) -> bool:
    return abs(float(said.replace("−", "-").replace(",", "")) - value) <= 0.5 * 10**-digits + 2e-4


Said = dict[str, str]
Claim = Callable[[Said, Facts], bool]


def _predicted(said: Said, facts: Facts) -> bool:
    token, position = re.fullmatch("(.*) \\((\\d+)\\)", said["token"], re.DOTALL).groups()
    at = facts.position_of(token, position)
    label = facts.now.model.label
    now, old = (int(logs[at].argmax()) for logs in (facts.logs, facts.logs0))
    chances = np.exp(facts.logs[at, now]), np.exp(facts.logs0[at, old])
    right = label(now) == said["now"] and same(said["after"], chances[0]) and same(said["before"], chances[1])
    return right and label(old) == said["standard"]


def _changes_most(said: Said, facts: Facts) -> bool:
    at = facts.position_of(*re.fullmatch("(.*) \\((\\d+)\\)", said["token"], re.DOTALL).groups())
    most, changed = np.nanmax(np.abs(facts.change)), said["before"] != said["after"]
    largest = abs(facts.change[at]) > most - 1e-4 or most < 0.01  # of smaller ones, any that shows
    return changed and largest and near(said["before"], facts.loss0[at]) and near(said["after"], facts.loss[at])


def _known(said: Said, facts: Facts) -> bool:
    found: set[int] = set()
    for part in said["positions"].split(", "):
        ends = [int(one) for one in part.split(" to ")]
        found |= set(range(ends[0], ends[-1] + 1))
    return found == facts.knows(False) - facts.knows(True)


def _half(said: Said, facts: Facts) -> bool:
    row = np.sort(facts.w[facts.at])[::-1]
    keys, half, most = int(said["keys"]), int(said["half"]), int(said["most"])
    total = row.sum()
    enough = [row[:count].sum() / total >= share - 1e-4 for count, share in ((half, 0.5), (most, 0.9))]
    less = [row[: count - 1].sum() / total < share + 1e-4 for count, share in ((half, 0.5), (most, 0.9))]
    return keys == facts.open[facts.at].sum() and all(enough) and all(less)


def _moved(said: Said, facts: Facts) -> bool:
    now, old = facts.w[facts.at], facts.w0[facts.at]
    on_blocked = now[~facts.open0[facts.at] & facts.open[facts.at]].sum()
    right = same(said["moved"], np.abs(now - old).sum() / 2, 1e-4)
    return right and same(said["opened"], on_blocked, 1e-4)


def _changes(said: Said, facts: Facts) -> bool:
    """Whether it names the keys with the largest changes of their weights, and both weights."""
    now, old = facts.w[facts.at], facts.w0[facts.at]
    most = np.sort(np.abs(now - old))[::-1]
    found = re.findall(r"(\d+): (.*?) \(([\d.]+) → ([\d.]+)\)", said["changes"], re.DOTALL)
    for change, (position, token, before, after) in zip(most, found, strict=False):
        key = facts.position_of(token, position)
        if (
            abs(abs(now[key] - old[key]) - change) > 1e-5
            or not near(before, old[key], 4)
            or not near(after, now[key], 4)
        ):
            return False
    return bool(found)


def _largest(said: Said, facts: Facts) -> bool:
    query, looker = int(said["query"]), said["looker"]
    key, looked = int(said["key"]), said["looked"]
    view = facts.w[slice(*facts.part[0]), slice(*facts.part[1])]
    where = facts.pieces[query] == looker and facts.pieces[key] == looked
    return where and near(said["weight"], view.max()) and abs(facts.w[query, key] - view.max()) < 1e-5


def _cost(said: Said, facts: Facts) -> bool:
    target = facts.logs0[facts.at].argmax()
    before, after = facts.logs0[facts.at, target], facts.logs[facts.at, target]
    right = same(said["before"], np.exp(before), 1e-4) and same(said["after"], np.exp(after), 1e-4)
    return right and near(said["nats"], before - after)


def _outside(said: Said, facts: Facts) -> bool:
    first, last, count = (int(said[name]) for name in ("first", "last", "count"))
    rest = np.delete(facts.w[facts.at], np.arange(first, last + 1)).sum()
    return count == len(facts.ids) and same(said["share"], rest, 1e-4)


def _rest(said: Said, facts: Facts) -> bool:
    """Whether it counts all keys allowed now or as standard, without the three of the largest weights in both."""
    free = np.flatnonzero(facts.open[facts.at] | facts.open0[facts.at])
    most = np.maximum(facts.w, facts.w0)[facts.at, free]
    rest = free[np.argsort(-most, kind="stable")[3:]]
    close = bool(np.diff(-np.sort(-most))[2] > -1e-6)  # the third and the fourth are nearly equal
    return int(said["count"]) == len(rest) and (close or same(said["share"], facts.w[facts.at, rest].sum(), 1e-4))


def _leaks(said: Said, facts: Facts) -> bool:
    """Whether the token's loss falls most, and its path is allowed layer by layer, ending at what predicts it."""
    name, _, position = said["token"].rpartition(" (")
    token = facts.position_of(name, position[:-1])
    gains = {one: facts.loss0[one] - facts.loss[one] for one in facts.knows(False) - facts.knows(True)}
    right = near(said["before"], facts.loss0[token]) and near(said["after"], facts.loss[token])
    looks = re.findall(r"in L(\d) .+? \((\d+)\) may attend to .+? \((\d+)\)", said["path"], re.DOTALL)
    allowed = [facts.runs[0].allowed(int(layer), facts.now.row, facts.now.masks, head=head)[int(query), int(key)]
               for layer, query, key in looks for head in range(6)]  # fmt: skip
    every = bool(np.array(allowed).reshape(-1, 6).any(1).all())
    return right and every and gains[token] > max(gains.values()) - 0.011 and int(looks[-1][1]) == token - 1


NO_CLAIM = {"{clauses}.", "Beside it: the same head under the standard masks, and the difference.", plain(NATS)}
CLAIMS: dict[str, Claim] = {
    # viz/sentence.py
    "Induction: where a token occurred before, {share} of {head}'s attention is on what followed it then (queries whose token last occurred three or more tokens earlier: {queries}).": lambda said, facts: (
        same(said["share"], float(np.mean([facts.w[cell] for cell in facts.repeats()])))
        and int(said["queries"]) == len(facts.repeats())
        and (len(facts.repeats()) < MIN_QUERIES or float(said["share"][:-1]) < 50.1)
    ),
    "An induction head: where a token occurred before, {share} of {head}'s attention is on what followed it then (queries whose token last occurred three or more tokens earlier: {queries}).": (
        lambda said, facts: (
            same(said["share"], float(np.mean([facts.w[cell] for cell in facts.repeats()])))
            and int(said["queries"]) == len(facts.repeats()) >= MIN_QUERIES
        )
    ),
    "{share} of {head}'s attention goes to the token just before.": lambda said, facts: same(
        said["share"], float(np.mean([facts.w[query, query - 1] for query in facts.looking(2)]))
    ),
    "{share} of {head}'s attention stays on the token itself.": lambda said, facts: same(
        said["share"], float(np.mean([facts.w[query, query] for query in facts.looking(1)]))
    ),
    "{share} of {head}'s attention goes to the first token.": lambda said, facts: same(
        said["share"], float(facts.w[facts.looking(1), facts.real[0]].mean())
    ),
    "{head} spreads each row's attention as widely as {spread:.1f} equal weights would.": lambda said, facts: near(
        said["spread"],
        2 ** np.mean([-(row[row > 0] * np.log2(row[row > 0])).sum() for row in facts.w[facts.looking(1)]]),
        1,
    ),
    "Turn Causal off to let every token see later tokens.": lambda said, facts: (
        facts.now.masks.causal and len(facts.real) > 1
    ),
    "Without the causal mask, {share} of this head's attention goes to later tokens.": lambda said, facts: (
        not facts.now.masks.causal and same(said["share"], facts.later)
    ),
    "The padding mask is off, but this row has no padding: choose a shorter row, or add a second line of another "
    "length.": lambda said, facts: bool(facts.keep.all()),
    "The padding mask is off, but real tokens are not affected: with padding on the right, the causal mask already "
    "hides it from them. Only the padding's own rows change.": lambda said, facts: (
        not facts.keep.all() and np.abs(facts.w - facts.w0)[facts.real].max() < 1e-5
    ),
    "Without the padding mask, {share} of this head's attention goes to padding, which is not part of the text.": (
        lambda said, facts: same(said["share"], facts.padding)
    ),
    "Only {layer}'s weights are recomputed, from the standard run's queries and keys; the other layers and the "
    "predictions do not change.": lambda said, facts: (
        int(said["layer"][1:]) == facts.layer and np.array_equal(facts.logs, facts.logs0)
    ),
    # viz/sentence.py
    "Mean loss: {before:.2f} → {after:.2f} nats/token.": lambda said, facts: (
        near(said["before"], np.nanmean(facts.loss0)) and near(said["after"], np.nanmean(facts.loss))
    ),
    "Mean loss: {mean:.2f} nats/token.": lambda said, facts: near(said["mean"], np.nanmean(facts.loss)),
    "No token's loss changes by {least} nats or more.": lambda said, facts: (
        np.nanmax(np.abs(facts.change)) < float(said["least"]) + 1e-4
    ),
    "Tokens predicted better by more than {nats} nats: {better:,}; worse: {worse:,}.": lambda said, facts: all(
        abs(int(said[way]) - (facts.change * sign > 0.1).sum()) <= (np.abs(facts.change * sign - 0.1) < 1e-3).sum()
        for way, sign in (("better", -1), ("worse", 1))
    ),
    "The largest change is that of {token}: {before:.2f} → {after:.2f}.": _changes_most,
    "After {token} the most likely next token was {standard} ({before}) and is now {now} ({after}).": _predicted,
    # viz/mask_lab/effect.py
    "The prediction does not change.": lambda said, facts: (
        facts.logs[facts.at].argmax() == facts.logs0[facts.at].argmax()
    ),
    "Tokens that have leaked to the positions that must predict them: {positions}.": _known,
    "The loss of {token} goes from {before:.2f} to {after:.2f} {nats}. Its path: {path}.": _leaks,
    "None of their losses falls by more than {nats} nats.": lambda said, facts: (
        min(facts.change[one] for one in facts.knows(False) - facts.knows(True)) >= -float(said["nats"])
    ),
    "What follows {token}.": lambda said, facts: facts.at == facts.real[-1] or not facts.keep[facts.at],
    "What follows {token}. The actual token is {next}: a loss of {loss:.2f} {nats}, {before:.2f} under the standard "
    "masks.": (
        lambda said, facts: (
            near(said["loss"], facts.loss[facts.at + 1]) and near(said["before"], facts.loss0[facts.at + 1])
        )
    ),
    # ui/explain.py
    "Attention of {head}, {queries} × {keys} (queries × keys).": lambda said, facts: (
        (int(said["queries"]), int(said["keys"])) == facts.shown.shape
    ),
    "The largest weight, {weight:.2f}, is that of query {query} ({looker}) on key {key} ({looked}).": _largest,
    "Every weight is 0.": lambda _, facts: not facts.w[slice(*facts.part[0]), slice(*facts.part[1])].any(),
    "{share} of the cells are blocked, by {masks}.": lambda said, facts: same(
        said["share"], float((~facts.shown).mean())
    ),
    "No cell is blocked.": lambda said, facts: bool(facts.open.all()),
    "No cell of this part is blocked.": lambda said, facts: bool(facts.shown.all()) and not facts.open.all(),
    "Hatched cells are blocked by {masks}: their weight is exactly 0.": lambda said, facts: not facts.shown.all(),
    "A row whose keys are all blocked has weights of 0 and an output of 0.": lambda said, facts: (
        not (facts.open[slice(*facts.part[0])].any(1).all())
    ),
    # viz/heads
    "{query}: half of its weight is on {half} of its allowed keys ({keys:,}), 90% on {most}.": _half,
    "{query} attends to nothing: every key is blocked.": lambda said, facts: not facts.open[facts.at].any(),
    "{query} attends to nothing under the standard masks: every key is blocked.": lambda said, facts: (
        facts.open[facts.at].any() and not facts.open0[facts.at].any()
    ),
    "{query}: {moved} of its weight has moved compared with the standard masks; {opened} of its weight is on keys "
    "that those block.": _moved,
    "The largest changes: {changes}.": _changes,
    "All other keys ({count:,}): {share} of the weight.": _rest,
    "Colours are scaled: the largest weight shown, {weight}, looks like a weight of 1.": lambda said, facts: (
        abs(float(said["weight"]) - facts.w.max()) < 5e-4
    ),
    "Tokens {first}–{last} of {count:,} are shown; {share} of the query's weight lies outside.": _outside,
    # viz/numbers.py
    "Share of the head's attention on later tokens: {later}; on padding: {padding}.": lambda said, facts: (
        same(said["later"], facts.later) and same(said["padding"], facts.padding)
    ),
    # viz/ablation.py
    "Turning {heads} off ({way}) changes the loss of “{target}” after “{query}” ({position}) by {nats} nats, and its "
    "probability from {before} to {after}.": _cost,
}
