"""The README's pictures, made from the running app: docs/explore.png, and docs/lift.png, ten seconds of lifting a mask.

    python -m docs.pictures

Needs what the tests need, requirements-dev.txt and Chromium, and a font with Chinese characters.
"""

import io
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from tests.browser.running import chromium, running

HERE = Path(__file__).parent
SIZE = {"width": 1280, "height": 720}
MOVING = (960, 540)
STILL, MOVE = 2200, 120  # milliseconds that a view stands, and between two pictures of one that changes
MAX_BYTES = 2_000_000


def frames(page: Page) -> list[tuple[Image.Image, int]]:
    """Pictures and how long each is shown: the causal mask on, off, lifted in one layer alone, and on again."""
    taken = [(shot(page), STILL)]
    causal = page.get_by_text("Causal", exact=True)
    for press in (
        causal.click,
        page.get_by_text("this layer only", exact=True).click,
        lambda: (page.get_by_text("re-run the model", exact=True).click(), causal.click()),
    ):
        press()
        for _ in range(8):
            page.wait_for_timeout(MOVE)
            taken.append((shot(page), MOVE))
        page.wait_for_timeout(2000)
        taken.append((shot(page), STILL))
    return taken


def shot(page: Page) -> Image.Image:
    picture = Image.open(io.BytesIO(page.screenshot()))
    return picture.convert("RGB").resize(MOVING, Image.Resampling.LANCZOS)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running("app.py", Path(folder, "log")) as url, chromium() as browser:
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(url)
        page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=120_000)
        page.wait_for_timeout(4000)
        moving = frames(page)
        page.get_by_text("Causal", exact=True).click()
        page.wait_for_timeout(3000)
        page.screenshot(path=HERE / "explore.png")
    first, *others = (picture for picture, _ in moving)
    first.save(HERE / "lift.png", save_all=True, append_images=others, duration=[time for _, time in moving], loop=0)
    size = (HERE / "lift.png").stat().st_size
    seconds = sum(time for _, time in moving) / 1000
    print(f"docs/lift.png: {size:,} bytes, {seconds:.1f} s, {len(moving)} frames")
    assert size < MAX_BYTES, f"expected less than {MAX_BYTES:,} bytes"


if __name__ == "__main__":
    main()
