"""The Bug clinic's controls, its link, its notes on the text; and the game "Spot the bug": a heatmap, four candidates,
a hint, the answer with an explanation, and the score of this session."""

import secrets
from dataclasses import replace
from typing import Any, Literal

import streamlit as st

from i18n import N_, say, say_count
from model.attention import AttentionStages
from model.base import Model
from model.bug_clinic import comparison
from model.bug_clinic.bugs import BUGS, BY_KEY, TITLES, Bug, stretch
from model.bug_clinic.comparison import BugComparison, Text, masks_for
from model.bug_clinic.spot import MIN_FEATURE_DIFFERENCE, Puzzle, difference, next_puzzle, puzzle, stages_of
from model.heads.view import HeadView
from ui import controls, link, results, run_view
from ui.bug_clinic import explanations
from ui.explain import title_of
from ui.markdown import escaped
from ui.run_view import RunView
from ui.widgets import select
from viz.bug_clinic import difference_sentence

WHOLE_NAMES = '<style>:is([class*="st-key-candidate_"], .st-key-puzzle_link) button * { white-space: normal; }</style>'
MODES = {"all": N_("All bugs"), "spot": N_("Spot the bug")}


class ClinicLink(link.TextLink):
    """The link of the Bug clinic. bug: the key of the chosen bug. puzzle: the number of the game's puzzle."""

    layer: link.Whole | None = None
    head: link.Whole | None = None
    row: link.Whole = 1
    pad: Literal["left", "right"] = "left"
    bug: Literal[*BY_KEY] = BUGS[0].key  # type: ignore[valid-type]
    bug_on: bool = True
    mode: Literal[*MODES] = "all"  # type: ignore[valid-type]
    puzzle: link.Whole | None = None

    @classmethod
    def first(cls) -> dict[str, Any]:
        linked = cls.read()
        st.session_state.linked_puzzle = linked.puzzle
        st.session_state.linked_bug = linked.bug if linked.head is not None else ""
        current = st.session_state.spot["asked"] if "spot" in st.session_state else None
        if current is not None and linked.puzzle not in (None, current.number):  # Back went to an earlier puzzle
            st.session_state.spot.update(first=linked.puzzle, asked=None, on=None)
        mode = linked.mode if linked.puzzle is None else "spot"
        return {"bug": linked.bug, "bug_title": BY_KEY[linked.bug].title, "bug_on": linked.bug_on, "mode": mode}


NO_ANSWER: dict[str, Any] = {"bug": BUGS[0].key, "bug_on": True}  # overrides in the links of the game


def read(model: Model, text: str) -> tuple[Text, run_view.TokenizedText]:
    """Return the text's lines as this page takes them, and tokenized. Raises ValueError if that is impossible."""
    lines = comparison.prepare_text(model, text)
    targets = comparison.targets_for(model, lines)
    return lines, run_view.tokenize(model, "\n".join(lines.lines), st.session_state.pad, targets)


def notes(model: Model, text: Text) -> list[str]:
    """Return a sentence for everything that is not as the user typed it."""
    found = []
    if text.added:
        added = N_("Row {row} was added (your first line and “{added}”), so that another row is padded to its length.")
        found.append(say(added, row=len(text.lines), added=comparison.ADDED))
    if text.left_out:
        left_out = say_count(
            "This page reads {most} lines; {count} more is left out.",
            "This page reads {most} lines; {count} more are left out.",
            text.left_out,
            most=comparison.MAX_ROWS,
        )
        found.append(left_out)
    if text.cut:
        cut = say_count(
            "{count} line is cut: this page reads the first {most} tokens of each.",
            "{count} lines are cut: this page reads the first {most} tokens of each.",
            text.cut,
            most=comparison.MAX_TOKENS,
        )
        found.append(cut)
    if not model.standard.causal and masks_for(model).causal:
        added = N_("{model} has no causal mask; one is added here because most bugs involve it.")
        found.append(say(added, model=title_of(model)))
    if model.kind == "encoder-decoder":
        found.append(say("This is the decoder's self-attention over your lines, which it gets as the target."))
    return found


