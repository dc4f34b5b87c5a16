"""Tests that every catalogue has every sentence that users can see, complete, with the same placeholders.
    make words        # brings locale/ up to date with the source; then translate what is empty

The source is searched in two ways: for strings marked for translation, and for strings that look like words and are
not marked. tests/pages/test_chinese.py tests the pages themselves.
"""

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import numpy as np
import pytest
from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.frontend import parse_mapping_cfg
from babel.messages.pofile import read_po
from markupsafe import Markup

from i18n import (
    DOMAIN,
    ENGLISH,
    LANGUAGES,
    N_,
    Message,
    language,
    large,
    listed,
    msg,
    msg_all,
    msg_count,
    msg_list,
    msg_together,
    say,
    say_all,
    say_count,
    set_language_source,
    spoken,
    together,
    translated,
)

ROOT = Path(__file__).parents[1]
OTHERS = [name for name in LANGUAGES if name != ENGLISH]
ROOMS = ("model", "mask_check", "lessons", "serving", "viz", "ui", "pages")
KEYWORDS = {"say": (1,), "say_count": (1, 2), "msg": (1,), "msg_count": (1, 2), "N_": (1,)}
with (Path(__file__).parents[1] / "babel.cfg").open() as _file:
    MAPPING = parse_mapping_cfg(_file)
WORDS = re.compile(r"[A-Za-z]{2,}[,;:.]? [A-Za-z]{2,}")
CODE = re.compile(r"[<>{}=_\\$]|^\s*[.#@\[]|var\(|https?:|px|\bdef\b|\bimport\b")  # HTML, CSS, JavaScript, formulas
FOR_PROGRAMMERS = {  # raised for code that calls the core directly; pages never cause these
    "model/attention.py", "model/blocks.py", "model/decoder.py", "model/kv_cache.py", "model/masks.py",
    "model/why_causal/live_training.py", "model/sampling.py",
    "model/trace.py", "model/transformer.py",
}  # fmt: skip
NOT_SHOWN = (  # output of commands; logs; metrics, health, settings; exported code; parts of dates
    "model/training/", "model/atlas/__main__.py", "model/mask_lab/mask_code.py",
    "serving/logs.py", "model/mask_kinds.py", "serving/health.py", "serving/settings.py",
    "model/cross_attention/written_dates.py",
)  # fmt: skip


def catalogue(name: str) -> Catalog:
    with (ROOT / "locale" / name / "LC_MESSAGES" / f"{DOMAIN}.po").open("rb") as file:
        return read_po(file, locale=name)


def marked() -> set[str | tuple[str, ...]]:
    found: set[str | tuple[str, ...]] = set()
    for top in (*ROOMS, "."):
        walk = {"directory_filter": lambda _: False} if top == "." else {}
        for _, _, message, _, _ in extract_from_dir(str(ROOT / top), *MAPPING, keywords=KEYWORDS, **walk):
            found.add(message)
    return found


@pytest.mark.parametrize("name", OTHERS)
def test_every_marked_sentence_is_translated_and_nothing_else(name: str) -> None:
    found = {message.id: message for message in catalogue(name) if message.id}
    sentences = marked()
    assert len(sentences) > 1000
    assert not [one for one in sentences if one not in found], "run `make words`, then translate"
    assert not [one for one in found if one not in sentences], "run `make words`"
    empty = [one for one, message in found.items() if not all(_several(message.string))]
    assert not empty
    assert not [one for one, message in found.items() if message.fuzzy]


@pytest.mark.parametrize("name", OTHERS)
def test_a_translation_has_the_places_of_its_sentence(name: str) -> None:
    wrong = [
        (message.id, translated)
        for message in catalogue(name)
        if message.id
        for translated in _several(message.string)
        if fields(translated) != set().union(*map(fields, _several(message.id)))
    ]
    assert not wrong


@pytest.mark.parametrize("name", OTHERS)
def test_the_sentences_for_one_and_for_several_have_the_same_places(name: str) -> None:
    """A language without a plural says both with one translation."""
    several = [message.id for message in catalogue(name) if not isinstance(message.id, str)]
    assert several
    assert not [(one, many) for one, many in several if fields(one) | {"count:"} != fields(many) | {"count:"}]


def fields(sentence: str) -> set[str]:
    return {f"{name}:{form}" for _, name, form, _ in Formatter().parse(sentence) if name is not None}


def _several(one: str | tuple[str, ...] | list[str]) -> tuple[str, ...]:
    return (one,) if isinstance(one, str) else tuple(one)


