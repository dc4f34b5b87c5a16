"""What each sentence claims, judged by a run's weights, masks and logits."""

# ruff: noqa: E501 - each sentence stands in one piece, to be found by a search

import html
import re
from collections.abc import Callable

import numpy as np

from model.atlas.result import LEAST_QUERIES
from tests.ui.sentences.facts import Facts
from viz.mask_lab.effect import NATS


def plain(words: str) -> str:
    """Without tags and entities."""
    return html.unescape(re.sub(r"</?\w[^<>]*>", "", words))


def same(said: str, share: float, slack: float = 2e-5) -> bool:
    """Whether "41.3%" is what is said of a share; slack: of float32."""
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


def _last_loss(said: Said, facts: Facts, sign: int, key: str) -> bool:
    """The count of tokens noticeably better or worse, and the extreme one with both losses."""
    moved = facts.change[~np.isnan(facts.change)] * sign
    count = int((moved > 0.1).sum())
    text, before, after = re.fullmatch("“(.*)” \\(([\\d.]+) → ([\\d.]+)\\)", said[key], re.DOTALL).groups()
    extreme = int(np.nanargmax(facts.change * sign))
    return (
        abs(int(said["count"]) - count) <= int((np.abs(moved - 0.1) < 1e-3).sum())
        and facts.pieces[extreme] == text and near(before, facts.loss0[extreme]) and near(after, facts.loss[extreme])
    )  # fmt: skip


def _predicted(said: Said, facts: Facts, *, stays: bool) -> bool:
    token, position = re.fullmatch("(.*) \\((\\d+)\\)", said["token"], re.DOTALL).groups()
    at = facts.place(token, position)
    label = facts.now.model.label
    now, old = (int(logs[at].argmax()) for logs in (facts.logs, facts.logs0))
    chances = np.exp(facts.logs[at, now]), np.exp(facts.logs0[at, old])
    right = label(now) == said["now"] and same(said["after"], chances[0]) and same(said["before"], chances[1])
    return right and (label(old) == said["now"] if stays else label(old) == said["standard"] != said["now"])


def _known(said: Said, facts: Facts) -> bool:
    found: set[int] = set()
    for part in said["positions"].split(", "):
        ends = [int(one) for one in part.split(" to ")]
        found |= set(range(ends[0], ends[-1] + 1))
    return found == facts.knows(False) - facts.knows(True) and int(said.get("count", 1)) == len(found)


def _half(said: Said, facts: Facts) -> bool:
    row = np.sort(facts.w[facts.at])[::-1]
    keys, half, most = int(said["keys"]), int(said["half"]), int(said["most"])
    total = row.sum()
    enough = [row[:count].sum() / total >= share - 1e-4 for count, share in ((half, 0.5), (most, 0.9))]
    less = [row[: count - 1].sum() / total < share + 1e-4 for count, share in ((half, 0.5), (most, 0.9))]
    return keys == facts.open[facts.at].sum() and all(enough) and all(less)


def _moved(said: Said, facts: Facts, *, opened: bool) -> bool:
    now, old = facts.w[facts.at], facts.w0[facts.at]
    on_blocked = now[~facts.open0[facts.at] & facts.open[facts.at]].sum()
    right = same(said["moved"], np.abs(now - old).sum() / 2, 1e-4)
    return right and (same(said["opened"], on_blocked, 1e-4) if opened else on_blocked == 0)


def _gains(said: Said, facts: Facts, *names: str) -> bool:
    change = facts.w[facts.at] - facts.w0[facts.at]
    for name in names:
        place, token, before, after = re.fullmatch("(\\d+): (.*) \\(([\\d.]+) → ([\\d.]+)\\)", said[name]).groups()
        key = facts.place(token, place)
        best = change.max() if name == "gain" else change.min()
        if abs(change[key] - best) > 1e-5 or not near(before, facts.w0[facts.at, key], 4):
            return False
        if not near(after, facts.w[facts.at, key], 4):
            return False
    return True


def _falls(said: Said, facts: Facts, rose: int | None = None) -> bool:
    gains = {token: facts.loss0[token] - facts.loss[token] for token in facts.knows(False) - facts.knows(True)}
    best = max(gains, key=lambda token: gains[token])
    fell = float(said["before"]) > float(said["after"])
    close = abs(facts.loss0[best] - facts.loss[best] - (float(said["before"]) - float(said["after"]))) < 0.021
    others = sum(gain < -0.005 for gain in gains.values())
    return fell and close and (rose is None or abs(others - rose) <= sum(abs(gain) < 0.011 for gain in gains.values()))


