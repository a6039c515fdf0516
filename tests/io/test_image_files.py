"""One way to read a picture: the same bits wherever it is read, and what is no picture refused."""

import io
import json
import os
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image, ImageDraw
from torch import Tensor

import falconcal
from falconcal.cli import main
from falconcal.core.settings import as_dict
from falconcal.data import Bounds, Dataset, Framing, load_dataset, load_test
from falconcal.data.sets.objectnet import imagenet_numbers
from falconcal.errors import UsageError, UserError
from falconcal.inference.inputs import open_inputs
from falconcal.inference.inputs.image_inputs import framing_in
from falconcal.inference.model_metadata import ModelMetadata
from falconcal.io.folders import files_below
from falconcal.io.image_files import ENDINGS, MOST_PIXELS, ImageReadError, read_image
from falconcal.shifts import find_outliers, find_stored, outliers_from
from falconcal.studies import find_study
from falconcal.studies.runner import do_runs
from tests.helpers.official_layouts import write_images
from tests.helpers.rewritten_files import rewritten
from tests.helpers.small_data import CLASSES, small_network
from tests.helpers.small_studies import Silent
from tests.helpers.stripes import TRUST, load_own

WIDE = (64, 32)  # width and height
WHITE, RED, GREY = (255, 255, 255), (200, 30, 10), (90, 90, 90)


def disc(size: tuple[int, int] = WIDE, diameter: int = 20) -> Image.Image:
    """Return a white disc in the middle of black."""
    image = Image.new("RGB", size)
    left, top = (size[0] - diameter) / 2, (size[1] - diameter) / 2
    box = (left, top, left + diameter - 1, top + diameter - 1)  # its last pixels are drawn too
    ImageDraw.Draw(image).ellipse(box, fill=WHITE)
    return image


def extent(pixels: Tensor | numpy.ndarray) -> tuple[int, int]:
    """Return height and width of what is bright, (H, W) of 0 to 1."""
    bright = numpy.asarray(pixels) > 0.5
    return int(bright.any(1).sum()), int(bright.any(0).sum())


# framing


def test_framing_is_resize_then_the_middle(tmp_path: Path) -> None:
    pixels = numpy.zeros((40, 80, 3), dtype=numpy.uint8)
    pixels[:, 30:50] = 255  # a stripe in the middle, 20 of 80 wide
    Image.fromarray(pixels).save(tmp_path / "stripe.png")
    seen = read_image(tmp_path / "stripe.png", Framing(height=16, width=16, resize=20))
    assert seen.shape == (16, 16, 3)
    white = seen[8, :, 0] > 127  # 20 x 40 after the resize, columns 12 to 28 cropped
    assert white.tolist() == [False] * 3 + [True] * 10 + [False] * 3
    red = numpy.full((10, 10, 3), 50, dtype=numpy.uint8)
    red[[0, 1, -2, -1]] = red[:, [0, 1, -2, -1]] = (255, 0, 0)
    Image.fromarray(red).save(tmp_path / "red.png")
    assert (read_image(tmp_path / "red.png", Framing(height=6, width=6), border=2) == 50).all()
    with pytest.raises(ImageReadError, match="inside a border of 5 pixels"):
        read_image(tmp_path / "red.png", Framing(height=6, width=6), border=5)


@pytest.mark.parametrize(
    ("framing", "scaled"),
    [
        (Framing(height=224, width=224, resize=256), (512, 256)),
        (Framing(height=224, width=224), (448, 224)),
        (Framing(height=10, width=40), (40, 20)),  # the width decides
        (Framing(height=10, width=40, resize=15), (60, 30)),
        (Framing(height=10, width=10), (20, 10)),
    ],
)
def test_a_picture_is_scaled_until_it_covers_the_size(
    tmp_path: Path, framing: Framing, scaled: tuple[int, int]
) -> None:
    assert framing.scaled((800, 400)) == scaled
    disc((80, 40)).save(tmp_path / "disc.png")
    assert read_image(tmp_path / "disc.png", framing).shape == (framing.height, framing.width, 3)


