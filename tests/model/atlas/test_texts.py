"""Tests of an atlas's texts: .txt and .csv files, damaged and oversized ones, rows of long texts, random tokens."""

from itertools import chain
from pathlib import Path

import pytest

from model.atlas import unit as atlas_unit
from model.atlas.unit import (
    MAX_UPLOAD,
    UNIT_CHARACTERS,
    UNIT_TEXTS,
    Unit,
    batch_of,
    in_units,
    rows_of_unit,
    units_of_files,
    units_of_random,
    units_of_sample,
    units_of_text,
    units_of_upload,
)
from model.base import Model


def texts(units: object) -> list[str]:
    assert not isinstance(units, str)
    return list(chain.from_iterable(unit.texts for unit in units))  # type: ignore[attr-defined]


def test_a_line_of_a_txt_file_is_a_text(tmp_path: Path) -> None:
    path = tmp_path / "some.TXT"
    path.write_bytes("\ufeffone\r\n\r\n  \n two\rthree".encode())
    assert texts(units_of_files([path])) == ["one", " two", "three"]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("\n\ntext\nhello\n", ["hello"]),
        ('id,Text\n1,"a, b"\n2,"two\nlines"\n3,\n4', ["a, b", "two lines"]),
        ("text", []),
        ("", []),
    ],
)
def test_a_cell_of_a_csv_file_is_a_text(tmp_path: Path, table: str, expected: list[str]) -> None:
    path = tmp_path / "some.csv"
    path.write_text(table, encoding="utf-8")
    assert texts(units_of_files([path])) == expected


def test_a_cell_may_be_as_long_as_an_upload(tmp_path: Path) -> None:
    long = "word " * ((MAX_UPLOAD - 10) // 5)
    assert "".join(texts(units_of_upload("a.csv", f'text\n"{long}"'.encode()))) == long.strip()
    (tmp_path / "longer.csv").write_text("text\n" + "x" * (MAX_UPLOAD + 1))
    with pytest.raises(
        ValueError, match=r"longer\.csv: expected a table in CSV.*field larger than field limit \(2000000"
    ):
        list(units_of_files([tmp_path / "longer.csv"]))


def test_texts_come_in_units_that_say_which_they_are(tmp_path: Path) -> None:
    many = [f"text {number}" for number in range(UNIT_TEXTS + 3)]
    for name, some in (("a.txt", many), ("b.txt", many[:2])):
        (tmp_path / name).write_text("\n".join(some), encoding="utf-8")
    units = list(units_of_files([tmp_path / "a.txt", tmp_path / "b.txt"]))
    assert [(unit.source, unit.number, len(unit)) for unit in units] == [(0, 0, UNIT_TEXTS), (0, 1, 3), (1, 0, 2)]
    assert texts(units) == many + many[:2]
    assert [unit.first for unit in units] == [0, UNIT_TEXTS, 0]


def test_a_unit_has_an_end_however_long_its_texts(tmp_path: Path) -> None:
    """A line, or a cell of a table, of 50,000 characters becomes several texts with a unit each."""
    for name, begin in (("a.txt", ""), ("a.csv", "text\n")):
        (tmp_path / name).write_text(begin + "word " * 10_000, encoding="utf-8")
        units = list(units_of_files([tmp_path / name]))
        assert [(unit.number, unit.first, len(unit)) for unit in units] == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]
        assert "".join(texts(units)).strip() == ("word " * 10_000).strip()
        assert max(map(len, texts(units))) == UNIT_CHARACTERS


@pytest.mark.parametrize(("name", "begin"), [("a.txt", ""), ("a.csv", "text\n")])
def test_a_text_that_is_too_long_is_cut_behind_a_space(tmp_path: Path, name: str, begin: str) -> None:
    whole, words, one_word = "x" * UNIT_CHARACTERS, "word and " * 7_000, "y" * (UNIT_CHARACTERS + 7)
    (tmp_path / name).write_text(begin + "\n".join([whole, words.strip(), one_word, "end"]), encoding="utf-8")
    found = texts(units_of_files([tmp_path / name]))
    assert (found[0], found[-3:]) == (whole, ["y" * UNIT_CHARACTERS, "y" * 7, "end"])
    assert "".join(found[1:-3]) == words.strip()
    assert len(found[1:-3]) == 4
    assert all(part.endswith(" ") and len(part) <= UNIT_CHARACTERS for part in found[1:-4])


