"""Tests of models of other families on one server, which imports transformers, for seconds, only once for all."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from tests.browser.axe import serious
from tests.browser.explore import Explore
from tests.browser.test_every_page import KINDS, faults
from tests.browser.test_images import Images
from tests.model.huggingface import families, image_families

Visit = Callable[..., Explore]


class AnotherModel(Images):
    """The page Images with the sidebar's file input, and no picture until there is an image."""

    STATE = """() => {
      const app = document.querySelector('[data-testid=stApp]');
      const box = document.querySelector('input[type=file]');
      return app?.dataset.testScriptState === 'notRunning' && box ? location.search : null;
    }"""


def test_the_sidebar_of_a_training_and_of_a_chat_model(visit: Visit, tmp_path: Path) -> None:
    for step in (5, 20):
        folder = tmp_path / f"checkpoint-{step}"
        families.random_network("llama", families.ALL["llama"]).save_pretrained(folder)
        families.save_tokenizer(folder, "$A")
        (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    page = visit(f"model={quote(str(tmp_path))}&over_steps=true&text=the+cat+sat", kind=KINDS[""])
    sidebar = page.page.locator("[data-testid=stSidebar]")
    for shown in ("Training step", "Chat messages"):
        assert sidebar.get_by_text(shown, exact=True).is_visible()
    sidebar.get_by_text("Chat messages", exact=True).scroll_into_view_if_needed()
    assert not faults(page, page.looks(1280), {"1280 light": {}, "1280 dark": {"others": False}})


def test_another_model_reads_an_upload_and_axe_finds_nothing(
    visit: Callable[..., AnotherModel], tmp_path: Path
) -> None:
    folder = image_families.save("idefics3", tmp_path)
    image_families.picture(120, 80).save(tmp_path / "image.png")
    page = visit(f"source=upload&model={quote(str(folder))}&shown=relative", kind=AnotherModel)
    page.page.locator("input[type=file]").set_input_files(tmp_path / "image.png")
    page.page.locator(".images > canvas").nth(1).wait_for()  # the image is given as tiles, and once more as a whole
    page.page.locator(".images .caption button").first.hover()
    assert "over the neutral prompt's" in page.why()
    page.page.locator(".images > canvas").first.hover(position={"x": 9, "y": 9})
    assert page.why().startswith("▦")
    assert [serious(page, others=look == "1280 light") for look in page.looks(1280)] == [[], []]
