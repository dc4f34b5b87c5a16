"""Tests of pages without a server, in an offline Chromium: reports, a notebook's pictures, live widgets.

Nothing may be fetched but the file itself, and a picture's text about a cell must have the trace's numbers.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import unmask
from model.spec import Stroke
from tests.browser.conftest import Watch
from unmask.notebook import LoadedModel
from unmask.runs import Run
from viz.components import VIEWS, source, style
from viz.heads.cells import growing_packet, weight_text
from viz.saved.explorer import ABSENT, explorer_page
from viz.saved.standalone import Canvas
from viz.saved.standalone import page as page_of

TEXT = "Once upon a time there was a little cat. The little cat said to the dog"
CELL = re.compile(r"(\d+): .* attends to (\d+): .* · (.+)")
Open = Callable[[Path], Page]


@pytest.fixture(scope="module")
def story() -> LoadedModel:
    return unmask.load("story")


@pytest.fixture(scope="module")
def run(story: LoadedModel) -> Run:
    return story.run(TEXT)


@pytest.fixture
def open_file(browser: Browser) -> Iterator[Open]:
    """Yield a function that opens a file as a double click does. Afterwards: no other request, and no error."""
    watch, requests = Watch(""), []
    context = browser.new_context(offline=True, viewport={"width": 1100, "height": 900})

    def opened(file: Path) -> Page:
        page = context.new_page()
        watch.follow(page)
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        return page

    yield opened
    context.close()
    assert not watch.errors
    assert not watch.elsewhere
    assert all(url.startswith(("file:", "data:", "about:")) for url in requests)
    assert len([url for url in requests if url.startswith("file:")]) == 1


def colours(canvas: Locator) -> int:
    """Return the number of different colours on a canvas."""
    return canvas.evaluate("""canvas => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return new Set(new Uint32Array(data.buffer)).size;
    }""")


def texts_at(element: Locator, selector: str, points: list[tuple[float, float]]) -> list[str]:
    """Point at each of these screen points, and return the text of `selector` at each, recorded in the page."""
    element.evaluate(
        """(element, selector) => {
             element.said = [];
             element.onpointermove = () => element.said.push(element.querySelector(selector).innerText);
           }""",
        selector,
    )
    for point in points:
        element.page.mouse.move(*point)
    texts = element.evaluate("element => { element.onpointermove = null; return element.said; }")
    assert len(texts) == len(points)
    return texts


def texts_of_cells(element: Locator) -> dict[tuple[int, int], str]:
    """Return the texts about cells, (query, key) -> text, at points all over a heatmap."""
    expect(element).to_have_attribute("data-head", re.compile("L"))
    box = element.locator("canvas").bounding_box()
    x, y, width, height = (box[part] for part in ("x", "y", "width", "height"))
    points = [(x + width * across / 23, y + height * down / 19) for across in range(2, 20) for down in range(1, 15)]
    found = filter(None, map(CELL.fullmatch, texts_at(element, ".cell", points)))
    texts = {(int(one[1]), int(one[2])): one[3] for one in found}
    assert len(texts) > 60
    return texts


def check_cells(texts: dict[tuple[int, int], str], weights: np.ndarray, blocked: np.ndarray) -> None:
    for cell, words in texts.items():
        expected = "blocked by causal" if blocked[cell] else f"weight {weight_text(weights[cell])}"
        assert words == expected


def test_a_report_by_double_click(run: Run, open_file: Open, tmp_path: Path) -> None:
    page = open_file(unmask.report(run, [(4, 0), (2, 3)]).save(tmp_path / "report.html"))
    heatmap, overview = page.locator(".heatmap"), page.locator(".overview canvas")
    causal = ~np.tri(len(run.labels), dtype=bool)
    check_cells(texts_of_cells(heatmap), run.head(4, 0).numpy(), causal)
    assert colours(heatmap.locator("canvas")) > 50
    assert colours(overview) > 50
    box = overview.bounding_box()
    overview.click(position={"x": 26 + 3.5 * (box["width"] - 26) / 6, "y": 26 + 1.5 * (box["height"] - 26) / 6})
    expect(page.locator("[data-part=name]")).to_have_text("L1 H3")
    expect(heatmap).to_have_attribute("data-head", "L1 H3")
    check_cells(texts_of_cells(heatmap), run.head(1, 3).numpy(), causal)
    page.get_by_role("button", name="L2 H3").click()
    expect(heatmap).to_have_attribute("data-head", "L2 H3")
    expect(page.locator(".tokens")).to_have_attribute("data-head", "L2 H3")
    expect(page.locator(".overview .name")).to_contain_text("Layer 2, head 3")


def test_a_report_by_keyboard(run: Run, open_file: Open, tmp_path: Path) -> None:
    page = open_file(unmask.report(run, [(4, 0)]).save(tmp_path / "report.html"))
    heatmap = page.locator(".heatmap")
    expect(heatmap).to_have_attribute("data-head", "L4 H0")
    page.locator(".overview canvas").focus()
    for key in ("ArrowUp", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(heatmap).to_have_attribute("data-head", "L3 H1")
    heatmap.locator("canvas").focus()
    last = len(run.labels) - 1
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft"):  # the first press starts at the cell of the framed row
        page.keyboard.press(key)
    weight = weight_text(run.head(3, 1).numpy()[last - 1, last - 1])
    expect(heatmap.locator(".cell")).to_contain_text(f"{last - 1}: ")
    expect(heatmap.locator(".cell")).to_contain_text(f"weight {weight}")
    page.keyboard.press("Enter")
    expect(page.locator(".tokens .said")).to_contain_text(f"{last - 1}: {run.labels[last - 1]} attends to")


def test_a_head_that_a_report_has_no_room_for(run: Run, open_file: Open, tmp_path: Path) -> None:
    drawn = run.all_heads([(4, 0)], cells=1, tokens=64)
    assert list(drawn.heads) == [(4, 0)]
    file = tmp_path / "one.html"
    file.write_text(explorer_page("one", drawn, absent=ABSENT), encoding="utf-8")
    page = open_file(file)
    page.locator(".overview canvas").focus()
    expect(page.locator(".heatmap")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("[data-part=name]")).to_have_text(ABSENT.replace("{}", "L5 H0"))
    expect(page.locator(".heatmap")).to_be_hidden()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator(".heatmap")).to_be_visible()


def test_a_difference(story: LoadedModel, run: Run, open_file: Open, tmp_path: Path) -> None:
    lifted = story.run(TEXT, causal=False)
    page = open_file(lifted.head(4, 0).difference(run.head(4, 0)).save(tmp_path / "difference.html"))
    change = lifted.head(4, 0).numpy() - run.head(4, 0).numpy()
    texts = texts_of_cells(page.locator(".heatmap"))
    for cell, words in texts.items():
        digits = weight_text(abs(change[cell]))
        sign = "" if digits == "0.0000" else "+" if change[cell] > 0 else "−"
        assert words == f"change {sign}{digits}"


def test_tokens(run: Run, open_file: Open, tmp_path: Path) -> None:
    page = open_file(run.tokens(4, 0).save(tmp_path / "tokens.html"))
    page.get_by_text("·said", exact=True).hover()
    at = run.labels.index("·said")
    first = int(run.head(4, 0).numpy()[at].argmax())
    weight = weight_text(run.head(4, 0).numpy()[at, first])
    expect(page.locator(".said")).to_contain_text(f"{at}: ·said attends to {first}: {run.labels[first]} {weight}")


def test_arcs(run: Run, open_file: Open, tmp_path: Path) -> None:
    page = open_file(run.arcs(4, [0, 1]).save(tmp_path / "arcs.html"))
    strong = int((run.arcs(4, [0, 1]).numpy() >= 0.1).sum())
    expect(page.locator(".arcs")).to_contain_text(f"Lines: {strong}")


def test_a_mask_to_read(story: LoadedModel, open_file: Open, tmp_path: Path) -> None:
    found = story.run(
        TEXT, masks={"sliding": 5, "sinks": 1, "drawn": [["block", 8, 4, 9, 6], ["open", 2, 9, 3, 9]]}
    ).mask(4, 0)
    page = open_file(found.save(tmp_path / "mask.html"))
    mask, canvas = page.locator(".mask"), page.locator(".mask canvas")
    expect(canvas).to_have_attribute("aria-label", re.compile("^The composed mask: "))
    assert colours(canvas) > 5
    box, length = canvas.bounding_box(), len(found.numpy())
    margin = canvas.evaluate("canvas => canvas.maskEditor.mask.room")
    side = box["width"] - margin["l"] - margin["r"]
    assert side > 300
    cells = list(np.ndindex(found.numpy().shape))
    offsets = [[margin[edge] + (at + 0.5) * side / length for edge, at in (("l", k), ("t", q))] for q, k in cells]
    points = [(box["x"] + across, box["y"] + down) for across, down in offsets]
    for (query, key), text in zip(cells, texts_at(mask, ".why", points), strict=True):
        assert re.match(rf"{query}: .* attends to {key}: ", text)
        assert ("blocked by" in text.split(": ", 3)[-1]) != found.numpy()[query, key]
    expect(mask.locator(".tools")).to_be_hidden()
    before = canvas.evaluate("canvas => canvas.toDataURL()")
    page.mouse.click(*points[-1])
    page.keyboard.press("u")
    page.keyboard.press("r")
    assert canvas.evaluate("canvas => canvas.toDataURL()") == before  # there is no model here to run with a drawing


WIDGETS = """
<!doctype html><meta charset="utf-8">
<script type="module">
const bytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
globalThis.saved = [];
globalThis.models = [];
for (const { code, packet, traits } of %s) {
  const heard = {};
  const model = {
    packet: new DataView(bytes(packet).buffer),
    get: (name) => (name === "packet" ? model.packet : traits[name]),
    set: (name, value) => saved.push([name, value]),
    save_changes: () => globalThis.hear?.(...saved.at(-1)),
    on: (event, listener) => (heard[event] = listener),
    off: () => {},
    update: (text) => {
      model.packet = new DataView(bytes(text).buffer);
      heard["change:packet"]();
    },
  };
  models.push(model);
  const module = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  const element = document.body.appendChild(document.createElement("div"));
  model.leave = module.default.render({ model, el: element });
}
</script>
"""


def in_base64(packet: bytes) -> str:
    return base64.b64encode(packet).decode()


def open_widgets(page: Page, file: Path, *canvases: Canvas) -> None:
    """Open these canvases as widgets, each with a stub of anywidget's model: get, set, save_changes, on, off."""
    shown = [
        {
            "code": source(*VIEWS[canvas.view], "anywidget.js"),
            "packet": in_base64(canvas.packet),
            "traits": {"view": canvas.view, "css": source("widget.css") + style(canvas.view)},
        }
        for canvas in canvases
    ]
    file.write_text(WIDGETS % json.dumps(shown).replace("</", "<\\/"), encoding="utf-8")
    page.goto(file.as_uri())


