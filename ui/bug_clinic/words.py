"""What the Bug clinic says: a bug and its mend, and what it does here, each sentence from what was measured."""

import numpy as np
import streamlit as st
import torch
from markupsafe import Markup

from model.bug_clinic import clinic
from model.bug_clinic.bug import Bug
from model.bug_clinic.examination import Examination
from model.bug_clinic.laws import LAWS
from model.bug_clinic.masks import row_repeated
from model.bug_clinic.modules import stretch
from model.bug_clinic.rerun import other_layer
from ui import results
from ui.drawn import drawn
from ui.explain import title_of
from ui.markdown import escaped
from ui.run_view import RunView, shape_of
from viz.bug_clinic import Finding, LawRow, law_table
from viz.numbers import number

TABLE = (
    "Measured on this row, all heads of layer {layer} together: by how much each law is broken at the worst. The word "
    "in brackets says what the number is a number of; – is a law that could not be measured here."
)


def sentence(bug: Bug) -> Markup:
    """What the bug is and what gives it away."""
    return Markup('<p class="sentence"><b>{}.</b> {}</p>').format(bug.name, bug.signs)


def code(bug: Bug) -> str:
    """The wrong lines and the mend, as a diff."""
    pairs = zip(bug.wrong.splitlines(), bug.right.splitlines(), strict=True)
    return "\n".join(f"  {wrong}" if wrong == right else f"- {wrong}\n+ {right}" for wrong, right in pairs)


def examined(now: RunView, bug: Bug, layer: int) -> Examination:
    """The bug on the row that is looked at; remembered."""
    return results.ask(clinic.examined, now.run.model, now.run, now.row, bug.key, layer)


def table(bug: Bug, found: Examination) -> Markup:
    """All laws, measured on this row and layer."""
    rows = []
    for key, law in LAWS.items():
        wrong, right = (Finding(one.amount, one.broken, law.of, one.error) for one in found.verdicts[key])
        rows.append(LawRow(law.words, wrong, right, law.needs, key == bug.law))
    return drawn(law_table, rows)


def effects(now: RunView, bug: Bug, found: Examination, layer: int, head: int) -> list[str]:
    """What the bug does here, in sentences; remembered."""
    return now.kept(("effects", bug.key, layer, head), lambda: _effects(now, bug, found, layer, head))


def _effects(now: RunView, bug: Bug, found: Examination, layer: int, head: int) -> list[str]:
    if found.wrong is None:
        return []
    said = [_on_the_output(now, bug, found, layer), *_on_this_head(now, bug, found, head)]
    if not found.exact and found.is_seen():
        said.append(_stand_in(now, bug, layer))
    if bug.dtype == torch.float16:
        said.append("Both sides are computed in float16, so the right version shows its rounding.")
    return [*said, *_on_the_loss(now, bug, found, layer)]


def say_what_is_seen(found: Examination) -> None:
    """Where the heatmap is the right version's alone: why."""
    if found.error:
        st.error(f"Crashes: “{escaped(found.error)}”. The heatmap is the right version's.", icon=":material/error:")
    elif not found.is_seen():
        st.caption("The heatmap is the same with the bug and without.")


def _stand_in(now: RunView, bug: Bug, layer: int) -> str:
    model = title_of(now.model)
    if bug.key == "unprojected":
        return (
            f"What the layers of {model} read before their projections is not kept: here its queries stand in for "
            "that in all three places."
        )
    if bug.key == "one-module":
        other = other_layer(layer, shape_of(now)[0])
        return (
            f"{model} was trained with a module for every attention. Here the one of layer {other} does layer "
            f"{layer}'s work too, as a shared one would have to."
        )
    return (
        f"{model} was trained without a causal mask: the queries and keys here are those of a run that has it in "
        "every layer."
    )


