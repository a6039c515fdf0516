"""The one reader of images, for training data, predictions, stored shifts and outliers alike.

An image is decoded (its first frame), turned by its EXIF orientation, its border cut off if the
source is known to have one, put on white where it is transparent, converted to grey or colour, and
framed: scaled with its proportions until it just covers the wanted size, and the middle cut out. An
image that has the wanted size is not changed. Colour profiles are not applied.
"""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy
from PIL import Image, UnidentifiedImageError

from falconcal.core.settings import Count, settings
from falconcal.errors import UsageError, UserError
from falconcal.io.folders import irregular

FORMAT_OF = {
    ".png": "PNG",
    ".jpg": "JPEG", ".jpeg": "JPEG", ".jpe": "JPEG", ".jfif": "JPEG",
    ".bmp": "BMP",
    ".gif": "GIF",
    ".tif": "TIFF", ".tiff": "TIFF",
    ".webp": "WEBP",
    ".ppm": "PPM", ".pgm": "PPM", ".pbm": "PPM", ".pnm": "PPM",
}  # fmt: skip
ENDINGS = frozenset(FORMAT_OF)
FORMATS = tuple(dict.fromkeys(FORMAT_OF.values()))  # other decoders, such as that of EPS, never run
MODES = {1: "L", 3: "RGB"}  # by channels
EIGHT_BITS = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"})
MOST_PIXELS = 178_956_970  # half a gigabyte as RGB; Pillow's own limit too
ORIENTATION = 0x0112  # the tag in EXIF
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class ImageReadError(UserError):
    """An image that cannot be read: which, and why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)  # both, so that it can pass between processes
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: cannot be read as an image: {self.reason}."


@settings
class Framing:
    """How an image file becomes an input of ``channels`` x ``height`` x ``width``.

    The image is scaled until it covers that size, its proportions kept, and the middle is cut out.

    Raises:
        UsageError: ``resize`` is below the shorter side, or ``stretch`` is set beside it.

    Example:
        >>> from falconcal.data import Framing
        >>> framing = Framing(height=224, width=224, resize=256)
        >>> framing.shape
        (3, 224, 224)
        >>> framing.scaled((640, 480))  # width and height before the cut
        (341, 256)
    """

    height: Count
    """The height of an input in pixels."""

    width: Count
    """The width of an input in pixels."""

    channels: Literal[1, 3] = 3
    """3 for colour, 1 for grey."""

    resize: Count | None = None
    """The length that the shorter side is scaled to before the cut; None cuts off no more than the
    proportions ask for. For inputs that are not square, it is the length that their own shorter
    side is enlarged to."""

    stretch: bool = False
    """Whether both sides are scaled to size instead, which changes the proportions. Models that
    were saved without a framing read images like this."""

    def __post_init__(self) -> None:
        if self.resize is not None and (self.stretch or self.resize < min(self.shape[1:])):
            raise UsageError(
                f"expected resize to be at least the shorter side of {self.height} x {self.width}, "
                f"and no stretch beside it, got {self.resize}."
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an input."""
        return self.channels, self.height, self.width

    def scaled(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the width and height that an image is scaled to before the middle is cut out."""
        shorter = min(self.height, self.width)
        wanted = self.resize or shorter
        box = [round(side * wanted / shorter) for side in (self.width, self.height)]
        scale = max(least / side for least, side in zip(box, size, strict=True))
        width, height = (
            max(least, round(side * scale)) for least, side in zip(box, size, strict=True)
        )
        return width, height


def is_image_shape(shape: Sequence[int]) -> bool:
    """Return whether examples of a shape are grey or colour images, (channels, H, W)."""
    return len(shape) == 3 and shape[0] in MODES


def framing_of_shape(shape: Sequence[int], stretch: bool = False) -> Framing:
    """Return the framing of images for data that does not say how its own were framed."""
    if not is_image_shape(shape):
        raise UserError(
            f"expected data of grey or colour images, got examples of shape {tuple(shape)}."
        )
    channels: Literal[1, 3] = 1 if shape[0] == 1 else 3
    return Framing(height=shape[1], width=shape[2], channels=channels, stretch=stretch)


def read_image(path: Path, framing: Framing, border: int = 0) -> numpy.ndarray:
    """Return an image file as bytes, (height, width, channels).

    ``border`` pixels are first cut off on every side. Raises ``ImageReadError``.
    """
    reason = irregular(path)
    if reason is not None:
        raise ImageReadError(path, reason)
    return _read_from(path, path, framing, border)


def read_packed_image(data: bytes, path: Path, framing: Framing) -> numpy.ndarray:
    """Return an image out of an archive as ``read_image`` does; ``path`` names it in errors."""
    return _read_from(io.BytesIO(data), path, framing, 0)


def _read_from(
    source: Path | io.BytesIO, path: Path, framing: Framing, border: int
) -> numpy.ndarray:
    mode, (channels, *sides) = MODES[framing.channels], framing.shape
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # on damaged EXIF data, for example, which is not needed
            plain = _plain(_without(border, _decoded(source)), mode)
        return numpy.array(_framed(plain, framing)).reshape(*sides, channels)
    except Exception as error:  # a decoder may raise anything on damaged data
        raise ImageReadError(path, _reason(error)) from None


def _decoded(source: Path | io.BytesIO) -> Image.Image:
    """Return an image, turned as its EXIF orientation says."""
    with Image.open(source, formats=FORMATS) as image:
        _check_pixels(image.size, "it has")
        _check_mode(image.mode)
        image.load()
        turn = TURNS.get(_orientation(image))
        return image.copy() if turn is None else image.transpose(turn)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged EXIF data, while the image itself may be intact
        return 1


def _check_pixels(size: tuple[int, int], what: str) -> None:
    if size[0] * size[1] > MOST_PIXELS:
        raise UserError(
            f"{what} {size[0]:,} x {size[1]:,} pixels, more than {MOST_PIXELS:,}: make it smaller"
        )


def _check_mode(mode: str) -> None:
    if mode not in EIGHT_BITS:
        raise UserError(
            f"expected 8 bits per channel, its mode is {mode}, for which black and white are not "
            "defined: convert it to 8 bits"
        )


def _without(border: int, image: Image.Image) -> Image.Image:
    if not border:
        return image
    if min(image.size) <= 2 * border:
        raise UserError(f"expected an image inside a border of {border} pixels, got {image.size}")
    return image.crop((border, border, image.width - border, image.height - border))


def _plain(image: Image.Image, mode: str) -> Image.Image:
    """Return an image in grey or colour, on white where it is transparent."""
    if not image.has_transparency_data:
        return image.convert(mode)
    whole = image.convert("RGBA")
    white = Image.new("RGBA", whole.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, whole).convert(mode)


def _framed(image: Image.Image, framing: Framing) -> Image.Image:
    target = framing.width, framing.height
    if image.size == target:
        return image
    if framing.stretch:
        return image.resize(target, Image.Resampling.BILINEAR)
    size = framing.scaled(image.size)
    _check_pixels(size, "it is so long and narrow that, scaled, it would have")
    left, top = (size[0] - target[0]) // 2, (size[1] - target[1]) // 2
    larger = image.resize(size, Image.Resampling.BILINEAR)
    return larger.crop((left, top, left + target[0], top + target[1]))


def _reason(error: Exception) -> str:
    words = str(error).strip().partition("\n")[0].rstrip(".")
    if isinstance(error, UserError):
        return words
    if isinstance(error, Image.DecompressionBombError):
        return f"it has more than {MOST_PIXELS:,} pixels: make it smaller"
    if isinstance(error, UnidentifiedImageError):
        return f"its content is not one of {', '.join(FORMATS)}, or is damaged"
    if isinstance(error, PermissionError):
        return f"it cannot be opened ({error.strerror})"
    return f"it is damaged or cut off ({words or type(error).__name__})"
