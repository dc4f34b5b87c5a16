"""The view Why this cell: the score of one query on one key, split exactly."""

import streamlit as st

from i18n import N_, say
from model.attribution.score_split import score_split
from ui import page
from ui.heads import query as query_keys
from ui.heads.chosen import ChosenHead
from ui.markdown import escaped
from ui.widgets.key import choose
from viz.heads.cells import weight_text
from viz.heads.score_split import largest_dimensions, pairs_table, sources_table, strips_figure, sum_words

SOURCES = N_(
    "A norm divides by the scale of its input. With that scale frozen, the score is a sum over pairs: what one source "
    "wrote into the query times what another wrote into the key. *biases*: those of projections and norms."
)


def show(chosen: ChosenHead) -> None:
    """The cell is the query, and the key that is chosen here or by a click on the heatmap."""
    hint = say("Click a cell of the heatmap to choose its query and key.")
    key = choose(chosen.view, chosen.query, hint)
    with st.container(key="why_of_query"):
        _show_cell(chosen, key)
    query_keys.hear("why_of_query", say("Why this cell"), chosen.moves)


def _show_cell(chosen: ChosenHead, key: int) -> None:
    view, query = chosen.view, chosen.query
    found = chosen.ask(score_split, chosen.layer, chosen.head, query, key)
    names = f"{query}: {view.queries[query]}", f"{key}: {view.keys[key]}"
    blocked = [name for name, mask in view.blocked.items() if mask[query, key]]
    score, weight = float(view.scaled[query, key]), weight_text(view.weights[query, key])
    st.html(sum_words(found, *names, score=score, weight=weight, blocked=blocked))
    largest = largest_dimensions(found)
    alt = say("The {count} numbers of the query, of the key, and their products. {largest}", count=len(found.q),
              largest=largest)  # fmt: skip
    st.plotly_chart(strips_figure(found, dark=page.is_dark()), key="why_strips", config=page.CHART, alt=alt)
    st.caption(say("Blue is below 0, red above. {largest}", largest=largest))
    if found.sources is None:
        st.caption(say("The score is not split by source. {reason}.", reason=escaped(found.why_not)))
        return
    pairs, writers, written = st.columns(3, gap="medium")
    pairs.html(pairs_table(found))
    writers.html(sources_table(found, "query"))
    written.html(sources_table(found, "key"))
    st.caption(say(SOURCES))