def test_a_picture_of_the_size_stays_as_it_is(tmp_path: Path) -> None:
    pixels = numpy.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=numpy.uint8)
    Image.fromarray(pixels).save(tmp_path / "own.png")
    framing = Framing(height=24, width=24, resize=28)
    assert numpy.array_equal(read_image(tmp_path / "own.png", framing), pixels)


@pytest.mark.parametrize("wrong", [{"resize": 20}, {"resize": 40, "stretch": True}])
def test_a_framing_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="at least the shorter side of 24 x 30"):
        Framing(height=24, width=30, **wrong)


# the same bits every way


def turned_jpeg(path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = Image.linear_gradient("L").resize(WIDE).convert("RGB")
    picture.save(path, format="JPEG", exif=exif, quality=90)


def see_through(path: Path) -> None:
    disc().convert("RGBA").save(path, format="PNG")
    with Image.open(path) as whole:
        whole.putalpha(Image.linear_gradient("L").resize(WIDE))
        whole.save(path, format="PNG")


def save_as(mode: str, kind: str) -> Callable[[Path], None]:
    def save(path: Path) -> None:
        Image.merge("RGB", [Image.linear_gradient("L")] * 3).resize(WIDE).convert(mode).save(
            path, format=kind
        )

    return save


PICTURES: dict[str, Callable[[Path], None]] = {
    "disc.png": lambda path: disc().save(path),
    "tall.png": lambda path: disc((32, 64)).save(path),
    "at_size.png": lambda path: disc((24, 24)).save(path),
    "turned.jpg": turned_jpeg,
    "see_through.png": see_through,
    "palette.gif": save_as("P", "GIF"),
    "two_tone.bmp": save_as("1", "BMP"),
    "grey_alpha.webp": save_as("LA", "WEBP"),
    "ink.tiff": save_as("CMYK", "TIFF"),
}


@pytest.mark.end_to_end
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("resize", [None, 28])
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_the_same_bits_every_way(
    tmp_path: Path, name: str, resize: int | None, channels: int
) -> None:
    for part in ("train", "val", "test"):
        write_images(tmp_path / "own" / part, ("a", "b"), 1)
    PICTURES[name](tmp_path / "own" / "test" / "a" / name)
    given: dict[str, Any] = {
        "path": str(tmp_path / "own"), "size": 24, "resize": resize, "channels": channels,
    }  # fmt: skip
    held = load_dataset("image_folder", **given)
    found = ways(tmp_path, name, held, given)
    own = tuple(file.name for file in files_below(tmp_path / "own" / "test" / "a", ENDINGS))
    expected = held.test.head(2).inputs[own.index(name)]
    assert expected.std() > 0  # there is something to see
    for way, seen in found.items():
        assert torch.equal(seen, expected), way


def ways(tmp_path: Path, name: str, held: Dataset, given: dict[str, Any]) -> dict[str, Tensor]:
    """Return what is seen of a picture by all who read pictures, (channels, H, W)."""
    source = tmp_path / "own" / "test" / "a" / name
    shelf = tmp_path / "ImageNet-C" / "fog" / "1"
    for kind in ("a", "b"):
        (shelf / kind).mkdir(parents=True)
        (shelf / kind / name).write_bytes(source.read_bytes())
    streamed = load_dataset("image_folder", **given, stream=True)
    only = outliers_from("others", load_test("image_folder", **{**given, "size": 20}, stream=True))
    which = [file.name for file in streamed.test.files].index(name)  # type: ignore[attr-defined]
    stored = find_stored("imagenet_c:fog", str(tmp_path))
    assert held.train.framing is not None
    metadata = ModelMetadata(
        architecture="lenet", classes=("a", "b"), shape=held.train.shape,
        bounds=held.bounds, framing=held.train.framing,
    )  # fmt: skip
    return {
        "streamed": streamed.test.head(2).inputs[which],
        "stored": next(stored.batches(1, held.test))[0][0],
        "stored, for streamed data": next(stored.batches(1, streamed.test))[0][0],
        "outliers": next(only.batches(held.test))[0][which],
        "predict": next(open_inputs(shelf / "a", metadata).batches).inputs[0],
    }


def test_objectnet_has_the_same_bits_as_a_shift_as_outliers_and_as_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "objectnet-1.0"
    write_objectnet(root, {1: [0, 1], 2: [2]}, 4)
    monkeypatch.setenv("FALCONCAL_DATA", str(tmp_path))
    data = load_test("objectnet", images="known", workers=0)
    inputs, labels = next(find_stored("objectnet").batches(1, data))
    assert torch.equal(inputs, data.first(len(data)).inputs)
    assert torch.equal(labels, data.labels)
    single = load_test("objectnet", images="single", workers=0)
    _, labels = next(find_stored("objectnet:single").batches(1, data))
    assert labels.tolist() == single.labels.tolist() == [2]
    others = load_test("objectnet", images="unknown", workers=0)
    seen, none = next(find_outliers("objectnet_outliers").batches(data))
    assert torch.equal(seen, others.first(len(others)).inputs)
    assert none.tolist() == others.labels.tolist() == [-1, -1]


def test_a_disc_is_as_large_in_predict_as_in_training(tmp_path: Path) -> None:
    """It was 150 high and 75 wide in predict, and 171 both ways in training."""
    for part, count in (("train", 2), ("val", 1)):
        for kind in ("n1", "n2"):
            (tmp_path / part / kind).mkdir(parents=True)
            for number in range(count):
                disc((448, 224), 150).save(tmp_path / part / kind / f"{number}.png")
    imagenet = load_dataset("imagenet", path=str(tmp_path), workers=0, held_out=1)
    trained = imagenet.test.first(1).inputs[0]
    file = tmp_path / "model.safetensors"
    model = falconcal.make_model("resnet_small", imagenet)
    falconcal.save(
        model, file, "resnet_small", classes=imagenet.classes, shape=imagenet.train.shape,
        bounds=imagenet.bounds, preparation=imagenet.preparation, framing=imagenet.train.framing,
    )  # fmt: skip
    metadata = load_own(file).metadata
    assert metadata.framing == Framing(height=224, width=224, resize=256)
    seen = next(open_inputs(tmp_path / "val", metadata).batches).inputs[0]
    assert torch.equal(seen, trained)
    assert extent(seen[0]) == (172, 172)  # 150 pixels at 256 / 224: 171.4


@pytest.mark.end_to_end
@pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")
def test_a_run_of_a_study_frames_as_it_was_trained(tmp_path: Path) -> None:
    for part, count in (("train", 4), ("val", 2), ("test", 2)):
        write_images(tmp_path / "own" / part, ("a", "b"), count)
    disc().save(tmp_path / "own" / "test" / "a" / "disc.png")
    (tmp_path / "own.toml").write_text(
        f"""
name = "own"
model = "lenet"
shifts = ["contrast"]
[dataset]
name = "image_folder"
path = "{tmp_path / "own"}"
size = 28
resize = 30
[methods.dropout]
epochs = 1
"""
    )
    study = find_study(str(tmp_path / "own.toml"))
    do_runs(study, tmp_path / "out", Silent())
    saved = load_own(tmp_path / "out/runs/default/dropout/seed-0/weights.safetensors")
    assert saved.metadata.framing == Framing(height=28, width=28, resize=30)
    data = load_dataset("image_folder", path=str(tmp_path / "own"), size=28, resize=30)
    seen = next(open_inputs(tmp_path / "own" / "test", saved.metadata).batches).inputs
    assert torch.equal(seen, data.test.first(len(data.test)).inputs)


def test_pictures_are_decoded_again_when_the_framing_is_another(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        write_images(tmp_path / part, ("a", "b"), 1)
    disc().save(tmp_path / "test" / "a" / "00.png")
    near, far = (
        load_dataset("image_folder", path=str(tmp_path), size=24, resize=resize).test.first(1)
        for resize in (48, None)
    )
    assert extent(near.inputs[0, 0])[0] > extent(far.inputs[0, 0])[0]


def test_outliers_are_framed_as_the_data_or_refused(tmp_path: Path) -> None:
    write_images(tmp_path, ("a", "b"), 10)
    given = {"path": str(tmp_path), "size": 8}
    data, other = (load_dataset("image_folder", **given, resize=size) for size in (None, 10))
    with pytest.raises(UserError, match=r"framed as the data is, .*resize=None.*stream=True"):
        next(outliers_from("other", other.test).batches(data.test))
    streamed = load_test("image_folder", **given, resize=10, stream=True)
    seen, _ = next(outliers_from("other", streamed).batches(data.test))
    assert torch.equal(seen, data.test.first(len(data.test)).inputs)


# model files


def save_model(file: Path, **metadata: Any) -> ModelMetadata:
    falconcal.save(
        small_network(), file, "tests.helpers.stripes:make_small", classes=CLASSES,
        shape=[1, 28, 28], bounds=Bounds(0.0, 1.0), **metadata,
    )  # fmt: skip
    return load_own(file).metadata


def test_a_model_file_holds_the_framing_and_the_middle_is_cut_unless_it_says_more(
    tmp_path: Path,
) -> None:
    framing = Framing(height=28, width=28, channels=1, resize=32)
    assert save_model(tmp_path / "model", framing=framing).framing == framing
    plain = Framing(height=28, width=28, channels=1)
    assert save_model(tmp_path / "model").framing == plain
    with pytest.raises(UserError, match=r"shape of an example, \(1, 28, 28\), got .*\(3, 28, 28\)"):
        save_model(tmp_path / "model", framing=Framing(height=28, width=28))


def test_a_file_of_format_1_stretches_pictures_as_it_did_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.safetensors"
    metadata = as_dict(save_model(file))
    del metadata["framing"]
    rewritten(file, format=1, facts=metadata)
    old = load_own(file).metadata
    assert old.framing is None
    (tmp_path / "photos").mkdir()
    disc((64, 32), 20).save(tmp_path / "photos" / "disc.png")
    seen = next(open_inputs(tmp_path / "photos", old).batches).inputs[0, 0]
    with Image.open(tmp_path / "photos" / "disc.png") as image:  # as it was written then
        stretched = image.convert("L").resize((28, 28), Image.Resampling.BILINEAR)
    assert torch.equal(seen, torch.from_numpy(numpy.array(stretched)).float() / 255)
    assert framing_in(old) == Framing(height=28, width=28, channels=1, stretch=True)
    monkeypatch.chdir(tmp_path)
    arguments = ["falconcal", "predict", str(file), "photos", "--out", "answers.csv", *TRUST]
    monkeypatch.setattr("sys.argv", arguments)
    for made, said in ((lambda: None, True), (lambda: save_model(file), False)):
        made()
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code in (0, None)
        assert ("they are stretched" in " ".join(capsys.readouterr().err.split())) is said


# what a picture is


UNDONE = {  # what a camera that was held so did to the upright picture
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.parametrize("orientation", UNDONE)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_the_orientation_in_exif_is_honoured(tmp_path: Path, kind: str, orientation: int) -> None:
    upright = Image.new("RGB", (24, 16))
    upright.paste(WHITE, (0, 0, 8, 8))  # above, to the left
    undone = UNDONE[orientation]
    lying = upright if undone is None else upright.transpose(undone)
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = tmp_path / f"a.{kind.lower()}"
    options: dict[str, Any] = {"quality": 95} if kind in ("JPEG", "WEBP") else {}
    lying.save(file, exif=exif, **options)
    seen = read_image(file, Framing(height=16, width=24))
    assert numpy.abs(seen.astype(int) - numpy.asarray(upright)).max() < 60


def test_damaged_exif_data_says_nothing_of_a_picture_that_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.jpg"
    disc((16, 16), 8).save(file, exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff\x00\x09", quality=95)
    assert read_image(file, Framing(height=16, width=16)).max() > 200


def plain(mode: str, colour: Any, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, (8, 8), colour).save(buffer, format=kind, **options)
    return buffer.getvalue()


def palette(**options: Any) -> bytes:
    image, buffer = Image.new("P", (8, 8), 1), io.BytesIO()
    image.putpalette([0, 0, 0, *RED])
    image.save(buffer, format="PNG", **options)
    return buffer.getvalue()


def png_of_16_bits(colour: tuple[int, ...]) -> bytes:
    """Return a PNG of 8 x 8 pixels of 16 bits, grey or colour, which Pillow cannot write."""
    kind = {1: 0, 3: 2}[len(colour)]
    rows = (b"\x00" + struct.pack(f">{len(colour)}H", *colour) * 8) * 8
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", 8, 8, 16, kind, 0, 0, 0),
        b"IDAT": zlib.compress(rows),
        b"IEND": b"",
    }
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    )
    return b"\x89PNG\r\n\x1a\n" + body


def half_of(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(buffer, format=kind)
    return buffer.getvalue()[: buffer.tell() // 2]


READ = {
    "colour": (plain("RGB", RED, "PNG"), RED),
    "grey": (plain("L", 90, "PNG"), GREY),
    "two tones": (plain("1", 1, "PNG"), WHITE),
    "palette": (palette(), RED),
    "palette, seen through": (palette(transparency=1), WHITE),
    "grey and alpha, whole": (plain("LA", (90, 255), "PNG"), GREY),
    "grey and alpha, seen through": (plain("LA", (90, 0), "PNG"), WHITE),
    "colour and alpha, whole": (plain("RGBA", (*RED, 255), "PNG"), RED),
    "colour and alpha, seen through": (plain("RGBA", (*RED, 0), "PNG"), WHITE),
    "colour and alpha, half": (plain("RGBA", (*RED, 128), "PNG"), (227, 142, 132)),
    "one colour seen through": (plain("RGB", RED, "PNG", transparency=RED), WHITE),
    "ink, TIFF": (plain("CMYK", (0, 255, 255, 0), "TIFF"), (255, 0, 0)),
    "ink, JPEG": (plain("CMYK", (255, 0, 0, 0), "JPEG", quality=95), (0, 255, 255)),
    "black ink": (plain("CMYK", (0, 0, 0, 255), "TIFF"), (0, 0, 0)),
    "16 bits of colour": (png_of_16_bits((200 * 257, 30 * 257, 10 * 257)), RED),
    "several pictures in one": (plain("RGB", RED, "MPO"), RED),
}


@pytest.mark.parametrize("name", READ)
def test_every_kind_of_picture_has_its_colours(tmp_path: Path, name: str) -> None:
    data, colour = READ[name]
    (tmp_path / "a.png").write_bytes(data)  # what it is called says nothing
    seen = read_image(tmp_path / "a.png", Framing(height=4, width=4)).astype(int)
    assert numpy.abs(seen - numpy.array(colour)).max() <= 2
    grey = read_image(tmp_path / "a.png", Framing(height=4, width=4, channels=1)).astype(int)
    luminance = numpy.array(colour) @ numpy.array([0.299, 0.587, 0.114])  # ITU-R 601
    assert numpy.abs(grey - luminance).max() <= 2


REFUSED = {
    "16 bits of grey": (png_of_16_bits((40_000,)), r"8 bits per channel, its mode is I;16"),
    "32 bits of grey": (plain("I", 70_000, "TIFF"), "8 bits per channel, its mode is I,"),
    "floats": (plain("F", 0.5, "TIFF"), "8 bits per channel, its mode is F,"),
    "LAB": (plain("LAB", (50, 0, 0), "TIFF"), "8 bits per channel, its mode is LAB,"),
    "cut off": (half_of("PNG"), "damaged or cut off"),
    "cut off, JPEG": (half_of("JPEG"), "damaged or cut off"),
    "cut off, TIFF": (half_of("TIFF"), "damaged"),
    "empty": (b"", "its content is not one of PNG, JPEG"),
    "text": (b"no picture", "its content is not one of PNG, JPEG"),
    # whose decoder would start another program
    "PostScript": (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "its content is not one of",
    ),
    "PDF": (plain("RGB", RED, "PDF"), "its content is not one of PNG, JPEG"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_right_is_refused_by_name(tmp_path: Path, name: str) -> None:
    data, words = REFUSED[name]
    (tmp_path / "odd one.png").write_bytes(data)
    with pytest.raises(ImageReadError, match=rf"odd one\.png: cannot be read.*{words}") as raised:
        read_image(tmp_path / "odd one.png", Framing(height=4, width=4))
    assert "\n" not in str(raised.value)


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    whole = bytearray(plain("1", 0, "PNG"))
    for side, words in ((20_000, "pixels"), (2**31 - 1, "pixels")):
        whole[16:24] = struct.pack(">II", side, side)
        whole[29:33] = struct.pack(">I", zlib.crc32(whole[12:29]))
        (tmp_path / "bomb.png").write_bytes(whole)
        with pytest.raises(ImageReadError, match=f"more than {MOST_PIXELS:,} {words}: make it"):
            read_image(tmp_path / "bomb.png", Framing(height=4, width=4))
    Image.new("1", (1, 60_000)).save(tmp_path / "line.png")  # 6 gigabytes when its side is 200
    with pytest.raises(ImageReadError, match=r"long and narrow .* 200 x 12,000,000 pixels"):
        read_image(tmp_path / "line.png", Framing(height=200, width=200))


# what a file is


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's name must be short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (make_pipe, "a regular file, it is a named pipe"),
    "socket": (make_socket, "a regular file, it is a socket"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a regular file, it is a device"),
    "link to nothing": (lambda path: path.symlink_to("nowhere"), r"cannot be opened \(No such"),
    "link to itself": (lambda path: path.symlink_to(path), r"cannot be opened \(Too many"),
}


def read_whole_folder(folder: Path, stream: bool) -> None:
    data = load_dataset("image_folder", path=str(folder), size=8, stream=stream)
    for part in (data.train, data.validation, data.test):
        list(part.batches(5))


@pytest.mark.parametrize("name", ODD)
def test_only_regular_files_are_read(tmp_path: Path, name: str) -> None:
    make, words = ODD[name]
    write_images(tmp_path, ("a", "b"), 10)
    make(tmp_path / "a" / "odd.png")
    for stream in (False, True):
        with pytest.raises(ImageReadError, match=rf"odd\.png: cannot be read.*{words}"):
            read_whole_folder(tmp_path, stream)
    metadata = save_model(tmp_path / "model.safetensors")
    (batch,) = open_inputs(tmp_path, metadata).batches
    assert len(batch.inputs) == 20
    assert list(batch.damaged) == ["a/odd.png"]


def test_a_link_to_a_picture_is_a_picture(tmp_path: Path) -> None:
    disc((8, 8), 4).save(tmp_path / "own.png")
    (tmp_path / "link.png").symlink_to("own.png")
    own, link = (
        read_image(tmp_path / name, Framing(height=8, width=8)) for name in ("own.png", "link.png")
    )
    assert numpy.array_equal(own, link)


def test_what_is_no_picture_by_its_ending_or_hidden_is_passed_over(tmp_path: Path) -> None:
    write_images(tmp_path, ("a", "b"), 10)
    for name in ("notes.pdf", "weights.h5", "film.mpg", "page.eps", "._00.png", ".hidden/00.png"):
        (tmp_path / "a" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "a" / name).write_bytes(b"no picture")
    (tmp_path / "a" / "folder.png").mkdir()
    data = load_dataset("image_folder", path=str(tmp_path), size=8)
    assert sum(len(part) for part in (data.train, data.validation, data.test)) == 20
    assert open_inputs(tmp_path, save_model(tmp_path / "model.safetensors")).total == 20


@pytest.mark.end_to_end
@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_picture_is_named_without_a_traceback(tmp_path: Path, workers: int) -> None:
    write_images(tmp_path, ("a", "b"), 10)
    for number in range(10):
        (tmp_path / "a" / f"{number:02}.png").write_bytes(b"no picture")
    data = load_dataset("image_folder", path=str(tmp_path), size=8, stream=True, workers=workers)
    with pytest.raises(ImageReadError, match=r"\.png: cannot be read as an image") as raised:
        list(data.train.batches(5))
    assert "Traceback" not in str(raised.value)


# ObjectNet


def write_objectnet(root: Path, shared: dict[int, list[int]], classes: int) -> None:
    """Write mappings of ObjectNet's numbers to ImageNet's, and a picture of each class."""
    highest = 1 + max(number for some in shared.values() for number in some)
    contents = {
        "folder_to_objectnet_label.json": {f"kind_{one}": f"Kind {one}" for one in range(classes)},
        "objectnet_to_imagenet_1k.json": {
            f"Kind {one}": "; ".join(f"class {number}, or so" for number in some)
            for one, some in shared.items()
        },
        "pytorch_to_imagenet_2012_id.json": {str(one): highest - 1 - one for one in range(highest)},
    }
    (root / "mappings").mkdir(parents=True)
    for name, content in contents.items():
        (root / "mappings" / name).write_text(json.dumps(content))
    lines = [f"class {number}, or so" for number in reversed(range(highest))]
    (root / "mappings" / "imagenet_to_label_2012_v2").write_text("\n".join(lines) + "\n")
    for one in range(classes):
        (root / "images" / f"kind_{one}").mkdir(parents=True)
        bordered = Image.new("RGB", (40, 30), (255, 0, 0))
        bordered.paste(disc((36, 26), 4 + 4 * one), (2, 2))
        if classes < 10:
            bordered.save(root / "images" / f"kind_{one}" / "0.png")


def test_objectnets_known_classes_are_no_outliers() -> None:
    with pytest.raises(UsageError, match="ImageNet knows them: write objectnet_outliers"):
        find_outliers("objectnet")
    with pytest.raises(UsageError, match="goes by the names of its tables"):
        find_outliers("falconcal.data.sets.objectnet:ObjectNet")


def test_objectnets_own_mapping_has_113_classes_of_which_104_are_one_of_imagenets(
    tmp_path: Path, real_data: Path
) -> None:
    sample = real_data / "objectnet-sample"
    if not sample.is_dir():
        pytest.skip("the sample of ObjectNet is not here")
    shared: dict[int, list[int]] = {}
    mapping = json.loads((sample / "imagenet_pytorch_id_to_objectnet_id.json").read_text())
    for number, kind in mapping.items():
        shared.setdefault(kind, []).append(int(number))
    root = tmp_path / "objectnet"
    write_objectnet(root, shared, 313)
    answers = json.loads((sample / "answers.json").read_text())
    for name, kind in answers.items():
        (root / "images" / f"kind_{kind}" / name).symlink_to(sample / name)
    known, single, unknown = (
        load_test("objectnet", path=str(root), images=images, workers=0)
        for images in ("known", "single", "unknown")
    )
    expected = sorted(shared[kind][0] for kind in answers.values() if kind in shared)
    assert sorted(known.labels.tolist()) == expected
    assert len(known) + len(unknown) == 10
    assert len(single) == sum(len(shared.get(kind, ())) == 1 for kind in answers.values())
    numbers = imagenet_numbers(root)
    assert (len(numbers), sum(len(some) == 1 for some in numbers.values())) == (113, 104)
    for part in (known, unknown):  # no border of red is left
        edge = part.first(10).inputs[:, :, :, [0, -1]]
        assert not ((edge[:, 0] > 0.9) & (edge[:, 1:] < 0.1).all(1)).any()