def test_no_words_for_a_reader_stand_unmarked_in_the_source() -> None:
    files = [ROOT / "app.py", *(file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py")))]
    found = []
    for file in files:
        name = str(file.relative_to(ROOT))
        if name not in FOR_PROGRAMMERS and not name.startswith(NOT_SHOWN):
            found += [f"{name}:{line} {words!r}" for line, words in unmarked(file.read_text(encoding="utf-8"))]
    assert not found, f"{len(found)} of them"


def unmarked(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every string that looks like English, is not marked, and may be shown to a user.

    Docstrings, assertion messages, and what follows `# not shown` on its line are for programmers; names given to
    set_up are keys.
    """
    tree, lines = ast.parse(source), source.splitlines()
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr):
                skipped.add(first.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KEYWORDS:
            skipped.update(one for argument in node.args[:2] for one in ast.walk(argument))
        elif isinstance(node, ast.Assert | ast.AnnAssign) and (node.msg if isinstance(node, ast.Assert) else None):
            skipped.update(ast.walk(node.msg))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "page.set_up":  # a key of ui.page.PAGES
            skipped.update(node.args)
        elif isinstance(node, ast.Subscript):  # Literal["…"], a key
            skipped.update(ast.walk(node.slice))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or node in skipped:
            continue
        exempt = any("# not shown" in line for line in lines[node.lineno - 1 : node.end_lineno])
        if WORDS.search(node.value) and not CODE.search(node.value) and not exempt:
            yield node.lineno, node.value


def test_words_are_found_where_they_are_unmarked_and_nowhere_else() -> None:
    source = '''"""Two words."""
st.caption("how it goes")
st.caption(f"of {n} tokens seen")
say("how it goes")
NAME = N_("how it goes")
style = "p { margin: 0 auto }"
raise ValueError("never to be seen")  # not shown
'''
    assert list(unmarked(source)) == [(2, "how it goes"), (3, " tokens seen")]


def test_a_sentence_is_said_in_the_language_of_whoever_it_is_said_to() -> None:
    assert language() == ENGLISH
    assert say("Explore") == "Explore"
    with spoken("zh"):
        assert language() == "zh"
        assert say("Explore") == "探索"
        assert say("There is no such sentence {here}", here="{x}") == "There is no such sentence {x}"
    assert say("Explore") == "Explore"


def test_a_page_that_knows_its_reader_is_asked_and_what_is_set_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("i18n._ask", None)  # restores the pages' function after the test
    knows = ["zh"]
    set_language_source(lambda: knows[0] if knows else None)
    assert language() == "zh"
    with spoken("en"):
        assert language() == "en"
    knows.clear()
    assert language() == ENGLISH


def test_a_number_below_zero_has_a_true_minus_where_a_sentence_gives_its_format() -> None:
    assert say("q·k from {least:.2f} to {most:.1e}", least=-1.75, most=-2e-5) == "q·k from −1.75 to −2.0e-05"
    assert say("{one:.2f} and {count:,}", one=np.float32(-0.1), count=-1234) == "−0.10 and −1,234"
    assert say("got {value}, not {other:.1f}", value=-0.5, other=0.5) == "got -0.5, not 0.5"
    assert say("got {value!r}, {other}", value=-3, other=np.float32(-0.5)) == "got -3, -0.5"


def test_numbers_and_lists_follow_the_language() -> None:
    assert [say_count(N_("{count} token"), N_("{count} tokens"), n) for n in (1, 2300)] == ["1 token", "2,300 tokens"]
    assert say_all(["a"]) == "a"
    assert say_all(["a", "b", "c"]) == "a, b and c"
    assert say_all(["a", "b"], last="or") == "a or b"
    counts = (19_712, 999_999, 3_507_456, 124_439_808, 1.5e9, 63_107_456)
    more = ["1.5 billion", "63.1 million"]
    assert [*map(large, counts)] == ["19,700", "1 million", "3.51 million", "124 million", *more]
    with spoken("zh"):
        assert [*map(large, counts)] == ["1.97 万", "100 万", "351 万", "1.24 亿", "15 亿", "6,310 万"]
        assert say_all(["a", "b", "c"]) == "a、b 和 c"
        assert say_all(["因果", "填充"]) == "因果和填充"


def test_a_message_is_english_and_is_said_in_the_language_of_whoever_reads_it_in_another_process_too() -> None:
    masks = msg_list([msg("causal"), msg("padding")])
    tokens = msg_count(N_("{count} token"), N_("{count} tokens"), 2300)
    both = msg_all([msg("causal"), masks, tokens], last="or")
    declared = msg("declared: {mask}", mask=both)
    made = [masks, tokens, both, declared, msg_together([declared, msg("Explore")])]
    english = ["causal, padding", "2,300 tokens", "causal, causal, padding or 2,300 tokens"]
    english += [f"declared: {english[2]}", f"declared: {english[2]} Explore"]
    for messages in (made, pickle.loads(pickle.dumps(made))):  # noqa: S301 - pickled here
        assert messages == [say(one) for one in messages] == english
        with spoken("zh"):
            assert [str(one) for one in messages] == english, "as text it stays English"
            chinese = [say(one) for one in messages]
            assert chinese[3] == say("declared: {mask}", mask=both) == f"{say('declared: {mask}', mask='')}{chinese[2]}"
            assert chinese[0] == listed([say("causal"), say("padding")])
        assert not [one for one in chinese if one in english or isinstance(one, Message)]


def test_an_error_s_message_is_translated_in_another_sentence_and_another_s_error_stays() -> None:
    error = pickle.loads(pickle.dumps(ValueError(msg("line {line}: {problem}", line=2, problem=msg("a mask")))))  # noqa: S301 - pickled here
    around = msg("{model}: {problem}", model="gpt2", problem=error)
    assert str(error) == "line 2: a mask"
    with spoken("zh"):
        assert translated(error) == say("line {line}: {problem}", line=2, problem=say("a mask")) != str(error)
        assert say(around) == say("{model}: {problem}", model="gpt2", problem=error)
        assert translated(error) in say(around)
        assert say("{problem}.", problem=KeyError("x")) == "'x'。"
        assert translated("as it is") == "as it is"


def test_a_space_stands_in_chinese_between_a_letter_and_a_character_whatever_fills_the_place() -> None:
    with spoken("zh"):
        assert say("Stop") + say("{name}.", name="GPT-2") == "停止GPT-2。"  # only placeholders get a space
        assert say("{head} or {tail}", head="L0 H3", tail="填充") == "L0 H3 或填充"
        assert say("{head} or {tail}", head="<b>键</b>", tail="“值”") == "<b>键</b> 或 “值”"
        assert say("{low} to {high}", low="2", high="  3") == "2 到 3"
        assert say("{loss:.2f} nats", loss=1.005) == f"{1.005:.2f} 奈特"
        assert say("{path!r} is not a folder on this machine. Check the path.", path="键").startswith("'键' 不是")
    assert say("{head} or {tail}", head="键", tail="值") == "键 or 值"


def test_sentences_in_a_row_have_a_space_between_them_and_none_after_a_chinese_full_stop() -> None:
    assert together([]) == ""
    assert together(["One."]) == "One."
    assert together(iter(["One.", "Two?", "", "Three."])) == "One. Two?  Three."
    assert together(["一。", "<b>二！</b>", "Three.", "四：", "五。"]) == "一。<b>二！</b>Three. 四：五。"
    assert together(["<b>一。</b>", Markup("<i>&lt;</i>")]) == "<b>一。</b><i>&lt;</i>"
    assert together(["A line from “你好。”", "Two."]) == "A line from “你好。” Two."


def test_a_patch_of_an_image_has_another_name_in_chinese_than_the_mask_of_image_blocks() -> None:
    pairs = [(message.id, message.string) for message in catalogue("zh")]
    lessons = ROOT / "lessons"
    pairs += [((lessons / "en" / one.name).read_text(), one.read_text()) for one in (lessons / "zh").iterdir()]
    assert not [one for one, chinese in pairs if "图像块" in str(chinese) and "image block" not in str(one).lower()]


def test_what_is_said_is_a_literal_that_the_catalogue_s_tool_finds() -> None:
    """The tool finds no call inside an f-string, and joins the branches of a conditional expression."""
    sentences = {one for message in marked() for one in _several(message)}
    lost = []
    for file in [ROOT / "app.py", *(file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py")))]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KEYWORDS:
                for argument in node.args[: max(KEYWORDS[node.func.id])]:
                    literals = [one.value for one in ast.walk(argument) if isinstance(one, ast.Constant)]
                    lost += [f"{file.relative_to(ROOT)}:{node.lineno} {one!r}" for one in literals
                             if isinstance(one, str) and one not in sentences]  # fmt: skip
    assert not lost


def test_what_refuses_a_model_or_a_text_says_what_to_do_next() -> None:
    then = re.compile(
        r"\b(change|choose|check|copy|delete|expected|fetch|free|get|go online|install|join|leave|merge|must|put|"
        r"rename|save|shorten|supported are|try|type|wait)\b",
        re.IGNORECASE,
    )
    starts = re.compile(r"\{(model|repo|name)(!r)?\}(:| (has|holds|is|was|lacks|\(\{kind\}\))) ")
    refusals = {found for found in raised() if starts.match(found)}
    assert len(refusals) > 30
    assert sorted(found for found in refusals if not then.search(found)) == []
    assert not {found for found in raised() if found.startswith("Activation patching") and not then.search(found)}


def raised() -> Iterator[str]:
    """Yield the messages of `raise` statements in model/, written in place or as a name assigned in the same file."""
    for path in sorted((ROOT / "model").rglob("*.py")):
        tree = ast.parse(path.read_text())
        named = {
            one.targets[0].id: one.value.args[0].value  # type: ignore[attr-defined]
            for one in ast.walk(tree)
            if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call) and ast.unparse(one.value.func) == "N_"
        }
        for error in (one for one in ast.walk(tree) if isinstance(one, ast.Raise) and one.exc is not None):
            for call in (
                one for one in ast.walk(error) if isinstance(one, ast.Call) and ast.unparse(one.func) == "msg"
            ):
                words = call.args[0]
                yield words.value if isinstance(words, ast.Constant) else named.get(ast.unparse(words), "")
