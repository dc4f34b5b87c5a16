"""Tests that what is typed stays text, in HTML and in plotly's labels."""

import html

from markupsafe import Markup

from viz.html import escaped, join, letters, shortened, swatch, table, tag, track

TYPED = """<b> & "x" 'y' &lt;"""


def test_content_and_attributes_are_escaped_and_finished_markup_is_not() -> None:
    made = tag("td", TYPED, class_="token", title=TYPED)
    assert html.unescape(made) == f'<td class="token" title="{TYPED}">{TYPED}</td>'
    assert made.count("<") == 2
    assert tag("tr", made) == Markup("<tr>") + made + Markup("</tr>")


def test_an_attributes_name_may_be_a_word_of_python_or_have_a_dash() -> None:
    assert tag("th", "a", colspan=3, aria_current="true") == '<th colspan="3" aria-current="true">a</th>'


def test_a_table_has_a_row_for_each_row() -> None:
    assert table([[tag("th", "<a>")], [tag("td", 1), tag("td", 2)]]) == (
        '<table class="numbers"><tr><th>&lt;a&gt;</th></tr><tr><td>1</td><td>2</td></tr></table>'
    )


def test_parts_are_escaped_where_they_are_joined() -> None:
    assert join(["<", tag("i", ">")], ", ") == "&lt;, <i>&gt;</i>"


def test_a_bar_is_as_wide_as_its_share_and_no_wider_than_its_cell() -> None:
    widths = [track(share, "#123456").partition("width:")[2].partition("%")[0] for share in (-0.1, 0.256, 1.0, 1.7)]
    assert widths == ["0.0", "25.6", "100.0", "100.0"]


def test_a_swatch_is_of_its_colour() -> None:
    assert "background:#123456" in swatch("#123456")


def test_plotly_reads_no_markup_in_a_label_and_shows_its_quotes() -> None:
    assert escaped(TYPED) == "&lt;b&gt; &amp; \"x\" 'y' &amp;lt;"


def test_a_label_is_cut_by_its_width() -> None:
    for label, expected in (("a" * 12, "a" * 12), ("a" * 13, "a" * 11 + "…"), ("小猫看见了那", "小猫看见了那")):
        assert shortened(label, 12) == expected
    assert shortened("小猫看见了那只", 12) == "小猫看见了…"
    assert letters(shortened("a小猫看见了那只", 12)) == 12
