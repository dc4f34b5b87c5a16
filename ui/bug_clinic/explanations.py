"""Sentences about a bug: what it is, its fix, and its measured effect on this row."""

import numpy as np
import torch
from markupsafe import Markup

from i18n import N_, say, say_all, say_count, together
from model.bug_clinic.case import Bug
from model.bug_clinic.comparison import BugComparison, Examination, compare, examine, other_layer
from model.bug_clinic.masks import row_repeated
from model.bug_clinic.modules import part_at
from ui import results
from ui.explain import title_of
from ui.markdown import escaped
from ui.run_view import RunView, shape_of
from viz.numbers import number


def sentence(bug: Bug) -> Markup:
    title = say("{name}.", name=bug.name)
    return Markup('<p class="sentence"><b>{}</b> {}</p>').format(title, say(bug.signs))


def code(bug: Bug) -> str:
    """The wrong lines and the mend, as a diff."""
    pairs = zip(bug.wrong.splitlines(), bug.right.splitlines(), strict=True)
    return "\n".join(f"  {wrong}" if wrong == right else f"- {wrong}\n+ {right}" for wrong, right in pairs)


def compared(now: RunView, bug: Bug, layer: int) -> BugComparison:
    return results.ask(compare, now.run.model, now.run, now.row, bug.key, layer)


def examined(now: RunView, bug: Bug, layer: int) -> Examination:
    return results.ask(examine, now.run.model, now.run, now.row, bug.key, layer)


def effects(now: RunView, bug: Bug, pair: BugComparison, found: Examination, layer: int, head: int) -> list[str]:
    return now.kept(("effects", bug.key, layer, head), lambda: _effects(now, bug, pair, found, layer, head))


def _effects(now: RunView, bug: Bug, pair: BugComparison, found: Examination, layer: int, head: int) -> list[str]:
    if pair.wrong is None:
        return []
    said = [_on_the_output(now, bug, pair, found, layer), *_on_this_head(now, bug, pair, head)]
    if not pair.exact and pair.is_seen():
        said.append(_stand_in(now, bug, layer))
    if bug.dtype == torch.float16:
        said.append(say("Both sides are computed in float16, so the correct version has rounding errors too."))
    return [*said, *_on_the_loss(now, bug, found, layer)]


STAND_INS = {  # of a bug that a trained model can be shown with only by something in its place
    "unprojected": N_(
        "The inputs of {model}'s projections are not recorded: here its queries are used in place of all three."
    ),
    "one-module": N_(
        "{model} was trained with a separate module for each attention. Here the module of layer {other} also serves "
        "layer {layer}, as a shared module would."
    ),
}
UNTRAINED = N_(
    "{model} was trained without a causal mask: the queries and keys here come from a run with the mask in every layer."
)


def _stand_in(now: RunView, bug: Bug, layer: int) -> str:
    other = now.number(other_layer(layer, shape_of(now)[0]) or 0)
    words = STAND_INS.get(bug.key, UNTRAINED)
    return say(words, model=title_of(now.model), other=other, layer=now.number(layer))


def _on_the_output(now: RunView, bug: Bug, pair: BugComparison, found: Examination, layer: int) -> str:
    change = pair.change().amax(-1)  # [H,T]
    lost = ~change.isfinite().all(0)
    about = {"layer": now.number(layer), "most": _bold(change.max())}
    if lost.any():
        words = N_("The output of layer {layer} is NaN at {lost} of {positions} positions, those with no allowed key.")
        return say(words, **about, lost=int(lost.sum()), positions=len(lost))
    if change.max() == 0:
        return _nothing_in_the_output(now, bug, found, layer)
    real = change[:, now.real]
    if real.max() == 0:
        return say(
            "The output of layer {layer} changes only in the rows of padding, by up to {most}: no real token is "
            "affected.",
            **about,
        )
    head, position = divmod(int(change.argmax()), change.shape[1])
    token = escaped(now.tokens[position])
    about |= {"head": head, "place": position, "token": token, "right": number(float(pair.right.output.abs().max()))}
    return say(
        "The output of layer {layer} changes by up to {most} (head {head}, position {place}, “{token}”); in the "
        "correct version its largest value is {right}.",
        **about,
    )