def _largest(said: Said, facts: Facts) -> bool:
    query, looker = int(said["query"]), said["looker"]
    key, looked = int(said["key"]), said["looked"]
    view = facts.w[slice(*facts.part[0]), slice(*facts.part[1])]
    where = facts.pieces[query] == looker and facts.pieces[key] == looked
    return where and near(said["weight"], view.max()) and abs(facts.w[query, key] - view.max()) < 1e-5


def _mean(said: Said, facts: Facts, sign: int) -> bool:
    now, old = float(np.nanmean(facts.loss)), float(np.nanmean(facts.loss0))
    moved = now - old
    right = near(said["after"], now) and near(said["before"], old)
    return right and (said["before"] != said["after"]) and moved * sign > 0


def _layers(facts: Facts) -> np.ndarray:
    """The mean over heads of the query's weights: [L,K]."""
    trace, masks = facts.runs[0], facts.now.masks
    heads = [[trace.weights(layer, head, facts.now.row, masks).numpy()[facts.at] for head in range(6)] for layer in
             range(6)]  # fmt: skip
    return np.mean(heads, axis=1)


def _most_of_mean(said: Said, facts: Facts) -> bool:
    means = _layers(facts)
    layer = int(said["layer"][1:])
    named = re.fullmatch("“(.*)” \\((\\d+)\\)", said["other"], re.DOTALL)
    key = facts.at if said["other"] == "itself" else facts.place(named[1], named[2])
    return same(said["share"], means.max(), 1e-4) and abs(means[layer, key] - means.max()) < 1e-5


def _cost(said: Said, facts: Facts, sign: int) -> bool:
    target = facts.logs0[facts.at].argmax()
    before, after = facts.logs0[facts.at, target], facts.logs[facts.at, target]
    if not sign:
        return abs(before - after) < float(said["least"]) + 1e-4
    right = same(said["before"], np.exp(before), 1e-4) and same(said["after"], np.exp(after), 1e-4)
    return right and near(said["nats"], abs(before - after)) and (before - after) * sign > 0


def _outside(said: Said, facts: Facts) -> bool:
    first, last, count = (int(said[name]) for name in ("first", "last", "count"))
    rest = np.delete(facts.w[facts.at], np.arange(first, last + 1)).sum()
    return count == len(facts.ids) and same(said["share"], rest, 1e-4)


def _rest(said: Said, facts: Facts) -> bool:
    """All keys that may be looked at, now or as standard, but for the three heaviest of both."""
    free = np.flatnonzero(facts.open[facts.at] | facts.open0[facts.at])
    most = np.maximum(facts.w, facts.w0)[facts.at, free]
    rest = free[np.argsort(-most, kind="stable")[3:]]
    close = bool(np.diff(-np.sort(-most))[2] > -1e-6)  # the third and the fourth are as good as equal
    return int(said["count"]) == len(rest) and (close or same(said["share"], facts.w[facts.at, rest].sum(), 1e-4))


def _gets_out(said: Said, facts: Facts) -> bool:
    """Every look of the way is allowed in its layer, and the last one is of the token that predicts this one."""
    token = int(said["token"].rpartition("(")[2][:-1])
    looks = re.findall(r"in (?:layer )?L(\d) .+? \((\d+)\)(?:, which predicts it,)? may attend to (?:it|.+? \((\d+)\))",
                       said["way"])  # fmt: skip
    allowed = [facts.runs[0].allowed(int(layer), facts.now.row, facts.now.masks, head=head)[int(query), int(key or token)]
               for layer, query, key in looks for head in range(6)]  # fmt: skip
    every = np.array(allowed).reshape(-1, 6).any(1).all()
    return bool(every) and int(looks[-1][1]) == token - 1 and token in facts.knows(False)


