"""Page object of Explore, and base class of the others: what the page shows, and what a user can do on it."""

import base64
import io
import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Locator, Page

TIMEOUT = 120_000  # ms that a page may take: other tests run in parallel, and other machines are slower
POLLING = 50  # ms between two polls of a page's state: polling at each frame, Chromium did little else
SOURCE = Path(__file__).parents[2] / "viz" / "components" / "overview.js"

LARGE = "chart => chart._fullData.find(trace => trace.xaxis === 'x' && trace.name !== 'blocked')"  # heatmap's trace

STATE = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const [chart, another] = document.querySelectorAll('.st-key-head_figure .js-plotly-plot');
  const overview = document.querySelector('.st-key-overview [data-testid=stBidiComponentIsolated]');
  const canvas = overview?.shadowRoot?.querySelector('canvas');
  if (app?.dataset.testScriptState !== 'notRunning' || !chart?._fullData || another || !canvas) return null;
  if (!/[0-9]/.test(canvas.getAttribute('aria-label'))) return null;  // its packet is not unpacked yet
  const text = (query) => [...document.querySelectorAll(query)].map((element) => element.innerText).join('|');
  return JSON.stringify([
    location.search, canvas.toDataURL(), chart._fullData.map((trace) => trace.z), chart.getBoundingClientRect(),
    text('table.numbers'), text('.sentence'),
  ]);
}"""

STILL = """async (before) => {
  // the server has not begun to answer, a chart is still to be drawn, Streamlit still fetches the script of an element
  // and shows a skeleton in its place, or the sidebar is still on its way
  const drawn = '.chart[aria-busy=true], [data-testid^=stSkeleton]';
  const waits = () => [
    window.sent > window.heard && `${window.sent - window.heard} answers of the server`,
    ...[...document.querySelectorAll(drawn)].map((element) => element.outerHTML.slice(0, 200)),
    ...document.getAnimations().filter((motion) => motion instanceof CSSTransition).map(
      (motion) => `${motion.transitionProperty} of ${motion.effect?.target?.outerHTML.slice(0, 200)}`),
  ].filter(Boolean);
  const look = () => waits().length ? null : (LOOK)();
  const rest = () => new Promise((done) => setTimeout(done, POLLING));
  const end = Date.now() + TIMEOUT;
  const giveUp = (what) => {
    const app = document.querySelector('[data-testid=stApp]')?.dataset;
    const found = JSON.stringify({ ...app, waits: waits(), url: location.href });
    throw new Error(`${what}: ${found} ${document.body.innerText.slice(0, 1000)}`);
  };
  let state = look();
  while (state === null || state === before) {
    if (Date.now() > end) giveUp("nothing changes");
    await rest();
    state = look();
  }
  for (let same = 0; same < 3;) {
    if (Date.now() > end) giveUp("the page does not come to rest");
    await rest();
    const now = look();
    same = now !== null && now === state ? same + 1 : 0;
    state = now;
  }
  return state;
}"""  # evaluated in the page, so that its state is sent to Python once, not at each poll
SCHEME = "scheme => getComputedStyle(document.querySelector('[data-testid=stApp]')).colorScheme === scheme"


class Explore:
    """The page at an address, once it has settled, that is, once its state stays the same for a while."""

    PATH = ""  # the page's path in the URL
    STATE = STATE  # JavaScript: the visible state of the page, null while it is not there yet

    def __init__(self, page: Page, address: str, go: Callable[[Page, str], object] = Page.goto) -> None:
        """Open the address by `go` and wait until the page has settled."""
        self.page = page
        page.set_default_timeout(TIMEOUT)
        go(page, address)
        self._state = self._settled()

    def after(self, action: Callable[[], Any]) -> "Explore":
        """Run the action, and wait until the page has changed and settled. Raises Error if nothing changes."""
        before = self._state
        action()
        self._state = self._settled(before)
        return self

    def until(self, ask: Callable[[], Any], seconds: float = 300) -> None:
        """Wait until ask() is true: a busy server answers messages one by one. Raises AssertionError if late."""
        deadline = time.monotonic() + seconds
        while not ask():
            assert time.monotonic() < deadline, f"not within {seconds} seconds"
            self.page.wait_for_timeout(100)

    def swipe(self, at: tuple[float, float], up: int) -> None:
        """Touch the screen at a point with a finger and move it up by `up` pixels."""
        finger = self.page.context.new_cdp_session(self.page)
        x, y = at
        for event, step in (("touchStart", 0), *(("touchMove", step) for step in range(1, 9)), ("touchEnd", None)):
            points = [] if step is None else [{"x": x, "y": y - up * step / 8}]
            finger.send("Input.dispatchTouchEvent", {"type": event, "touchPoints": points})
            self.page.wait_for_timeout(20)

    def pinch(self, first: tuple[float, float], second: tuple[float, float], distance: int) -> None:
        """Touch the screen at two points with two fingers and move each outwards by `distance` pixels in x and in y."""
        fingers = self.page.context.new_cdp_session(self.page)
        moves = (("touchMove", 2, distance * step / 8) for step in range(1, 9))
        for event, count, far in (("touchStart", 1, 0), ("touchStart", 2, 0), *moves, ("touchEnd", 0, 0)):
            ends = [(*first, -far), (*second, far)][:count]
            points = [{"x": x + by, "y": y + by, "id": number} for number, (x, y, by) in enumerate(ends)]
            fingers.send("Input.dispatchTouchEvent", {"type": event, "touchPoints": points})
            self.page.wait_for_timeout(20)

    def toggle(self, name: str) -> "Explore":
        """Flip a mask switch, and wait for the page to change."""
        switch = self.page.get_by_role("switch", name=name, exact=True)
        return self.after(lambda: switch.locator("xpath=ancestor::label").click(position={"x": 18, "y": 10}))

    def choose(self, label: str, option: str) -> "Explore":
        """Choose an option of a select box, and wait for the page to change."""

        def pick() -> None:
            box = self.page.get_by_role("combobox", name=label, exact=True)
            box.scroll_into_view_if_needed()  # a list closes when the page is scrolled
            box.click()
            self.offered.and_(self.page.get_by_role("option", name=option, exact=True)).click()

        return self.after(pick)

    def options(self, label: str) -> list[str]:
        """Return the options of a select box."""
        self.page.get_by_role("combobox", name=label, exact=True).click()
        self.offered.first.wait_for()
        names = self.offered.all_inner_texts()
        self.page.keyboard.press("Escape")
        self.offered.first.wait_for(state="detached")
        return names

    @property
    def offered(self) -> Locator:
        """The options of the open select box; not by their role alone, which a text's tokens have too."""
        return self.page.locator("[data-testid=stSelectboxVirtualDropdown] [role=option]")

    def shown(self, label: str) -> str:
        """Return the option that a select box shows."""
        return self.page.get_by_role("combobox", name=label, exact=True).input_value()

    def is_on(self, name: str) -> bool:
        """Whether a mask switch is on."""
        return self.page.get_by_role("switch", name=name, exact=True).is_checked()

    @property
    def chart(self) -> Locator:
        """The large heatmaps."""
        return self.page.locator(".st-key-head_figure .js-plotly-plot")

    @property
    def canvas(self) -> Locator:
        """The overview of all heads."""
        return self.page.locator(".st-key-overview canvas")

    def weights(self) -> np.ndarray:
        """Return float [Q,K]: the weights of the large heatmap in the browser; NaN where blocked."""
        rows = self.chart.evaluate(f"chart => Array.from(({LARGE})(chart).z, row => Array.from(row, String))")
        return np.array(rows, float)

    def cells(self, reach: int = 0) -> np.ndarray:
        """Return uint8 [Q,K,3]: the colour on the screen at the centre of each cell of the large heatmap.

        With a reach, all colours up to that many pixels around it: [Q,K,2·reach+1,2·reach+1,3].
        """
        self.page.mouse.move(1, 1)  # away from the picture, so that no tooltip covers it
        self.page.locator(".hoverlayer > *").first.wait_for(state="detached")
        centres = self.chart.evaluate(
            """chart => {
                 const {xaxis, yaxis} = chart._fullLayout, z = (LARGE)(chart).z;
                 const box = chart.getBoundingClientRect();
                 return {x: Array.from(z[0], (_, k) => xaxis._offset + xaxis.l2p(k)),
                         y: Array.from(z, (_, q) => yaxis._offset + yaxis.l2p(q)),
                         width: box.width};
               }""".replace("LARGE", LARGE)
        )
        picture = picture_of(self.chart)
        scale = picture.shape[1] / centres["width"]
        rows, columns = ([int(centre * scale) for centre in centres[axis]] for axis in "yx")
        near = range(-reach, reach + 1)
        around = [
            [picture[np.ix_([row + n for n in near], [column + n for n in near])] for column in columns] for row in rows
        ]
        return np.array(around) if reach else np.array(around)[:, :, 0, 0]

    def thumbnails(self) -> np.ndarray:
        """Return uint8 [height,width,4]: the pixels of the overview's canvas."""
        png = self.canvas.evaluate("canvas => canvas.toDataURL().split(',')[1]")
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(png))).convert("RGBA"))

    def grid(self) -> tuple[int, int]:
        """Return the numbers of layers and of heads in the overview's label."""
        label = self.canvas.get_attribute("aria-label") or ""
        layers, heads = re.findall(r"(?:rows|columns) \((\d+)\)", label)
        return int(layers), int(heads)

    def point_of(self, layer: int, head: int) -> dict[str, float]:
        """Return the position of a thumbnail's centre on the canvas, in CSS pixels."""
        margin = int(re.findall(r"LABEL = (\d+)", SOURCE.read_text(encoding="utf-8"))[0])
        box, (layers, heads) = self.canvas.bounding_box(), self.grid()
        return {
            "x": margin + (head + 0.5) * (box["width"] - margin) / heads,
            "y": margin + (layer + 0.5) * (box["height"] - margin) / layers,
        }

    def head(self) -> tuple[int, int]:
        """Return the layer and the head that the select boxes show."""
        return int(self.shown("Layer")), int(self.shown("Head"))

    def next_tokens(self) -> str:
        """Return the text of the table of the most likely next tokens."""
        return self.page.locator("table.next").inner_text()

    def leaks(self) -> str:
        """Return the text of the table of leaks."""
        return self.page.locator("table.numbers:not(.next)").inner_text()

    def contrast(self, selector: str, style: str) -> float:
        """Return WCAG's contrast, 1 to 21, of the first match's colour with the page's background; opacity counts."""
        words, ground = self.page.locator(selector).first.evaluate(
            """(element, style) => {
                 const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
                 const [red, green, blue, alpha = 1] = parts(getComputedStyle(element)[style]);
                 const ground = parts(getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor);
                 let opacity = alpha;
                 for (let at = element; at; at = at.parentElement) opacity *= getComputedStyle(at).opacity;
                 return [[red, green, blue].map((part, n) => part * opacity + ground[n] * (1 - opacity)), ground];
               }""",
            style,
        )
        light, dark = sorted((_luminance(words), _luminance(ground)), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    def overlaps(self, selectors: list[str]) -> list[str]:
        """Return the pairs of these visible elements that overlap."""
        boxes = {}
        for selector in selectors:
            box = self.page.locator(selector).first.bounding_box()
            assert box is not None, f"{selector} is not visible"
            boxes[selector] = (box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"])
        return [
            f"{one} and {other}"
            for one, other in combinations(boxes, 2)
            if all(boxes[one][n] < boxes[other][n + 2] - 1 and boxes[other][n] < boxes[one][n + 2] - 1 for n in (0, 1))
        ]

    def looks(self, *widths: int, height: int = 900, schemes: Sequence[str] = ("light", "dark")) -> Iterator[str]:
        """Yield "width scheme" each time the page has settled at one of these widths in one of the colour schemes.

        Every second width takes the schemes in reverse order, which saves a change of colours. The page is opened only
        once, since opening it takes most of the time.
        """
        self.page.mouse.move(1, 1)  # away from the picture: a hovered element looks different
        for index, width in enumerate(widths):
            self.page.set_viewport_size({"width": width, "height": height})
            self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            for scheme in schemes[:: -1 if index % 2 else 1]:
                self.page.emulate_media(color_scheme=scheme)
                self.page.wait_for_function(SCHEME, arg=scheme, polling=POLLING)
                self._state = self._settled()
                yield f"{width} {scheme}"

    def sticks_out(self) -> bool:
        """Whether the page is wider than the window."""
        return self.page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth > innerWidth")

    def cut_off(self) -> list[str]:
        """Return words partly hidden, broken labels, words outside their chart, and axis titles that touch a label."""
        return self.page.evaluate(
            """() => {
                 const inside = (small, large) => small.left >= large.left - 1 && small.right <= large.right + 1
                   && small.top >= large.top - 1 && small.bottom <= large.bottom + 1;
                 const around = (element) => {
                   const words = document.createRange();
                   words.selectNodeContents(element);
                   return words;
                 };
                 const hidden = (element) => {
                   const words = around(element).getBoundingClientRect();
                   for (let at = element; at; at = at.parentElement) {
                     const box = at.getBoundingClientRect();
                     const sticksOut = words.left < box.left - 1 || words.right > box.right + 1;
                     if (getComputedStyle(at).overflowX !== 'visible' && sticksOut) return true;
                   }
                   return words.right > innerWidth;
                 };
                 const lines = (element) => new Set([...around(element).getClientRects()].map((r) => r.top)).size;
                 const broken = (element) => !element.innerText.includes('\\n') && lines(element) > 1;
                 const all = (selector) => [...document.querySelectorAll(selector)].filter(
                   (element) => element.getBoundingClientRect().width > 0);
                 const labels = 'label p, button p';
                 const outside = all('.js-plotly-plot').flatMap((chart) =>
                   [...chart.querySelectorAll('.xtick text, .ytick text, .xtitle, .ytitle, .annotation-text')].filter(
                     (text) => text.getBoundingClientRect().width > 0  // plotly takes labels out that have no room
                       && !inside(text.getBoundingClientRect(), chart.getBoundingClientRect())));
                 const touches = (one, other) => one.left < other.right + 2 && other.left < one.right + 2
                   && one.top < other.bottom + 2 && other.top < one.bottom + 2;
                 const crowded = all('.js-plotly-plot').flatMap((chart) =>
                   [...chart.querySelectorAll('.xtitle, .ytitle')].filter((title) =>
                     [...chart.querySelectorAll('.xtick text, .ytick text')].some((label) =>
                       touches(title.getBoundingClientRect(), label.getBoundingClientRect()))));
                 const found = [...crowded, ...outside, ...all(labels).filter(broken),
                   ...all(labels + ', h3, th, td:not(.token)').filter(hidden)];
                 return found.map((element) => element.textContent).filter((words) => words);
               }"""
        )

    def _settled(self, before: str | None = None) -> str:
        """Return the state once it exists, differs from `before` and stays the same for a while: plotly still draws
        after the script has ended."""
        return self.page.evaluate(
            STILL.replace("LOOK", self.STATE).replace("POLLING", str(POLLING)).replace("TIMEOUT", str(TIMEOUT)), before
        )


def picture_of(element: Locator) -> np.ndarray:
    """Return uint8 [height,width,3]: a screenshot of an element."""
    return np.asarray(Image.open(io.BytesIO(element.screenshot())).convert("RGB"))


def _luminance(colour: list[float]) -> float:
    parts = [part / 255 for part in colour]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
