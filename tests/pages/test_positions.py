"""Chosen positions: they stay on their token when its padding changes, and are reset once the token is gone."""

from pathlib import Path

import pytest

from tests.model.huggingface.families import save
from tests.pages.explore import Explore

DOG = "The small dog ran home"
KING = "The old king sat in his chair and looked at the fire all day long"


def chosen_query(page: Explore) -> str:
    """Return the query as its select box shows it: position and token."""
    (box,) = [one for one in page.app.selectbox if one.label == "Query"]
    shown: str = box.options[box.index]
    return shown


def token(page: Explore) -> str:
    return chosen_query(page).partition(": ")[2]


class TestPadding:
    def test_a_second_line_moves_the_query_with_its_token(self) -> None:
        page = Explore(text=DOG)
        page.set(query=2)
        before, picked = page.candidates(), chosen_query(page)
        page.type(f"{DOG}\n{KING}")
        assert picked == "2: ·small"
        assert token(page) == "·small"
        assert chosen_query(page) != picked, "its line is padded on the left now"
        assert page.candidates() == before

    def test_the_pad_side_moves_all_positions(self) -> None:
        page = Explore(text=f"{DOG}\n{KING}", query="12", pins="12,13", key="11", span="12-13")
        assert token(page) == "·small"
        page.set(pad="right")
        assert chosen_query(page) == "2: ·small"
        assert page.url["pins"] == "2,3"
        assert page.url["key"] == "1"
        assert page.url["span"] == "2-3"
        page.set(pad="left")
        assert page.url["pins"] == "12,13"

    def test_the_next_page_has_the_same_token(self) -> None:
        page = Explore(text=f"{DOG}\n{KING}", query="12").set(pad="right").go("pages/mask_lab.py")
        assert page["query"] == 2
        assert page.set(pad="left").go("app.py")["query"] == 12

    def test_another_row_has_the_query_where_it_has_a_token(self) -> None:
        page = Explore(text=f"{KING}\n{DOG}", pad="right", query="3")
        assert token(page) == "·king"
        page.set(row=2)
        assert chosen_query(page) == "3: ·dog"
        page.set(row=1, query=9).set(row=2)
        assert "query" not in page.url, "the shorter row has padding there"
        assert token(page) == "·home"

    def test_a_link_holds_positions_as_they_are(self) -> None:
        page = Explore(text=f"{DOG}\n{KING}", query="2")
        assert chosen_query(page) == "2: <pad>"
        page.set(causal=False)
        assert chosen_query(page) == "2: <pad>", "padding may be chosen"


class TestText:
    def test_a_text_that_is_edited_keeps_what_it_still_has(self) -> None:
        page = Explore(text=DOG, query="2", pins="2,4").type("The small dog ran")
        assert chosen_query(page) == "2: ·small"
        assert page.url["pins"] == "2,4"
        page.type("The small")
        assert chosen_query(page) == "2: ·small"
        assert "pins" not in page.url

    def test_an_example_has_nothing_picked(self) -> None:
        page = Explore(text=DOG, query="2", pins="2").set(example="A list")
        assert not {"query", "pins"} & set(page.url)


@pytest.mark.parametrize("by", ["words", "sentences"])
def test_merged_positions_are_forgotten_with_the_row(by: str) -> None:
    page = Explore(text=f"{DOG}\n{KING}", by=by, query="1")
    assert "query" in page.url
    page.set(row=2)
    assert "query" not in page.url


def test_words_are_forgotten_where_padding_comes_before_them() -> None:
    page = Explore(text=f"{DOG}\nA cat", by="words", query="2")
    assert token(page) == "·small"
    page.type(f"{DOG}\n{KING}")
    assert "query" not in page.url


def test_a_source_that_is_padded_otherwise_has_no_query_of_the_old_one() -> None:
    dates = {"model": "dates", "attention": "encoder", "target": "2021-03-03\n2020-01-05"}
    page = Explore(text="the 3rd of March 2021\n5/1/20", row="2", query="15", **dates)
    assert token(page) != "<pad>"
    page.type("the 3rd of March 2021, a Wednesday\n5/1/20")
    assert "query" not in page.url


def test_messages_are_other_tokens(tmp_path: Path) -> None:
    folder = save("llama", tmp_path / "llama")
    (folder / "chat_template.jinja").write_text("{% for one in messages %}{{ one.content }} so {% endfor %}")
    page = Explore(model=str(folder), text="the cat sat on a mat\nit ran", row="2", query="4")
    assert "query" not in page.set(chat=True).url


def test_back_leaves_no_query_on_padding_that_came_since() -> None:
    page = Explore().type(f"{DOG}\nA cat ran").set(row=2).set(query=4)
    assert token(page) == "·cat"
    before = page.url
    page.type(f"{KING}\nA cat ran")
    assert token(page) == "·cat"
    page.app.query_params.clear()
    page.app.query_params.update(before)  # as the browser reruns the page when it goes back
    page.run()
    assert token(page) == "·ran"


def test_tokens_of_another_model_are_not_what_was_picked() -> None:
    page = Explore(text="2021-03-03", query="2")
    assert page.set(model="induction").url["query"] == "2", "it has the same tokens"
    assert "query" not in page.set(model="dates").url