def _nothing_in_the_output(now: RunView, bug: Bug, found: Examination, layer: int) -> str:
    lost = found.verdicts["kept"][0].amount
    if lost > 0:
        words = N_(
            "The weights and the output are correct, but **{lost:,.0f}** scores of layer {layer} (all heads together) "
            "are overwritten: any later use of them reads −inf."
        )
        return say(words, lost=lost, layer=now.number(layer))
    if found.broken(bug.law) and not bug.ahead:
        return say("The weights and the output are correct; the loss uses the wrong targets.")
    needs = say(bug.needs)
    if layer < bug.first_layer:
        words = N_("Layer {layer} has its mask. The bug has no effect here: it needs {needs}.")
        return say(words, layer=now.number(layer), needs=needs)
    return say("The bug has no effect here: it needs {needs}.", needs=needs)


def _on_this_head(now: RunView, bug: Bug, pair: BugComparison, head: int) -> list[str]:
    heads = shape_of(now)[1]
    if bug.key == "view" and heads > 1:
        pieces = now.tokens
        (first, begins), (last, ends) = (part_at(head, at, heads, len(pieces)) for at in (0, len(pieces) - 1))
        text = escaped("".join(pieces[first : last + 1]))
        words = N_(
            "The so-called head {head} sees only positions {first} to {last}, from part {begins} of the first to part "
            "{ends} of the last: “{text}”."
        )
        return [say(words, head=head, first=first, last=last, begins=begins, ends=ends, text=text)]
    rows = len(now.run.queries.keep)
    if bug.key == "repeat" and pair.is_seen():
        whose = [row_repeated(now.row, one, rows, heads) for one in range(heads)]
        others = [str(one) for one in range(heads) if whose[one] != now.row]
        if whose[head] == now.row:
            here = say("Head {head} gets its own row's mask.", head=head)
        else:
            here = say("Head {head} gets row {row}'s mask.", head=head, row=whose[head] + 1)
        wrong = say_count(
            "Of {heads} heads, {listed} gets another row's.",
            "Of {heads} heads, {listed} get another row's.",
            len(others),
            heads=heads,
            listed=say_all(others),
        )
        return [together([here, wrong])]
    return []


def _on_the_loss(now: RunView, bug: Bug, found: Examination, layer: int) -> list[str]:
    wrong, right = found.loss
    if np.isnan(right):
        return []
    if not bug.ahead:
        words = N_(
            "With the next token as target, {model} has a mean loss of {right:.2f} nats on this row; with the current "
            "token as target, **{wrong:.2f}** nats: it was trained to predict the next one."
        )
        return [say(words, model=title_of(now.model), right=right, wrong=wrong)]
    where = say("every layer") if not bug.first_layer else say("every layer after the first")
    if np.isnan(wrong):
        return [say("With the bug in {where}, NaN spreads to every token: the model predicts nothing.", where=where)]
    words = N_("With the bug in {where}, the mean loss of this row is **{wrong:.2f}** nats; without it, {right:.2f}.")
    moved = say(words, where=where, right=right, wrong=wrong)
    differs = f"{wrong:.2f}" != f"{right:.2f}"
    why = _why(found, lower=wrong < right) if differs and layer >= bug.first_layer else ""
    return [together([moved, why]).rstrip()]


def _why(found: Examination, *, lower: bool) -> str:
    if found.broken("target"):
        if lower:
            return say("That is lower than it should be, because the model reads the token that it must predict.")
        return say("It is higher although every position sees its target: the model was trained without seeing it.")
    if lower and not found.broken("causal"):
        return say(
            "It is lower although no later token is read: on a single text, wrong attention may predict better "
            "by chance."
        )
    return ""


def _bold(value: torch.Tensor) -> str:
    return f"**{number(float(value))}**"