@pytest.mark.parametrize("view", ["overview", "heatmap", "tokens", "mask", "pixels"])
def test_a_live_widget_tells_what_is_picked(view: str, run: Run, browser: Browser, tmp_path: Path) -> None:
    three = unmask.digit([index % 8 for index in range(64)], 3)
    shown = {"overview": run.heads(), "heatmap": run.head(4, 0), "tokens": run.tokens(4, 0), "mask": run.mask(4, 0),
             "pixels": three.pixels(1, 1, 20)}[view]  # fmt: skip
    page = browser.new_page()
    open_widgets(page, tmp_path / "widget.html", shown.canvas())
    if view == "tokens":
        page.get_by_text("·time", exact=True).click()
        expected = ["query", 4]
    else:
        if view in ("mask", "pixels"):  # drawn once its packet is unpacked
            expect(page.locator("canvas")).to_have_attribute("aria-label", re.compile("Enter (draws|picks)"))
        page.locator("canvas").focus()
        keys, expected = {
            "heatmap": (("ArrowUp", "ArrowUp", "Enter"), ["query", len(run.labels) - 2]),
            "mask": (
                ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"),
                ["drawn", {"number": 1, "epoch": 0, "strokes": [["block", 2, 1, 2, 1]]}],
            ),
            "overview": (("ArrowUp", "Enter"), ["pick", [3, 0]]),
            "pixels": (("ArrowDown", "Enter"), ["pick", 28]),
        }[view]
        for key in keys:
            page.keyboard.press(key)
    page.wait_for_function("() => saved.length > 0")
    assert page.evaluate("saved.at(-1)") == expected
    page.evaluate("models[0].leave()")
    page.close()