def test_a_file_is_read_as_it_is_needed(tmp_path: Path) -> None:
    """The first unit is returned before the reader meets the bytes that are not UTF-8."""
    path = tmp_path / "long.txt"
    path.write_bytes(b"a line\n" * 100_000 + b"\xff\xfe")
    units = units_of_files([path])
    assert next(units).texts == ("a line",) * UNIT_TEXTS
    with pytest.raises(ValueError, match=r"long\.txt: expected text in UTF-8"):
        list(units)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"x" * (MAX_UPLOAD + 1), r"a\.txt: expected a file of at most 2 MB, got 2\.0 MB"),
        ("a.pdf", b"x", r"a\.pdf: expected a file whose name ends in \.txt or \.csv"),
        ("a.txt", b"caf\xe9", r"a\.txt: expected text in UTF-8"),
        ("a.txt", b"a\0b", r"a\.txt: expected text, got a file with zero bytes in it"),
        ("a.txt", b" \n \n", r"a\.txt: expected a text in it, found none"),
        ("a.csv", b"text\na\0b", r"a\.csv: expected "),
        ("a.csv", b"id,body\n17,a", r"a\.csv: expected a column named text in the first line, got id, body"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_sentence(name: str, data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        units_of_upload(name, data)


def test_an_upload_is_what_the_file_is(tmp_path: Path) -> None:
    data = "text,n\nÄpfel und Birnen,1\n".encode()
    (tmp_path / "a.csv").write_bytes(data)
    assert units_of_upload("a.csv", data) == list(units_of_files([tmp_path / "a.csv"]))
    assert texts(units_of_text("one\n\ntwo")) == ["one", "two"]
    with pytest.raises(ValueError, match="expected a text, got none"):
        units_of_text(" \n")


@pytest.mark.parametrize("length", [7, 40])
def test_a_long_text_is_several_rows_that_hold_all_of_it(tiny: Model, length: int) -> None:
    text = "the cat sat on the mat and the cat sat still " * 9
    (unit,) = units_of_text(text)
    rows = list(rows_of_unit(tiny, unit, length))
    start = int(tiny.encode(["the"]).ids[0, 0])
    assert "".join(row.text for row in rows) == text
    assert {row.ids[0] for row in rows} == {start}
    assert max(len(row.ids) for row in rows) == length
    whole = [token for row in rows for token in row.ids[1:]]
    assert "".join(map(tiny.label, whole)).replace("·", " ") == text


@pytest.mark.parametrize("length", [5, 8, 40])
def test_a_character_of_several_tokens_is_read_whole_in_one_row(tiny: Model, length: int) -> None:
    """Each character but "a" is three or four tokens, so that the end of a row may lie within one."""
    text = "猫坐在😀垫子上a，狗跑进" * 3
    rows = list(rows_of_unit(tiny, units_of_text(text)[0], length))
    whole = tiny.encode([text]).ids[0].tolist()
    assert "".join(row.text for row in rows) == text
    assert [token for row in rows for token in row.ids[1:]] == whole[1:]
    for row in rows:
        assert row.ids == tuple(tiny.encode([row.text]).ids[0].tolist())  # as on the Explore page
        assert len(row.ids) <= length


def test_a_character_longer_than_a_row_is_cut_and_the_next_one_read(tiny: Model) -> None:
    rows = list(rows_of_unit(tiny, units_of_text("a😀猫b")[0], 3))
    assert [row.text for row in rows] == ["a", "😀", "猫", "b"]
    assert [len(row.ids) for row in rows] == [2, 3, 3, 2]


def test_separators_split_the_rows_of_a_text_as_the_text_itself(tiny: Model) -> None:
    """Covers texts of one row, texts of several rows, and padded rows."""
    (unit,) = in_units(iter(["the cat. sat. on the mat", "a. cat", "the mat. " * 9]))
    rows = [*rows_of_unit(tiny, unit, 20)]
    batch = batch_of(rows)
    assert len(rows) > len(unit)
    for number, row in enumerate(rows):
        alone = tiny.encode([row.text])
        if alone.ids[0].tolist() == list(row.ids):
            assert batch.split(".")[number, batch.real(number)].tolist() == alone.split(".")[0].tolist()


def test_rows_are_padded_on_the_right(tiny: Model) -> None:
    rows = [row for unit in units_of_text("the cat\nthe cat sat on the mat") for row in rows_of_unit(tiny, unit, 50)]
    batch = batch_of(rows)
    wanted = tiny.encode([row.text for row in rows])
    assert batch.keep.tolist() == wanted.keep.tolist()
    assert batch.ids[wanted.keep].tolist() == wanted.ids[wanted.keep].tolist()


def test_random_tokens_come_twice_and_are_all_different(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(**constants: int) -> Unit:
        for name, number in constants.items():
            monkeypatch.setattr(atlas_unit, f"RANDOM_{name}", number)
        (unit,) = units_of_random(tiny)
        return unit

    unit = drawn(ROWS=5, SPAN=19)
    start = int(tiny.encode(["the"]).ids[0, 0])
    assert len(unit.rows) == 5
    assert len(set(unit.rows)) == 5
    for row in unit.rows:
        assert row[0] == start
        assert row[1:20] == row[20:]
        assert len(set(row)) == 20
        assert max(row) < tiny.vocabulary
    assert unit == drawn()
    assert unit != drawn(SEED=1)
    assert len(drawn(ROWS=1, SPAN=10_000).rows[0]) <= tiny.context


def test_the_sample_is_one_unit_of_short_texts() -> None:
    (unit,) = units_of_sample()
    assert 20 <= len(unit) <= UNIT_TEXTS
    assert all(20 < len(text) < 300 for text in unit.texts)