NO_CLAIM = {"{clauses}.", "Beside it: the same head under the standard masks, and the difference.", plain(NATS)}
CLAIMS: dict[str, Claim] = {
    # viz/sentence.py
    "Where a token came up before ({queries}), {share} of {head}'s attention is on what followed it.": lambda said, facts: (
        same(said["share"], float(np.mean([facts.w[cell] for cell in facts.repeats()])))
        and int(said["queries"].split()[0]) == len(facts.repeats())
        and (len(facts.repeats()) < LEAST_QUERIES or float(said["share"][:-1]) < 50.1)
    ),
    "Where a token came up before ({queries}), {share} of {head}'s attention is on what followed it: an induction head.": (
        lambda said, facts: (
            same(said["share"], float(np.mean([facts.w[cell] for cell in facts.repeats()])))
            and int(said["queries"].split()[0]) == len(facts.repeats()) >= LEAST_QUERIES
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
    "Switch Causal off to let every token see what comes later.": lambda said, facts: (
        facts.now.masks.causal and len(facts.real) > 1
    ),
    "Without the causal mask, {share} of this head's attention goes to tokens that come later.": lambda said, facts: (
        not facts.now.masks.causal and same(said["share"], facts.later)
    ),
    "Without the causal mask, {share} of this head's attention goes to tokens that come later; other heads may attend "
    "to later tokens more.": lambda said, facts: (
        not facts.now.masks.causal and same(said["share"], facts.later) and len(facts.real) > 1
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
    "Without the padding mask, {share} of this head's attention goes to padding; other heads may give it more.": (
        lambda said, facts: same(said["share"], facts.padding)
    ),
    "Only {layer}'s weights are recomputed, from the standard run's queries and keys; the other layers and the "
    "predictions do not change.": lambda said, facts: (
        int(said["layer"][1:]) == facts.layer and np.array_equal(facts.logs, facts.logs0)
    ),
    # viz/sentence.py
    "No token's loss changes by {least} nats or more: the mean is {mean} nats/token.": lambda said, facts: (
        np.nanmax(np.abs(facts.change)) < 0.01 + 1e-4 and near(said["mean"], np.nanmean(facts.loss))
    ),
    "The mean loss stays at {mean} nats/token: {tokens}.": lambda said, facts: (
        near(said["mean"], np.nanmean(facts.loss)) and near(said["mean"], np.nanmean(facts.loss0))
    ),
    "The mean loss rises from {before} to {after} nats/token: {tokens}.": lambda said, facts: _mean(said, facts, 1),
    "The mean loss falls from {before} to {after} nats/token: {tokens}.": lambda said, facts: _mean(said, facts, -1),
    "no token's by more than {nats} nats": lambda said, facts: (
        np.nanmax(np.abs(facts.change)) < float(said["nats"]) + 1e-4
    ),
    "no token is predicted noticeably better": lambda said, facts: np.nanmin(facts.change) > -0.1 - 1e-4,
    "no token is predicted noticeably worse": lambda said, facts: np.nanmax(facts.change) < 0.1 + 1e-4,
    "{count} tokens are predicted better, most of all {token}": lambda said, facts: _last_loss(
        said, facts, -1, "token"
    ),
    "{count} tokens are predicted worse, most of all {token}": lambda said, facts: _last_loss(said, facts, 1, "token"),
    "After {token} the most likely next token stays {now}: {after}, before {before}.": lambda said, facts: _predicted(
        said, facts, stays=True
    ),
    "After {token} the most likely next token was {standard} ({before}) and is {now} ({after}).": lambda said, facts: (
        _predicted(said, facts, stays=False)
    ),
    # viz/mask_lab/effect.py
    "No token's loss changes by {least} nats or more, and the prediction after {token} is unchanged.": (
        lambda said, facts: (
            np.nanmax(np.abs(np.append(facts.change, 0))) < 0.01 + 1e-4
            and facts.logs[facts.at].argmax() == facts.logs0[facts.at].argmax()
            and abs(np.exp(facts.logs[facts.at].max()) - np.exp(facts.logs0[facts.at].max())) < 0.0011
        )
    ),
    "The mean loss is {mean} {nats} per token, under the standard masks {before}.": lambda said, facts: (
        near(said["mean"], np.nanmean(facts.loss)) and near(said["before"], np.nanmean(facts.loss0))
    ),
    "The largest change is that of {token}, from {before:.2f} to {after:.2f} {nats}.": lambda said, facts: (
        abs(abs(float(said["before"]) - float(said["after"])) - np.nanmax(np.abs(facts.change))) < 0.0102
    ),
    "One token has leaked to the position that must predict it ({positions}).": _known,
    "{count} tokens have leaked to the positions that must predict them ({positions}).": _known,
    "{token} gains most: {way}.": _gets_out,
    "{token} leaks like this: {way}.": _gets_out,
    "Its loss falls from {before} to {after} {nats}.": lambda said, facts: _falls(said, facts, 0),
    "Its loss falls from {before} to {after} {nats}; that of the other rises.": lambda said, facts: _falls(
        said, facts, 1
    ),
    "Its loss falls from {before} to {after} {nats}; {count} of the others rise.": lambda said, facts: _falls(
        said, facts, int(said["count"])
    ),
    "Yet its loss does not fall.": lambda said, facts: (
        facts.change[list(facts.knows(False) - facts.knows(True))].min() > -0.011
    ),
    "Yet the loss of none of them falls.": lambda said, facts: (
        facts.change[list(facts.knows(False) - facts.knows(True))].min() > -0.011
    ),
    "What follows {token}.": lambda said, facts: facts.at == facts.real[-1] or not facts.keep[facts.at],
    "What follows {token}. The actual token is {next}: a loss of {loss:.2f} {nats}.": lambda said, facts: near(
        said["loss"], facts.loss[facts.at + 1]
    ),
    "What follows {token}. The actual token is {next}: a loss of {loss:.2f} {nats}, {before:.2f} under the standard "
    "masks.": (
        lambda said, facts: (
            near(said["loss"], facts.loss[facts.at + 1]) and near(said["before"], facts.loss0[facts.at + 1])
        )
    ),
    # ui/explain.py
    "Attention of {head}, {queries} queries by {keys} keys. The largest weight, {weight:.2f}, is that of query {query} "
    "({looker}) on key {key} ({looked}).": _largest,
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
    "{query}: half of its weight is on {half} of its {keys:,} allowed keys, 90% on {most}.": _half,
    "{query} has all its weight on its only allowed key.": lambda said, facts: facts.open[facts.at].sum() == 1,
    "{query} attends to nothing: every key is blocked.": lambda said, facts: not facts.open[facts.at].any(),
    "{query} attends to nothing now: every key is blocked.": lambda said, facts: (
        not facts.open[facts.at].any() and facts.open0[facts.at].any()
    ),
    "{query} attends to nothing now and under the standard masks: every key is blocked.": lambda said, facts: (
        not facts.open[facts.at].any() and not facts.open0[facts.at].any()
    ),
    "{query} attends to nothing under the standard masks: every key is blocked.": lambda said, facts: (
        facts.open[facts.at].any() and not facts.open0[facts.at].any()
    ),
    "{query} attends as before: the changed masks move less than 0.01% of its weight.": lambda said, facts: (
        np.abs(facts.w[facts.at] - facts.w0[facts.at]).sum() / 2 < 2e-4
    ),
    "{query}: {moved} of its weight has moved compared with the standard masks.": lambda said, facts: _moved(
        said, facts, opened=False
    ),
    "{query}: {moved} of its weight has moved compared with the standard masks; {opened} of its weight is on keys "
    "that those block.": lambda said, facts: _moved(said, facts, opened=True),
    "The most goes to {gain}, from {loss}.": lambda said, facts: _gains(said, facts, "gain", "loss"),
    "The other {count:,} keys together: {share} of the weight.": _rest,
    "Colours are scaled: the largest weight shown, {weight}, looks like a weight of 1.": lambda said, facts: (
        abs(float(said["weight"]) - facts.w.max()) < 5e-4
    ),
    "Tokens {first}–{last} of {count:,} are shown; {share} of the query's weight lies outside.": _outside,
    # viz/numbers.py
    "{later} of its attention is on later tokens and {padding} on padding.": lambda said, facts: (
        same(said["later"], facts.later) and same(said["padding"], facts.padding)
    ),
    # viz/layers/token.py
    "“{token}” attends to nothing in any layer.": lambda said, facts: not _layers(facts).any(),
    "The largest mean weight over heads that “{token}” "
    "gives one token is in {layer}: {share} to {other}.": _most_of_mean,
    # viz/ablation.py
    "Turning {heads} off ({way}) changes the loss of “{target}” after “{query}” ({position}) by less than {least} nats.": (
        lambda said, facts: _cost(said, facts, 0)
    ),
    "Turning {heads} off ({way}) raises the loss of “{target}” after “{query}” ({position}) by {nats:.2f} nats: "
    "{before} → {after}.": (lambda said, facts: _cost(said, facts, 1)),
    "Turning {heads} off ({way}) lowers the loss of “{target}” after “{query}” ({position}) by {nats:.2f} nats: "
    "{before} → {after}.": (lambda said, facts: _cost(said, facts, -1)),
}
