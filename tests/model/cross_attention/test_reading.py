"""Tests of the rules that read a text as a day, and of the generators of dates and of texts that are no dates."""

import random
from datetime import date

import pytest

from model.cross_attention.reading import no_date_reason, read
from model.cross_attention.several_days import month_of
from model.cross_attention.written_dates import (
    CHARACTERS,
    DAYS,
    HELD_OUT_DAYS,
    NO_DATE,
    SHAPES,
    UNKNOWN_CHARACTERS,
    day_of,
    examples,
    held_out_days,
    mistyped,
    training_days,
    year_in_words,
)
from model.training.dates import KINDS, none_examples

CONTEXT = 96


class TestRules:
    @pytest.mark.parametrize(
        ("text", "days"),
        [
            ("the 3rd of March 2021", "2021-03-03"),
            ("2021/4/3", "2021-04-03"),
            ("  MARCH   3 , '97", "1997-03-03"),
            ("Tuesday 3 March 2021", "2021-03-03"),
            ("the twenty first day of Sept. 2000", "2000-09-21"),
            ("29 February 2024", "2024-02-29"),
            ("3/4/2021", "2021-04-03 2021-03-04"),
            ("3.4.21", "2021-04-03 2021-03-04"),
            ("4/4/21", "2021-04-04"),
            ("3 4 1950", "1950-04-03 1950-03-04"),
            ("13/4/50", "1950-04-13"),
            ("4/13/49", "2049-04-13"),
            ("2021-03-04T10:15:00.123+02:00", "2021-03-04"),
            ("20210304T101500Z", "2021-03-04"),
            ("13:55 on 26/Oct/1998", "1998-10-26"),
            ("22st Febuary, two thousand and five", "2005-02-22"),
            ("week 3, Jan 20, 2017", "2017-01-20"),
            ("No. 5, October 2021, the 3rd", "2021-10-03"),
            ("🦊 March 3 2021", "2021-03-03"),
            ("3 May 2021 (3.5.2021)", "2021-05-03"),
            ("3.5.2021 = May 3, 2021", "2021-05-03"),
        ],
    )
    def test_what_a_text_means(self, text: str, days: str) -> None:
        assert " ".join(map(str, read(text))) == days

    @pytest.mark.parametrize(
        "text",
        ["", "hello", "31 February 2021", "29 February 2023", "March 2021", "3 March", "3 March 2100", "13/13/2021",
         "3 March 1899", "3 March April 2021", "12 34 56 78", "3 March 021", "1/2021/3", "²/3/2021", "1.2.20.4",
         "3 4 50", "2021-13-04", "3 March 2021 or 4 May 2022", "3/4-2021", "5 sent 2020", "10:12:2020"],
    )  # fmt: skip
    def test_what_is_no_date(self, text: str) -> None:
        assert read(text) == ()

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("3 March 1021", ("years", "")),
            ("July 4th, 1776", ("years", "")),
            ("3/4/1776", ("years", "")),
            ("3 March 2100", ("years", "")),
            ("29 February 1900", ("calendar", "")),
            ("13/13/2021", ("calendar", "")),
            ("2021-00-04", ("calendar", "")),
            ("3 March 2021 or 4 May 2022", ("several", "")),
            ("3-4 May 2021", ("several", "")),
            ("from the 3rd to the 4th of May 2021", ("several", "")),
            ("3rd of May and 4th of May 2021", ("several", "")),
            ("3 and 31 June 2021", ("several", "")),
            ("on the third or fourth of May 2021", ("several", "")),
            ("May 3rd and 4th, 2021", ("several", "")),
            ("3 - 4 May 2021", ("several", "")),
            ("from 3 – 4 May 2021", ("several", "")),
            ("3, 4 May 2021", ("several", "")),
            ("Sunday 3 - Monday 4 May 2021", ("several", "")),
            ("Sun., 3 - Mon., 4 May 2021", ("several", "")),
            ("May 3 - 4 May 2021", ("several", "")),
            ("2021 May 3 - 4", ("several", "")),
            ("May 3 - May 4, 2021", ("several", "")),
            ("from May 3 to June 4 2021", ("several", "")),
            ("May 3 to June 3, 2021", ("several", "")),
            ("3 May – 4 June 2021", ("several", "")),
            ("3 May-3 June 2021", ("several", "")),
            ("1/2 - 3/4/2021", ("several", "")),
            ("Mar. 3 - Apr. 3, 2021", ("several", "")),
            ("3 Mar. - 5 Apr. 2021", ("several", "")),
            ("3. - 5. Mar 2021", ("several", "")),
            ("3.5. - 4.5.2021", ("several", "")),
            ("3.5.2021 and March 5, 2021", ("several", "")),
            ("2021, May 3 - 4", ("several", "")),
            ("2021 May 3, 4", ("several", "")),
            ("2021 May 3, June 4", ("several", "")),
            ("2021, 3-4 May", ("several", "")),
            ("3 May; 4 May 2021", ("several", "")),
            ("3 May 4 May 2021", ("several", "")),
            ("May 3, May 4, 2021", ("several", "")),
            ("May 3 June 3 2021", ("several", "")),
            ("May 3 - 3 June 2021", ("several", "")),
            ("3, 4, 5 May 2021", ("several", "")),
            ("3-5-7 May 2021", ("several", "")),
            ("3\u20114 May 2021", ("several", "")),
            ("3~4 May '21", ("several", "")),
            ("Paris, 3, 4 May 2021", ("several", "")),
            ("May 3 thru 4, 2021", ("several", "")),
            ("30 - 31 February 2021", ("calendar", "")),
            ("3-4 May 1776", ("years", "")),
            ("the 5th of May 1999 or 2000", ("several", "")),
            ("2021年3月3日", ("letters", "年, 月, 日")),
            ("le 5 juin 2020", ("month", "juin")),
            ("3 de Mayo de 2021", ("month", "Mayo")),
            ("juin 5, 2020", ("month", "juin")),
            ("2020 juin 5", ("month", "juin")),
            ("5 juin '20", ("month", "juin")),
            ("Monday 1er janvier 2001", ("month", "janvier")),
            ("the 5th of Marzo 2021", ("month", "Marzo")),
            ("Monday the 5, 2020", ("nothing", "")),
            ("5. März 2021", ("month", "März")),
            ("3 March", ("nothing", "")),
            ("café", ("nothing", "")),
            ("", ("nothing", "")),
        ],
    )
    def test_why_a_text_is_no_date(self, text: str, why: tuple[str, str]) -> None:
        assert read(text) == ()
        assert no_date_reason(text) == why

    @pytest.mark.parametrize(
        "text",
        [
            "Room 3 - 4 May 2021",
            "80/60 - 4/5/2021",
            "v2.0 - 4.5.2021",
            "45 - 4 May 2021",
            "99 to 4 May 2021",
            "May 4th 2021 at 10-11",
            "4 or 4 May 2021",
            "Chapter 2, 4 May 2021",
            "Windows 8 and 10, 4 May 2021",
            "Part 1/2, 4 May 2021",
            "Day 2 of 3, 4 May 2021",
            "pp. 3-5, 4 May 2021",
            "Season 2020/2021, 4 May 2021",
            "4 May 2021, 2020-2021",
            "1914-1918: 4 May 2021",
            "$5 - 4 May 2021",
            "3rd floor, 4 May 2021",
            "page 3-5, May 4 2021",
            "2021 May 4, 5 people",
            "May 4, 2021, 12 people",
            "4 May 21, May 4 2021",
            "the 3 of us met on 4 May 2021",
        ],
    )
    def test_other_numbers_are_no_second_day(self, text: str) -> None:
        assert read(text)[0] == date(2021, 5, 4)

    def test_one_letter_of_a_month_may_be_wrong_but_not_two(self) -> None:
        words = ("febuary", "marhc", "jully", "octobre", "sept", "junuary", "febury", "mar", "mat", "sent", "")
        assert [month_of(word) for word in words] == [2, 3, 7, 10, 9, 1, 0, 3, 0, 0, 0]

    def test_years_in_words(self) -> None:
        assert year_in_words(1999) == ("nineteen ninety-nine",)
        assert year_in_words(1905) == ("nineteen oh five",)
        assert year_in_words(2005) == ("two thousand and five", "two thousand five")
        assert year_in_words(2021) == ("twenty twenty-one", "two thousand and twenty-one")
        phrases = [words for year in range(1900, 2100) for words in year_in_words(year)]
        assert len(set(phrases)) == len(phrases)


