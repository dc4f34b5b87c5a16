"""Tests of the controls of the page that contains the model: mouse, keys, touch, languages, themes and Firefox."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

import unmask
from i18n import spoken
from model import catalog
from model.gpt2 import save_transformer
from model.heads.survey import survey
from model.masks import MaskSpec
from model.transformer import Transformer, TransformerConfig
from tests.browser import firefox
from tests.browser.test_live_page import Open, file, open_page, ready, run  # noqa: F401 - fixtures
from unmask.__main__ import main
from viz.heads.overview import TITLES
from viz.html import signs
from viz.numbers import percent

TEXT = "The little cat saw the big dog, and the little cat saw the big dog"
ROWS = "Once upon a time there was a little cat\nThe dog"
FOCUS = """() => {
  const one = document.activeElement;
  return one.id || one.dataset.mask || one.name || one.closest("[data-part]")?.dataset.part || "";
}"""
CJK = re.compile("[\u4e00-\u9fff]")


def show(page: Page, text: str) -> None:
    page.locator("#text").fill(text)
    page.get_by_role("button", name="Run").click()
    ready(page)


def cell(page: Page, view: str, query: int, key: int) -> str:
    """Move to a cell of one of the heatmaps by arrow keys, and return its text."""
    canvas, label = (page.locator(f"[data-part={view}] {name}") for name in ("canvas", ".cell"))
    canvas.focus()
    for arrow, steps in (("ArrowUp", 20), ("ArrowLeft", 20), ("ArrowDown", query), ("ArrowRight", key)):
        for _ in range(steps):
            page.keyboard.press(arrow)
    text: str = label.inner_text()
    return text


def means(page: Page) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.\d\d", page.locator("#losses p").first.inner_text())]


def test_what_is_said_is_what_the_library_measures(open_page: Open) -> None:  # noqa: F811
    page, model = open_page(), unmask.load("story")
    show(page, TEXT)
    expect(page.locator("#name")).to_have_text("L4 H0")
    standard = model.run(TEXT)
    assert means(page) == [pytest.approx(np.nanmean(standard.losses), abs=0.006)]
    assert page.locator("[data-part=standard]").is_hidden()
    assert cell(page, "now", 2, 5) == "2: ·little attends to 5: ·the · blocked by causal"
    assert cell(page, "now", 5, 2).endswith(f"· weight {standard.head(4, 0).weights[5, 2]:.4f}")

    for text, bytes_too in ((f"{TEXT} 你", True), (TEXT, False)):
        show(page, text)
        assert page.locator("#signs").inner_text() == signs(model.run(text).labels)
        assert ("⟨E4⟩ stands for one or more bytes" in page.locator("#signs").inner_text()) == bytes_too

    page.get_by_label("Causal", exact=True).uncheck()
    ready(page)
    lifted = model.run(TEXT, causal=False)
    assert means(page) == [pytest.approx(np.nanmean(one.losses), abs=0.006) for one in (lifted, standard)]
    change = lifted.head(4, 0).weights - standard.head(4, 0).weights
    assert cell(page, "now", 2, 5).endswith(f"· weight {lifted.head(4, 0).weights[2, 5]:.4f}")
    assert cell(page, "standard", 2, 5).endswith("· blocked by causal")
    assert cell(page, "difference", 2, 5).endswith(f"· change {change[2, 5]:+.4f}".replace("-", "−"))
    candidates = page.locator("#next tr").nth(1).locator("td").all_inner_texts()
    assert candidates[0] == lifted.next_token(most=1).candidates[0].label
    assert candidates[3] == standard.next_token(most=1).candidates[0].label
    leak = page.locator("#leak tr").nth(1).locator("td").all_inner_texts()
    assert leak == ["L4 H0: on later tokens", percent(float(lifted.survey.future[4, 0])), "0%"]
    assert f"{leak[1]} of L4 H0's attention goes to later tokens." in page.locator("#sentence").inner_text()

    page.locator("#scope").select_option("layer")
    ready(page)
    only = standard.trace.weights(4, 0, masks=MaskSpec(causal=False)).numpy()
    assert cell(page, "now", 2, 5).endswith(f"· weight {only[2, 5]:.4f}")
    assert len(means(page)) == 1
    assert "Only L4's weights are recomputed" in page.locator("#sentence").inner_text()
    page.get_by_role("button", name="Standard masks").click()
    ready(page)
    expect(page.get_by_label("Causal", exact=True)).to_be_checked()
    expect(page.locator("[data-part=standard]")).to_be_hidden()


def test_a_mean_over_heads_is_of_those_that_attend_to_something(open_page: Open, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "page.html"
    assert main(["page", "-o", str(path), "--masks", '{"drawn": [["block", 0, 0, 40, 40]]}']) == 0
    page = open_page(path)
    page.locator("#scope").select_option("layer")
    ready(page)
    rows = [row.split("\t") for row in page.locator("#leak tr").all_inner_texts()]
    assert [row[1] for row in rows[1:]] == ["–", "–", "0%", "0%"]


def test_shorter_lines_are_padded_on_either_side(open_page: Open) -> None:  # noqa: F811
    page = open_page()
    show(page, ROWS)
    page.locator("#row").select_option(index=1)
    page.locator("#side").select_option("right")
    page.get_by_label("Padding", exact=True).uncheck()
    ready(page)
    assert cell(page, "standard", 2, 8).endswith("· blocked by causal and padding")
    page.locator("#side").select_option("left")
    ready(page)
    assert cell(page, "standard", 8, 0).endswith("· blocked by padding")
    model = catalog.load("story")
    batch = model.encode(ROWS.splitlines(), "left")
    expected = model.run(batch, MaskSpec(padding=False)).losses(1).nanmean(), model.run(batch).losses(1).nanmean()
    assert means(page) == [pytest.approx(float(loss), abs=0.006) for loss in expected]
    assert "goes to padding" in page.locator("#sentence").inner_text()
    page.get_by_label("queries too").check()  # an option of the padding mask, which is off
    ready(page)
    assert means(page) == [pytest.approx(float(loss), abs=0.006) for loss in expected]


def test_the_overview_has_the_shares_that_the_library_measures(open_page: Open) -> None:  # noqa: F811
    """All seven shares of every head, on padded rows with repeated tokens, with both masks off."""
    page, text = open_page(), ROWS + " and the dog and the little dog"
    show(page, text + "\n" + " ".join([text] * 2))
    page.locator("#row").select_option(index=1)
    for label in ("Causal", "Padding"):
        page.get_by_label(label, exact=True).uncheck()
    ready(page)
    model = catalog.load("story")
    batch = model.encode([*(text + "\n" + " ".join([text] * 2)).splitlines()], "left")
    shares = survey(model.run(batch, MaskSpec(causal=False, padding=False)), 1).shares
    overview, choice = page.locator("[data-part=overview] canvas"), page.locator("[data-part=overview] select")
    assert choice.locator("option").count() == 1 + len(shares)
    for name, share in shares.items():
        choice.select_option(name)
        overview.focus()
        for key in ("ArrowUp", "ArrowLeft") * 6:
            page.keyboard.press(key)
        for layer in range(6):
            for head in range(6):
                at = head if layer % 2 == 0 else 5 - head
                name_shown = page.locator("[data-part=overview] .name").inner_text()
                assert name_shown.startswith(f"Layer {layer}, head {at}"), name_shown
                assert f"{TITLES[name]} {percent(float(share[layer, at]))}" in name_shown, (name, name_shown)
                page.keyboard.press("ArrowDown" if head == 5 else "ArrowRight" if layer % 2 == 0 else "ArrowLeft")


def test_one_query_marks_no_head(open_page: Open) -> None:  # noqa: F811
    page = open_page()
    show(page, "The moon rose over the hill and the boat went home")  # "the" comes twice
    options = page.locator("[data-part=overview] select option").evaluate_all("some => some.map(one => one.value)")
    assert options == ["", "previous", "first", "itself"]


def test_other_masks_and_a_drawing(open_page: Open) -> None:  # noqa: F811
    page = open_page()
    page.get_by_text("More masks").click()
    for label, value in (("Sliding window", "2"), ("Sinks", "1"), ("Documents", ",")):
        page.get_by_label(label).fill(value)
        page.get_by_label(label).press("Tab")
    ready(page)
    assert cell(page, "now", 10, 0).startswith("10: ·the attends to 0: <start> · weight")
    assert cell(page, "now", 7, 4).endswith("· blocked by sliding")
    assert cell(page, "now", 10, 5).endswith("· blocked by sliding and documents")
    grid = page.locator("[data-part=mask] canvas")
    grid.focus()
    grid.press("ArrowDown")  # from the first cell
    grid.press("Enter")
    ready(page)
    expect(page.locator("[data-part=mask] .why")).to_contain_text("blocked by drawn")
    assert cell(page, "now", 1, 0).endswith("· blocked by drawn")
    box = grid.bounding_box()
    page.get_by_role("button", name="Open").click()
    page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 52)  # right of the diagonal
    page.mouse.down()
    page.mouse.up()
    ready(page)
    expect(page.locator("[data-part=mask] .why")).to_contain_text("drawn open, ")
    drawn = page.locator("[data-part=mask] .why").inner_text()
    query, key = (int(number) for number in re.findall(r"(\d+): ", drawn))
    assert key > query
    assert " · weight " in cell(page, "now", query, key)
    page.get_by_role("button", name="Undo").click()
    ready(page)
    assert " · blocked by " in cell(page, "now", query, key)
    page.get_by_role("button", name="Standard masks").click()
    ready(page)
    expect(page.locator("[data-part=mask] [data-do=clear]")).to_be_disabled()
    assert page.get_by_label("Sliding window").input_value() == "0"


def test_it_can_be_used_by_keys_alone(open_page: Open) -> None:  # noqa: F811
    page = open_page()
    passed = []
    for _ in range(31):
        page.keyboard.press("Tab")
        passed.append(page.evaluate(FOCUS))
        if passed[-1] == "tokens":
            break
    assert [name for name in passed if name] == [
        "text",
        "causal",
        "padding",
        "padding_queries",
        "scope",
        "reset",
        "overview",
        "overview",  # its select box: the measure that dims heads
        "now",
        "view",
        "tokens",
    ]
    page.locator("#text").press("Control+a")
    page.keyboard.type("The dog ran")
    page.locator("#text").press("Control+Enter")
    expect(page.locator("#status")).to_contain_text("Tokens: 4;")
    overview = page.locator("[data-part=overview] canvas")
    overview.focus()
    for key in ("ArrowUp", "ArrowRight", "Enter"):
        overview.press(key)
    expect(page.locator("#name")).to_have_text("L3 H1")
    page.get_by_label("Causal", exact=True).press(" ")
    expect(page.locator("[data-part=standard]")).to_be_visible()
    page.get_by_label("Tokens", exact=True).press("ArrowRight")
    expect(page.locator("[data-part=arcs] .picture")).to_be_visible()
    expect(page.locator("[data-part=tokens]")).to_be_hidden()
    page.locator("[data-part=arcs] .picture").press("ArrowUp")
    expect(page.locator("#after")).to_contain_text("(2)")


def test_no_bar_of_the_two_runs_is_cut(open_page: Open) -> None:  # noqa: F811
    page = open_page()
    page.get_by_label("Causal", exact=True).click()
    ready(page)
    for width in (1280, 1024, 820, 390):
        page.set_viewport_size({"width": width, "height": 900})
        found = page.locator(".strip > div").evaluate_all("all => all.map((one) => one.scrollWidth - one.clientWidth)")
        assert found == [0, 0, 0], width


def test_on_a_phone(open_page: Open) -> None:  # noqa: F811
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.get_by_label("Causal", exact=True).tap()
    ready(page)
    page.get_by_text("More masks").tap()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    overview = page.locator("[data-part=overview] canvas")
    box = overview.bounding_box()
    overview.tap(position={"x": box["width"] - 10, "y": box["height"] - 10})
    expect(page.locator("#name")).to_have_text("L5 H5")
    page.locator("[data-part=now] canvas").tap(position={"x": 150, "y": 50})
    expect(page.locator("[data-part=now] .cell")).to_contain_text("attends to")
    page.get_by_role("button", name="Draw").tap()
    grid = page.locator("[data-part=mask] canvas")
    grid.tap(position={"x": 200, "y": 100})
    ready(page)
    expect(page.locator("[data-part=mask] [data-do=undo]")).to_be_enabled()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(open_page: Open, theme: str) -> None:  # noqa: F811
    page = open_page(color_scheme=theme, bypass_csp=True)
    page.get_by_label("Causal", exact=True).uncheck()
    page.get_by_text("More masks").click()
    ready(page)
    page.evaluate(AXE_SCRIPT)
    for view in ("Tokens", "Arcs"):
        page.get_by_label(view, exact=True).check()
        found = page.evaluate("axe.run({ resultTypes: ['violations'] }).then(({ violations }) => violations)")
        assert not [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found]
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if theme == "light" else "rgb(14, 17, 23)")


def test_a_run_can_be_cancelled_and_what_is_wrong_is_said(open_page: Open) -> None:  # noqa: F811
    page = open_page()
    long = "One upon a time the cat sat. " * 400
    results = page.evaluate(
        """async (text) => {
          const stop = new AbortController();
          const one = unmask.run(text, {}, { signal: stop.signal }).catch((error) => error.name);
          stop.abort();
          const wrong = [{ slidin: 4 }, { causal: 1 }, { drawn: [["paint", 0, 0, 1, 1]] }, {}];
          const asked = wrong.map((masks, at) => unmask.run(at < 3 ? text : "", masks));
          const errors = asked.map((one) => one.catch((error) => error.message));
          return Promise.all([one, ...errors]);
        }""",
        long,
    )
    assert results[0] == "AbortError"
    assert re.match("expected masks out of drawn, causal, .*, got slidin", results[1])
    assert results[2:] == [
        "causal: expected a value like true, got 1",
        'drawn: expected strokes, got [["paint",0,0,1,1]]',
        "expected a text",
    ]
    page.locator("#text").fill(long)
    page.evaluate("document.querySelector('[type=submit]').click(); document.getElementById('cancel').click()")
    expect(page.locator("#status")).to_have_text("Cancelled.")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#status")).to_contain_text("Tokens: 256;")
    assert "The model reads at most 256 tokens here: the text is cut from “" in page.locator("#status").inner_text()
    show(page, "\n".join([f"{'o' * 39}😀", *(f"line {number}" for number in range(20))]))
    assert page.locator("#row option").first.inner_text() == f"1: {'o' * 39}😀"
    assert "Only the first 16 lines are read." in page.locator("#status").inner_text()
    page.locator("#text").fill(" ")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#status")).to_have_text("Type a text.")
    expect(page.locator("#name")).to_be_hidden()
    expect(page.locator("#losses")).to_be_hidden()
    page.locator("#text").fill("<img src=x onerror=alert(1)> </script>")
    page.get_by_role("button", name="Run").click()
    ready(page)
    assert page.locator("main img").count() == 0


def test_padding_counts_as_no_token(open_page: Open) -> None:  # noqa: F811
    page = open_page()
    show(page, "one\none two three four five six")
    expect(page.locator("#status")).to_contain_text("Tokens: 2;")


def test_in_chinese(open_page: Open, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "page.html"
    hostile = "</textarea><script>window.hurt = 1</script> 你好"
    assert (
        main(["page", "--lang", "zh", "--text", hostile, "--masks", '{"causal": false, "sinks": 2}', "-o", str(path)])
        == 0
    )
    page = open_page(path, status="秒")
    assert page.get_attribute("html", "lang") == "zh"
    assert page.locator("#text").input_value() == hostile
    assert page.evaluate("window.hurt") is None
    expect(page.locator("[data-mask=causal]")).not_to_be_checked()
    assert page.locator("[data-mask=sinks]").input_value() == "2"
    words = page.locator("label, button, h2, summary, legend, figcaption, p.note, th").all_inner_texts()
    english = [one for one in words if one and re.search("[A-Za-z]{4}", one) and not CJK.search(one)]
    assert not english
    with spoken("zh"):
        assert page.locator("#signs").inner_text() == signs(unmask.load("story").run(hostile).labels)


def test_another_checkpoint(open_page: Open, tmp_path: Path) -> None:  # noqa: F811
    """A checkpoint with untied embeddings, its own MLP width and a tokenizer without a start token."""
    torch.manual_seed(2)
    config = TransformerConfig(vocabulary=4096, context=48, layers=3, heads=2, width=24, mlp_width=40, tied=False)
    network = Transformer(config).half().float()  # rounded to what float16 holds
    save_transformer(network, tmp_path / "tiny")
    tokenizer = (catalog.fetch("story") / "tokenizer.json").read_text("utf-8").replace("<start>", "<other>")
    (tmp_path / "tiny" / "tokenizer.json").write_text(tokenizer, "utf-8")
    path = tmp_path / "page.html"
    assert main(["page", "--model", str(tmp_path / "tiny"), "--text", "The cat", "-o", str(path)]) == 0
    page, model = open_page(path), unmask.load(str(tmp_path / "tiny"))
    for text in ("The little cat", "The dog and the king saw the old horse. " * 9):
        expected, found = (
            model.run(text, masks={"causal": False, "sinks": 1}),
            run(page, text, {"causal": False, "sinks": 1}),
        )
        assert found["ids"] == expected.trace.batch.ids[0].tolist()
        np.testing.assert_allclose(found["logits"], expected.trace.logits[0].numpy().ravel(), atol=1e-3)
        np.testing.assert_allclose(found["weights"], expected.numpy().ravel(), atol=1e-4)


@pytest.mark.skipif(firefox.FOUND is None, reason="no Firefox here: apt-get install firefox-esr")
def test_in_firefox(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "profile").mkdir()
    done = "document.getElementById('cancel').disabled && document.getElementById('status').textContent"

    def when(condition: str) -> str:
        """Return JavaScript for the status once this condition holds and no run is in progress."""
        wait = "await new Promise((go) => setTimeout(go, 50))"
        return f"(async () => {{ while (!({condition} && {done})) {wait}; return {done}; }})()"

    with firefox.firefox(tmp_path / "profile") as tab:
        tab.open(file.as_uri())
        assert tab.evaluate(when("document.getElementById('name').textContent")).startswith("Tokens: 17;")
        picture = "document.querySelector('[data-part=now] canvas').toDataURL()"
        before = tab.evaluate(picture)
        tab.evaluate("document.querySelector('[data-mask=causal]').click()")
        tab.evaluate(when("document.querySelectorAll('figure:not([hidden])').length === 3"))
        assert tab.evaluate(picture) != before
        losses = tab.evaluate(
            "unmask.run('The little cat', {causal: false}).then(({ losses }) => [...losses].slice(1))"
        )
        expected = unmask.load("story").run("The little cat", causal=False).losses[1:]
        np.testing.assert_allclose(losses, expected, atol=1e-3)
        assert (
            tab.evaluate("unmask.encode('naïve 😀\\u0085\\ufeff x²').ids")
            == catalog.load("story").encode(["naïve 😀\u0085\ufeff x²"]).ids[0].tolist()
        )
        assert not tab.errors
