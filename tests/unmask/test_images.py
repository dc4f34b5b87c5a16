"""Tests of a run with an image: its tokens, pictures of where a token attends, a report, and what is refused."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import unmask
from model.errors import NotSupported
from tests.model.huggingface import image_families
from tests.model.huggingface.image_families import picture
from tests.model.images.test_reading import ANIMATED, BROKEN, SVG, png_header
from tests.viz.packet import unpacked
from unmask.__main__ import main
from unmask.images import ImageRun
from viz.images import OPACITY, VEIL, composed

TEXT = "the cat sat on a mat"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    names = "llava", "llava_next", "idefics3", "aria", "gemma3", "janus"
    return {name: image_families.save(name, tmp_path_factory.mktemp(name)) for name in names}


@pytest.fixture(scope="module")
def run(folders: dict[str, Path]) -> ImageRun:
    found = unmask.load(str(folders["llava"])).run(TEXT, image=picture(64, 64))
    assert isinstance(found, ImageRun)
    return found


@pytest.mark.parametrize("kind", ["path", "bytes", "array", "pillow", "turned"])
def test_an_image_is_a_path_pillows_or_an_array(kind: str, run: ImageRun, folders: dict, tmp_path: Path) -> None:
    image, path = picture(64, 64), tmp_path / "image.png"
    image.save(path)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = io.BytesIO()
    image.rotate(90).save(turned, "PNG", exif=exif)
    given = {"path": path, "bytes": path.read_bytes(), "array": np.asarray(image), "pillow": image.convert("RGBA"),
             "turned": Image.open(turned)}  # fmt: skip
    found = unmask.load(str(folders["llava"])).run(TEXT, image=given[kind])
    np.testing.assert_array_equal(found.numpy(), run.numpy())


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (SVG, "PNG, JPEG or WebP"), (BROKEN[:-30], "damaged"), (ANIMATED, "animated"),
        (Image.new("I", (9, 14)), "got mode I"), (Image.new("F", (9, 14)), "got mode F"),
        (png_header(60_000, 60_000), "25"), (Image.new("RGB", (1, 10_000)), "1 × 10000"),
        (np.zeros((9, 9, 7), np.uint8), "an array"), (np.full((9, 9), np.nan), "an array"), (7, "an array"),
        (np.zeros((0, 9), np.uint8), "at least 8 pixels"),
        ("no such file.png", "No such file"),
    ],
)  # fmt: skip
def test_what_is_no_image_is_refused_in_a_sentence(image: object, words: str, folders: dict) -> None:
    with pytest.raises((ValueError, OSError), match=words):
        unmask.load(str(folders["llava"])).run(TEXT, image=image)


def test_a_run_says_where_its_image_tokens_are(run: ImageRun) -> None:
    assert [token.position for token in run.image_tokens] == list(range(16))
    assert run.image_tokens[5].box == (16, 16, 32, 32)
    assert run.image_mask == "causal"
    assert run.labels[:2] == ["▦1", "▦2"]
    assert run.text == "".join(run.labels)
    assert unmask.report(run)  # its heads included


def test_an_image_goes_with_one_text_of_an_image_text_model(folders: dict) -> None:
    llava = unmask.load(str(folders["llava"]))
    for texts, more in (([TEXT, TEXT], {}), (TEXT, {"target": "mat"})):
        with pytest.raises(ValueError, match="one text with an image"):
            llava.run(texts, image=picture(), **more)
    with pytest.raises(ValueError, match="expected an image-text model"):
        unmask.load("story").run(TEXT, image=picture())
    run = llava.run(TEXT, image=picture())
    for call in (run.served, run.packed, run.streamed, run.check, lambda: run.tree([-1]), lambda: run.ids):
        with pytest.raises(ValueError, match="of a text alone"):
            call()
    with pytest.raises(NotSupported, match="several calls"):
        run.model.call(run.trace.batch, run.trace.batch.ids, run.masks, None)


def test_a_picture_is_lit_where_a_token_attends(run: ImageRun) -> None:
    drawn = run.on_image(1, 2, -1 + len(run.labels))
    weights = run.trace.weights(1, 2)[-1, :16].numpy()
    np.testing.assert_array_equal(drawn.numpy(), weights)
    assert drawn.to_dataframe().columns.tolist() == ["image token", "value"]
    assert f"gives {weights.sum():.1%} of its attention to the image, most to ▦{weights.argmax() + 1}:" in repr(drawn)
    pixels, image = composed(drawn.view), np.asarray(picture(64, 64)).astype(float)
    times = len(pixels) // 64
    veil = OPACITY * (1 - np.sqrt(weights / weights.max()))
    for token, thick in zip(run.image_tokens, veil, strict=True):
        left, top = (round(edge) for edge in token.box[:2])
        np.testing.assert_allclose(
            pixels[top * times, left * times], image[top, left] * (1 - thick) + VEIL * thick, atol=1
        )


def test_what_a_window_blocks_is_hatched_as_that(folders: dict) -> None:
    llava = unmask.load(str(folders["llava"]))
    drawn = llava.run(TEXT, image=picture(64, 64), masks={"sliding": 8}).on_image(1, 0, 19)
    header, body = unpacked(drawn.canvas().packet)
    hatched = body[-len(header["names"]) * (len(header["caption"]) + 1) :]
    of_query = hatched.reshape(-1, len(header["names"]))[drawn.view.query]
    assert [header["hatches"][one - 1]["name"] if one else "" for one in of_query] == 12 * ["sliding"] + 4 * [""]
    assert (header["words"]["caption"], header["words"]["every"]) == ("Text", "All heads")


def test_a_picture_is_saved_in_every_kind(run: ImageRun, tmp_path: Path) -> None:
    begins = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml", "html": b"<!doctype html>"}
    for kind, begin in begins.items():
        path = run.on_image(0, 1).save(tmp_path / f"image.{kind}")
        assert path.read_bytes().startswith(begin)
    assert run.on_image(0, 1).widget().view == "images"
    for wrong in ((9, 0), (0, 9), (0, 0, 99)):
        with pytest.raises(ValueError, match="expected a"):
            run.on_image(*wrong)


def test_tiles_are_layers_that_do_not_overlap(folders: dict) -> None:
    run = unmask.load(str(folders["idefics3"])).run(TEXT, image=picture(120, 80))
    layers = list(run.on_image(0, 0).view.layers())
    assert [len(one.boxes) for one in layers] == [16, 4]  # four tiles, and the whole image once more
    every = dict(zip(run.on_image(0, 0).view.names, run.on_image(0, 0).view.weights[0].T, strict=True))
    assert [name for one in layers for name in one.names] != list(every)  # row by row, not tile by tile
    for layer in layers:
        np.testing.assert_array_equal(layer.weights[0].T, [every[name] for name in layer.names])
        assert [box[:2] for box in layer.boxes] == sorted((box[:2] for box in layer.boxes), key=lambda at: at[::-1])
        assert sum((box[2] - box[0]) * (box[3] - box[1]) for box in layer.boxes) == pytest.approx(120 * 80)


def test_where_no_mapping_is_known_it_is_said(folders: dict) -> None:
    run = unmask.load(str(folders["aria"])).run(TEXT, image=picture(120, 80))
    assert run.image_tokens == []
    drawn = run.on_image(0, 0)
    assert "For an image of this size it is not known which pixels" in drawn.page()
    np.testing.assert_array_equal(drawn.numpy(), run.trace.weights(0, 0)[-1, list(run.trace.batch.image_positions)])


def test_tokens_that_cover_no_pixels_are_left_out_and_said_to_be(folders: dict, run: ImageRun, tmp_path: Path) -> None:
    """LLaVA-NeXT ends each row of its tiles with a line break, Janus pads an image to a square."""
    padded = unmask.load(str(folders["janus"])).run(TEXT, image=picture(300, 100)).on_image(1, 1)
    assert len(padded.view.boxes) == 8
    assert min(min(right - left, bottom - top) for left, top, right, bottom in padded.view.boxes) > 1
    assert "8 image tokens cover no pixels" in padded.page()
    assert f"gives {padded.numpy().sum():.1%} of its attention to tokens with pixels, most to ▦" in repr(padded)
    assert "to the image" not in unpacked(padded.canvas().packet)[0]["words"]["word"]
    broken = unmask.load(str(folders["llava_next"])).run(TEXT, image=picture(64, 64))
    count = len(broken.trace.batch.image_positions) - len(broken.image_tokens)
    assert count > 1
    words = f"{count} image tokens cover no pixels, such as line breaks or padding, and are left out."
    assert words in broken.on_image(1, 1).page()
    printed = broken.on_image(1, 1).save(tmp_path / "image.svg").read_text()
    assert str(count) in printed
    assert "cover no pixels" in printed
    assert "cover no pixels" not in run.on_image(1, 1).page()


def test_lifting_the_image_mask_changes_the_run(folders: dict) -> None:
    run = unmask.load(str(folders["gemma3"])).run(TEXT, image=picture())
    causal = run.under({"image_block": False})
    assert (run.image_mask, type(causal)) == ("block", ImageRun)
    first = run.image_tokens[0].position
    assert run.view(1, 0).weights[first, first + 1 : first + 4].min() > 0
    assert causal.view(1, 0).weights[first, first + 1 : first + 4].max() == 0
    assert run.title == f"{causal.title}, block around the image"
    assert abs(run.losses - causal.losses)[-3:].max() > 1e-4


def test_a_token_before_the_image_cannot_attend_to_it(folders: dict) -> None:
    run = unmask.load(str(folders["llava"])).run("the cat <image> sat on", image=picture(64, 64))
    first = run.image_tokens[0].position
    assert first == 2
    assert repr(run.on_image(0, 1, 0)).endswith("L0 H1: masks block all attention of “the” to the image.")
    assert "most to ▦" in repr(run.on_image(0, 1))


def test_image_tokens_are_no_duplicates_and_have_no_loss(run: ImageRun) -> None:
    positions = [token.position for token in run.image_tokens]
    weights = run.numpy()
    assert weights[..., positions, :].max() > 0, "they are looked at, and share an id"
    assert len({int(run.trace.batch.ids[0, position]) for position in positions}) == 1
    words = run.trace.batch.ids[0, positions[-1] + 1 :].tolist()
    assert len(set(words)) == len(words), "no word of the text comes twice"
    assert np.isnan(run.measures()["duplicate"]).all()
    assert np.isnan(run.losses[positions]).all()
    assert np.isfinite(run.losses[positions[-1] + 1 :]).all()


def test_no_id_follows_the_token_before_a_part_of_an_image(run: ImageRun) -> None:
    lens = run.logit_lens().numpy()
    followed = np.isfinite(run.losses[1:])
    np.testing.assert_array_equal(np.isfinite(lens[-1, :-1]), followed)
    before = int((~followed).nonzero()[0][-1])
    likeliest = run.next_token(before).candidates[0].label
    assert f"loss of {likeliest} after" in run.ablate([(0, 0)], query=before).line


def test_heads_of_a_run_with_an_image_are_ablated_and_patched(folders: dict) -> None:
    llava = unmask.load(str(folders["llava"]))
    run, other = (llava.run(TEXT, image=picture(64, 64, seed)) for seed in (3, 4))
    every = run.ablation().numpy()
    query = run.last
    before = run.next_token().candidates[0].probability
    target = int(run.trace.logits[0, query].argmax())
    off = run.ablate([(1, 2)], target=target).view.log_probability
    assert every[1, 2] == pytest.approx(np.log(before) - off, abs=1e-5)
    assert run.patch(other, answer="cat").numpy().shape == (2, 4)


def test_a_report_has_the_image_and_no_link(folders: dict, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    picture().save(tmp_path / "image.png")
    args = ["--model", str(folders["llava"]), "--text", TEXT, "--image", str(tmp_path / "image.png"), "--head", "1,2"]
    assert main(["report", *args, "-o", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert len(re.findall(r'<img [^>]*src="data:image/png;base64,', page)) == 2  # the image as it is, and the head's
    assert "of its attention to the image, most to ▦" in page
    assert "mask of the image tokens: causal" in page
    assert "127.0.0.1" not in page
    (tmp_path / "image.png").write_bytes(SVG)
    assert main(["report", *args, "-o", str(tmp_path / "other.html")]) == 2
    assert "expected a PNG, JPEG or WebP image" in capsys.readouterr().err