class TestGenerators:
    def test_every_string_is_read_as_the_day_it_was_written_from(self) -> None:
        """This also shows that no two days are written alike, except where a text has two readings."""
        some = examples([day_of(number) for number in range(DAYS)], 12_000, random.Random(8))
        wrong = [(text, iso, read(text)) for text, iso in some if [iso] != [str(day) for day in read(text)[:1]]]
        assert not wrong[:5]
        assert {len(read(text)) for text, _ in some[:1_000]} == {1, 2}
        assert set("".join(text for text, _ in some)) <= set(CHARACTERS) | set(UNKNOWN_CHARACTERS)
        assert max(len(text) for text, _ in some) <= CONTEXT

    @pytest.mark.parametrize("kind", dict.fromkeys(KINDS), ids=lambda kind: kind.__name__[1:])
    def test_a_text_that_is_none_is_seldom_drawn_again(self, kind: object) -> None:
        """Texts that happen to be dates are left out; a kind that often gives dates would not be a distinct kind."""
        draw = random.Random(4)
        some = [kind(draw) for _ in range(300)]  # type: ignore[operator]
        assert sum(bool(read(text)) for text in some) <= 30, [text for text in some if read(text)][:5]

    def test_what_is_no_date_names_none_and_has_its_word(self) -> None:
        some = none_examples(1_000, random.Random(9))
        assert {wanted for _, wanted in some} == {NO_DATE}
        assert all(text and not read(text) for text, _ in some)

    def test_days_that_are_held_out_never_occur_in_training(self) -> None:
        held_out, trained = set(held_out_days()), set(training_days())
        assert len(held_out) == HELD_OUT_DAYS
        assert not held_out & trained
        assert len(held_out | trained) == DAYS == 73_049
        assert held_out_days() == held_out_days()

    def test_there_are_many_formats(self) -> None:
        assert SHAPES >= 60
        texts = {text for text, _ in examples([date(2021, 3, 3)], 3_000, random.Random(2))}
        assert len(texts) > 1_500

    def test_a_typing_error_leaves_the_month_known(self) -> None:
        draw = random.Random(6)
        made = [(name, mistyped(name, draw)) for name in ("February", "July", "September") for _ in range(200)]
        assert len({wrong for _, wrong in made}) > 50
        assert all(month_of(wrong.lower()) == month_of(name.lower()) for name, wrong in made)