def _on_the_output(now: RunView, bug: Bug, found: Examination, layer: int) -> str:
    change = found.change().amax(-1)  # [H,T]
    lost = ~change.isfinite().all(0)
    if lost.any():
        return (
            f"The output of layer {layer} is NaN at {int(lost.sum())} of {len(lost)} positions, those with nothing to "
            "look at."
        )
    if change.max() == 0:
        return _nothing_in_the_output(bug, found, layer)
    real = change[:, now.run.queries.real(now.row)]
    if real.max() == 0:
        return (
            f"The output of layer {layer} changes in padding's own rows only, by up to {_bold(change.max())}: no real "
            "token notices."
        )
    head, place = divmod(int(change.argmax()), change.shape[1])
    token = escaped(now.run.queries.pieces[now.row][place])
    return (
        f"The output of layer {layer} changes by up to {_bold(change.max())} (head {head}, position {place}, "
        f"“{token}”); right, its largest number is {number(float(found.right.output.abs().max()))}."
    )


def _nothing_in_the_output(bug: Bug, found: Examination, layer: int) -> str:
    lost = found.verdicts["kept"][0].amount
    if lost > 0:
        return (
            f"The weights and the output are right. Lost are **{lost:,.0f}** scores of layer {layer}, all heads "
            "together: they are −inf for whoever reads them next."
        )
    if found.broken(bug.law) and not bug.ahead:
        return "The weights and the output are right: what is wrong is the question that the loss asks."
    where = f"Layer {layer} has its mask. " if layer < bug.first_layer else ""
    return f"{where}Here the bug leaves no trace: it takes {bug.needs}."


def _on_this_head(now: RunView, bug: Bug, found: Examination, head: int) -> list[str]:
    heads = shape_of(now)[1]
    if bug.key == "view" and heads > 1:
        pieces = now.run.queries.pieces[now.row]
        first, last = stretch(head, heads, len(pieces))
        text = escaped("".join(pieces[first : last + 1]))
        return [f"What is called head {head} sees positions {first} to {last} only, all parts of them: “{text}”."]
    rows = len(now.run.queries.keep)
    if bug.key == "repeat" and found.is_seen():
        whose = [row_repeated(now.row, one, rows, heads) for one in range(heads)]
        others = [str(one) for one in range(heads) if whose[one] != now.row]
        here = "its own row's" if whose[head] == now.row else f"row {whose[head] + 1}'s"
        are = "is the one" if len(others) == 1 else "are those"
        return [f"Head {head} gets {here} mask; {_listed(others)} {are} of {heads} heads that get another row's."]
    return []


def _on_the_loss(now: RunView, bug: Bug, found: Examination, layer: int) -> list[str]:
    wrong, right = found.loss
    if np.isnan(right):
        return []
    if not bug.ahead:
        return [
            f"Asked for the next token, {title_of(now.model)} has a mean loss of {right:.2f} nats on this row. Asked "
            f"for the token that stands there, **{wrong:.2f}** nats: it was trained on the next one."
        ]
    where = "every layer" if not bug.first_layer else "every layer after the first"
    if np.isnan(wrong):
        return [f"With the bug in {where}, NaN spreads to every token: the model predicts nothing."]
    if f"{wrong:.2f}" == f"{right:.2f}":
        return [f"With the bug in {where}, the mean loss of this row stays {right:.2f} nats."]
    why = _why(found, lower=wrong < right) if layer >= bug.first_layer else ""
    return [f"With the bug in {where}, the mean loss of this row goes from {right:.2f} to **{wrong:.2f}** nats{why}."]


def _why(found: Examination, *, lower: bool) -> str:
    """What the measured law says of a loss that moved."""
    if found.broken("target"):
        if lower:
            return ": better than it should be, for it reads what it is to predict"
        return ". It is higher although each token's answer is read: the model was trained without seeing it"
    if lower and not found.broken("causal"):
        return ". It is lower though no later token is read: on one text, wrong attention may guess better"
    return ""


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _bold(value: torch.Tensor) -> str:
    return f"**{number(float(value))}**"