@pytest.mark.parametrize("view", ["overview", "heatmap", "mask"])
def test_frames_stay_on_their_cells_on_a_screen_of_another_pixel_ratio(
    view: str, run: Run, open_file: Open, tmp_path: Path
) -> None:
    shown = {"overview": run.heads(), "heatmap": run.head(4, 0), "mask": run.mask(4, 0)}
    page = open_file(shown[view].save(tmp_path / "picture.html"))
    canvas = page.locator(f".{view} canvas")
    expect(canvas).to_have_attribute("aria-label", re.compile("."))
    seen = []
    for ratio in (1, 2):  # as when the window is moved from one screen to another
        sizes = {**page.viewport_size, "deviceScaleFactor": ratio, "mobile": False}
        page.context.new_cdp_session(page).send("Emulation.setDeviceMetricsOverride", sizes)
        page.wait_for_function("ratio => devicePixelRatio === ratio", arg=ratio)
        page.mouse.move(1, 1)
        canvas.hover()
        seen.append(canvas.evaluate("canvas => [canvas.width, canvas.toDataURL()]"))
    assert seen[0] == seen[1]


@pytest.fixture
def growing(run: Run, open_file: Open, tmp_path: Path) -> Page:
    """Return a tab with the picture of Generation, without its page."""
    packet = growing_packet(run.head(4, 0).view, name="L4 H0", query=2, alt="a head")
    (tmp_path / "growing.html").write_text(page_of("a head", [Canvas("heatmap", packet)]), encoding="utf-8")
    page = open_file(tmp_path / "growing.html")
    expect(page.locator(".heatmap")).to_have_attribute("data-head", "L4 H0")
    return page


