"""The row of views of the chosen head, as a reader's eyes and hands have it."""

from typing import Any

from playwright.sync_api import Locator

from tests.browser.explore import STATE, Explore

VIEWS = ("Tokens", "Arcs", "Bars", "Carried", "Why this cell", "Numbers")


class Heads(Explore):
    """Explore; what is settled counts the view of the head too."""

    STATE = STATE.replace(
        "location.search,",
        """location.search, document.querySelector('.st-key-head_tokens, .st-key-head_arcs')
            ?.querySelector('[data-testid=stBidiComponentIsolated]')?.shadowRoot?.querySelector('.view')?.innerText,
        document.querySelectorAll('[data-testid=stDataFrame], .st-key-head_bars, .st-key-why_strips').length,""",
    )

    @property
    def tokens(self) -> Locator:
        """The tokens of the text itself, without those of pins."""
        return self.page.locator(".st-key-head_tokens .tokens > .text .token")

    def lights(self, tokens: Locator | None = None) -> list[float]:
        """How strongly each token is lit, 0 to 1."""
        tokens = self.tokens if tokens is None else tokens
        return tokens.evaluate_all("all => all.map((one) => Number(one.style.getPropertyValue('--light')))")

    def titles(self) -> list[str]:
        """What each token says of its cell when pointed at."""
        return self.tokens.evaluate_all("all => all.map((one) => one.title)")

    def view(self, name: str) -> "Heads":
        """Choose a view."""
        self.after(lambda: self.page.get_by_role("radio", name=name, exact=True).click())
        return self

    def hover_text(self, query: int, key: int) -> list[str]:
        """The lines of the heatmap's tooltip on a cell."""
        place: dict[str, Any] = self.chart.evaluate(
            """(chart, [q, k]) => {
                 const {xaxis, yaxis} = chart._fullLayout, box = chart.getBoundingClientRect();
                 return {x: box.x + xaxis._offset + xaxis.l2p(k), y: box.y + yaxis._offset + yaxis.l2p(q)};
               }""",
            [query, key],
        )
        self.page.mouse.move(place["x"] - 1, place["y"] - 1)
        self.page.mouse.move(place["x"], place["y"])
        label = self.page.locator(".hoverlayer .hovertext").first
        label.wait_for()
        return label.locator("tspan.line").all_text_contents()
