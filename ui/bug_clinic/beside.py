"""Beside the picture of a bug: the law that it breaks, what mends it and what it does here; below it all other laws."""

import streamlit as st

from i18n import say, say_count
from model.bug_clinic.case import Bug
from model.bug_clinic.comparison import BugComparison
from model.bug_clinic.examination import Examination
from model.bug_clinic.laws import LAWS
from ui.bug_clinic import words
from ui.drawn import cached_figure
from ui.markdown import escaped
from ui.run_view import RunView
from viz.bug_clinic import LawFinding, LawRow, law_table, law_told
from viz.html import tag

STYLE = """
<style>
  .st-key-told { gap: .5rem; }
  .st-key-told :is(p, li) { font-size: .875rem; line-height: 1.4; margin-bottom: .2rem; }
  .st-key-told pre { padding: .45rem .7rem; }
  .st-key-told code { font-size: .78rem; line-height: 1.35; }
</style>
"""  # so that law, mend and effect are in sight without scrolling


def show(now: RunView, bug: Bug, pair: BugComparison, found: Examination, layer: int, head: int) -> None:
    """The law, the mend and the effect, each under its name."""
    st.html(STYLE)
    with st.container(key="told"):
        st.html(cached_figure(law_told, _row(bug.law, found), title=_law_title(bug, found)))
        _title(say("The fix"))
        st.code(words.code(bug), language="diff", wrap_lines=True)
        _title(say("Effect here"))
        if pair.error:
            crash = say("Crashes: “{error}”. The heatmap shows the correct version.", error=escaped(pair.error))
            st.error(crash, icon=":material/error:")
        elif not pair.is_seen():
            st.caption(say("The heatmap is the same with and without the bug."))
        st.markdown("\n".join(f"- {effect}" for effect in words.effects(now, bug, pair, found, layer, head)))


def show_laws(now: RunView, bug: Bug, found: Examination, layer: int) -> None:
    """The other laws that are broken; folded, those that hold and those that could not be measured."""
    others = [(key, found.verdicts[key][0]) for key in LAWS if key != bug.law]
    broken = [_row(key, found) for key, verdict in others if verdict.broken]
    whole = [_row(key, found) for key, verdict in others if not verdict.broken]
    if broken:
        _title(say_count("{count} more property is violated", "{count} more properties are violated", len(broken)))
        st.html(cached_figure(law_table, broken))
    if whole:
        with st.expander(_folded(bug, found), key="laws_that_hold"):
            st.html(cached_figure(law_table, whole))
    st.caption(
        say(
            "The largest violation of each property on this row, over all heads of layer {layer}. The word in "
            "brackets names the quantity; – means that the property could not be measured here.",
            layer=now.number(layer),
        )
    )


def _title(title: str) -> None:
    st.html(tag("p", tag("b", title), class_="key"))


def _row(key: str, found: Examination) -> LawRow:
    law = LAWS[key]
    wrong, right = (LawFinding(one.amount, one.broken, say(law.of), one.error) for one in found.verdicts[key])
    return LawRow(say(law.words), wrong, right, say(law.needs))


def _law_title(bug: Bug, found: Examination) -> str:
    if found.broken(bug.law):
        return say("The violated property")
    measured = found.verdicts[bug.law][0].amount
    return (
        say("A property that it violates elsewhere, not here")
        if measured == measured
        else say("A property that it violates")
    )


def _folded(bug: Bug, found: Examination) -> str:
    """How many laws are in the fold, by what was found of them: the law that is told above is not."""
    amounts = [verdict.amount for key, (verdict, _) in found.verdicts.items() if key != bug.law and not verdict.broken]
    unknown = sum(amount != amount for amount in amounts)
    held = say_count("{count} property holds", "{count} properties hold", len(amounts) - unknown)
    if not unknown:
        return held
    unmeasured = say("{count} not measured here", count=unknown)
    return unmeasured if unknown == len(amounts) else f"{held} · {unmeasured}"