def choose_bug() -> Bug:
    with st.container(horizontal=True):
        numbered = lambda title: f"{TITLES.index(title) + 1} · {say(title)}"  # noqa: E731
        title = st.selectbox(say("Bug"), TITLES, format_func=numbered, key="bug_title")
        variants = {bug.key: bug.variant for bug in BUGS if bug.title == title}
        if st.session_state.bug not in variants:
            st.session_state.bug = next(iter(variants))
        if len(variants) > 1:
            select(say("Variant"), variants, "bug")
    return BY_KEY[st.session_state.bug]


def choose_head_showing_bug(now: RunView, bug: Bug, pair: BugComparison) -> None:
    """Choose the head that shows a bug best, for a new bug, model or text, unless the chosen head shows it.

    Call after controls.nearest_head, before the head's own control is drawn; does nothing if a link names the head.
    """
    state = st.session_state
    looked_at = (bug.key, now.run.key, now.row)
    linked, state.linked_bug = state.linked_bug == bug.key, ""
    if state.get("clinic_looked_at") == looked_at:
        return
    state.clinic_looked_at = looked_at
    if linked or not pair.shows_in_heatmap():
        return
    # how well each head shows the bug, 0 to 1: the mean over real tokens' rows of the largest change of a weight; of
    # heads cut by view, whose cells are not pairs of tokens, the share of their positions that is not padding
    keep, heads = now.run.queries.keep[now.row], run_view.shape_of(now)[1]
    if bug.key == "view":
        group = now.head(state.layer, 0).group
        parts = [stretch(head // group, heads // group, len(keep)) for head in range(heads)]
        shares = [float(keep[first : last + 1].float().mean()) for first, last in parts]
        seen = [share if share == 1 else share * MIN_FEATURE_DIFFERENCE / 2 for share in shares]
    else:
        seen = pair.change("weights")[:, keep].amax(-1).mean(-1).tolist()
    if max(seen) and seen[state.head] < MIN_FEATURE_DIFFERENCE:
        state.head = seen.index(max(seen))


def game() -> dict[str, Any]:
    if "spot" not in st.session_state:
        linked = st.session_state.get("linked_puzzle")
        first = secrets.randbelow(10_000) if linked is None else linked
        # the first puzzle's number, the puzzle, its run, the answer given, and the score
        nothing = {"asked": None, "on": None, "answer": "", "hint": False, "right": 0, "of": 0}
        st.session_state.spot = {"first": first} | nothing
    return st.session_state.spot


def ask(now: RunView) -> Puzzle | None:
    """Return the puzzle on the row shown; another text, row or model begins it anew. None if too few bugs show."""
    state = game()
    if state["on"] != (now.run.key, now.row):
        number = state["first"] if state["asked"] is None else state["asked"].number
        found = results.ask(puzzle, now.run.model, now.run, now.row, number)
        if found is None:
            return None
        state.update(asked=found, on=(now.run.key, now.row), answer="", hint=False)
    return state["asked"]


def play(now: RunView, puzzle: Puzzle) -> None:
    state, bug = game(), BY_KEY[puzzle.bug]

    def answer(key: str) -> None:
        if not state["answer"]:  # a second press does not count
            state.update(answer=key, right=state["right"] + (key == bug.key), of=state["of"] + 1)

    def show_next() -> None:
        found = results.ask(next_puzzle, now.run.model, now.run, now.row, puzzle)
        state.update(asked=found, answer="", hint=False)

    stages = results.ask(stages_of, now.run.model, now.run, now.row, puzzle)
    left, picture = st.columns([1, 2.6])
    with picture:
        shown = explanations.view(now, bug, stages[bug.key], puzzle.layer, puzzle.head)
        right = explanations.view(now, None, stages[""], puzzle.layer, puzzle.head)
        if state["answer"]:
            explanations.draw_both(now, bug, shown, right)
        else:  # row names would give the answer away
            unnamed = replace(shown, queries=right.queries, keys=right.keys)
            explanations.draw_one(unnamed, explanations.WITH_A_BUG)
    with left:
        which = N_("**Which bug is this?** Layer {layer}, head {head} of your text, with one bug in it.")
        st.markdown(say(which, layer=now.number(puzzle.layer), head=puzzle.head))
        st.html(WHOLE_NAMES)
        over = bool(state["answer"])
        for number, key in enumerate(puzzle.candidates):
            icon = ":material/check:" if over and key == bug.key else None
            icon = ":material/close:" if over and key == state["answer"] != bug.key else icon
            look: Any = {"key": f"candidate_{number}", "icon": icon, "disabled": over, "width": "stretch"}
            st.button(say(BY_KEY[key].name), on_click=answer, args=(key,), **look)
        if state["answer"]:
            _explain(now, puzzle, stages, state["answer"], shown)
        elif state["hint"]:
            st.info(say(bug.hint))
        with st.container(horizontal=True, vertical_alignment="center"):
            if not state["answer"] and not state["hint"]:
                hint = lambda: state.update(hint=True)  # noqa: E731
                st.button(say("Hint"), key="hint", icon=":material/lightbulb:", on_click=hint)
            st.button(say("Next puzzle"), key="another", icon=":material/refresh:", on_click=show_next)
            if state["of"]:
                st.caption(say("{right} of {all} correct", right=state["right"], all=state["of"]))
        own = NO_ANSWER | {"model": controls.chosen_model() or "story", "layer": None, "head": None}
        with st.popover(say("Link to this puzzle"), icon=":material/link:", key="puzzle_link"):
            linked = ClinicLink.of_choices(**own, puzzle=puzzle.number, text=st.session_state.text)
            link.show_address(linked, say("Anyone who opens the link gets this puzzle and can read your text."))


def _explain(now: RunView, puzzle: Puzzle, stages: dict[str, AttentionStages], answer: str, shown: HeadView) -> None:
    bug = BY_KEY[puzzle.bug]
    if answer == bug.key:
        st.success(say("Correct: {bug}.", bug=bug.name), icon=":material/check:")
    else:
        difference_text = _difference(now, puzzle, stages, answer, say("with that bug"), shown)
        st.error(say("No: it is {bug}.", bug=bug.name), icon=":material/close:")
        st.markdown(say("Why not *{bug}*: {difference}", bug=BY_KEY[answer].name, difference=difference_text))
    difference_text = _difference(now, puzzle, stages, "", say("in the correct version"), shown)
    st.markdown(say("The clue: {difference}", difference=difference_text))
    st.markdown(say(bug.signs))
    st.code(explanations.code(bug), language="diff", wrap_lines=True)
    chosen = {"mode": "all", "bug": bug.key, "bug_title": bug.title, "layer": puzzle.layer, "head": puzzle.head}
    st.button(say("See it among all bugs"), key="see", on_click=st.session_state.update, args=(chosen,))


def _difference(
    now: RunView, puzzle: Puzzle, stages: dict[str, AttentionStages], other: str, there: str, shown: HeadView
) -> str:
    """Return how the heatmap shown differs from this head with the `other` candidate bug or, for "", without any."""
    keys = [key for key in (other, puzzle.bug) if key]
    same_tokens = "view" not in keys  # its rows and columns are parts of tokens
    named = replace(shown, queries=[*map(escaped, shown.queries)], keys=[*map(escaped, shown.keys)])
    features = tuple(BY_KEY[key].tells for key in keys if same_tokens and BY_KEY[key].tells)
    theirs, ours = (stages[key].weights[puzzle.head] for key in (other, puzzle.bug))
    change = difference(theirs, ours, now.run.queries.keep[now.row], features)
    return difference_sentence(change, there, say("here"), named, same_tokens=same_tokens)