def test_a_growing_head_keeps_its_cells_when_the_window_s_height_alone_changes(growing: Page) -> None:
    canvas, cell = growing.locator("canvas"), growing.locator(".cell")
    seen = []
    for height in (1400, 800):
        growing.set_viewport_size({"width": 1000, "height": height})  # narrower than before: it is repainted once
        expect(canvas).to_have_js_property("width", 984)
        canvas.hover(position={"x": 300, "y": 300})
        expect(cell).to_have_text(CELL)
        seen.append((cell.inner_text(), canvas.bounding_box()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("width", [312, 272])  # its width in Generation on phones of 360 and 320 pixels
def test_a_growing_head_has_its_whole_colour_bar_on_a_small_phone(width: int, growing: Page) -> None:
    growing.set_viewport_size({"width": width + 16, "height": 740})
    canvas = growing.locator("canvas")
    expect(canvas).to_have_js_property("width", width)
    shown = """canvas => ((wide, pen) => [57, 1].map((right) => new Set(
      new Uint32Array(pen.getImageData(wide - right, 0, 1, canvas.height).data.buffer)).size)
    )(canvas.width, canvas.getContext("2d"))"""
    colours, edge = canvas.evaluate(shown)
    assert colours > 40, "of the bar, which is left of its numbers"
    assert edge == 1, "no number reaches the edge"


@pytest.mark.parametrize("view", ["overview", "heatmap", "mask"])
def test_a_live_widget_follows_the_notebook_s_theme(view: str, run: Run, browser: Browser, tmp_path: Path) -> None:
    shown = {"overview": run.heads(), "heatmap": run.head(4, 0), "mask": run.mask(4, 0)}
    page = browser.new_page()
    open_widgets(page, tmp_path / "widget.html", shown[view].canvas())
    canvas = page.locator("canvas").first
    expect(canvas).to_have_attribute("aria-label", re.compile("."))
    page.wait_for_timeout(300)
    light = canvas.evaluate("canvas => canvas.toDataURL()")
    for ink, paper, same in (("white", "#111", False), ("black", "white", True)):
        theme = f"--jp-ui-font-color1: {ink}; --jp-layout-color0: {paper}"
        page.locator("html").evaluate("(html, theme) => html.style.cssText = theme", theme)
        condition = "([canvas, light, same]) => (canvas.toDataURL() === light) === same"
        page.wait_for_function(condition, arg=[canvas.element_handle(), light, same])
    page.close()


def test_what_is_drawn_on_the_mask_of_a_live_head_is_run_and_shown(run: Run, browser: Browser, tmp_path: Path) -> None:
    live = run.live(4, 0)
    page = browser.new_page(viewport={"width": 900, "height": 1400})

    def hear(name: str, value: object) -> str:
        live.mask.set_trait(name, value)  # as the kernel does with what the browser saved
        return in_base64(live.head.packet)

    page.expose_function("redrawn", hear)
    page.add_init_script("globalThis.hear = async (...drawn) => models[1].update(await redrawn(...drawn));")
    open_widgets(page, tmp_path / "live.html", run.mask(4, 0).canvas(), run.head(4, 0).canvas())
    expect(page.locator(".mask canvas")).to_have_attribute("aria-label", re.compile("Enter draws"))
    expect(page.locator(".heatmap")).to_have_attribute("data-head", "L4 H0")
    heatmap = page.locator(".heatmap canvas").element_handle()
    before = heatmap.evaluate("canvas => canvas.toDataURL()")
    page.locator(".mask canvas").focus()
    page.keyboard.press("c")  # the first column: the token that most tokens attend to
    page.wait_for_function("([canvas, before]) => canvas.toDataURL() !== before", arg=[heatmap, before])
    expected = run.under(replace(run.masks, drawn=(Stroke("block", 0, 0, len(run.labels) - 1, 0),)))
    weights, blocked = expected.head(4, 0).numpy(), expected.head(4, 0).view.any_blocked()
    assert live.run.masks == expected.masks
    for (query, key), words in texts_of_cells(page.locator(".heatmap")).items():
        by = "drawn" if key == 0 else "causal"
        assert words == (f"blocked by {by}" if blocked[query, key] else f"weight {weight_text(weights[query, key])}")
    page.close()
