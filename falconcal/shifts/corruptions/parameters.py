"""The published parameters of the 19 corruptions, five severities each, in one table.

``FOR_LARGE_IMAGES`` holds those of ImageNet-C, made for 224 x 224 pixels, ``FOR_SMALL_IMAGES``
those of CIFAR-10-C, made for 32 x 32 (Hendrycks & Dietterich, "Benchmarking neural network
robustness to common corruptions and perturbations", ICLR 2019, and the code published with it). The
parameters are those of the size that is nearer to the image's shorter side, as a ratio: those of
CIFAR-10-C for digits of 28 x 28.
"""

import math

SeverityParameters = tuple[float, ...]
SeverityTable = tuple[
    SeverityParameters,
    SeverityParameters,
    SeverityParameters,
    SeverityParameters,
    SeverityParameters,
]

MIDDLE = math.sqrt(32 * 224)  # 84.7 pixels


def parameters(name: str, height: int, width: int) -> SeverityTable:
    """Return the parameters of a corruption at severities 1 to 5 for images of one size."""
    return (FOR_SMALL_IMAGES if min(height, width) < MIDDLE else FOR_LARGE_IMAGES)[name]


def zooms(last: float, step: float) -> SeverityParameters:
    return tuple(1 + place * step for place in range(round((last - 1) / step) + 1))


FOR_LARGE_IMAGES: dict[str, SeverityTable] = {
    # deviation
    "gaussian_noise": ((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
    # photons of a white pixel
    "shot_noise": ((60,), (25,), (12,), (5,), (3,)),
    # share of values lost
    "impulse_noise": ((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
    # deviation of a white pixel
    "speckle_noise": ((0.15,), (0.2,), (0.35,), (0.45,), (0.6,)),
    # radius, deviation of the smoothed rim
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    # deviation, reach, rounds
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    # radius, deviation
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    # factors, with the last one that rounding adds to the published ranges at 1.11 and 1.06
    "zoom_blur": (
        zooms(1.11, 0.01),
        zooms(1.15, 0.01),
        zooms(1.20, 0.02),
        zooms(1.24, 0.02),
        zooms(1.30, 0.03),
    ),
    # deviation
    "gaussian_blur": ((1,), (2,), (3,), (4,), (6,)),
    # mean, deviation, zoom, threshold, radius and deviation of the motion, share of colour kept
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    # share of the image, share of the frost, scale of the texture
    "frost": ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
    # thickness, decay of the detail
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    # added value
    "brightness": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
    # share of the distance from the mean kept
    "contrast": ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
    # factor and offset of the saturation
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    # mean, deviation, smoothing, threshold, opacity of water or smoothing of mud, whether mud
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.6, 0),
        (0.65, 0.3, 3, 0.68, 0.6, 0),
        (0.65, 0.3, 2, 0.68, 0.5, 0),
        (0.65, 0.3, 1, 0.65, 1.5, 1),
        (0.67, 0.4, 1, 0.65, 1.5, 1),
    ),
    # amplitude, smoothing and affine jitter in pixels; the published code says 244, not 224
    "elastic_transform": (
        (244 * 2, 244 * 0.7, 244 * 0.1),
        (244 * 2, 244 * 0.08, 244 * 0.2),
        (244 * 0.05, 244 * 0.01, 244 * 0.02),
        (244 * 0.07, 244 * 0.01, 244 * 0.02),
        (244 * 0.12, 244 * 0.01, 244 * 0.02),
    ),
    # share of rows and columns kept
    "pixelate": ((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
    # quality
    "jpeg_compression": ((25,), (18,), (15,), (10,), (7,)),
}

FOR_SMALL_IMAGES: dict[str, SeverityTable] = {
    "gaussian_noise": ((0.04,), (0.06,), (0.08,), (0.09,), (0.1,)),
    "shot_noise": ((500,), (250,), (100,), (75,), (50,)),
    "impulse_noise": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
    "speckle_noise": ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,)),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": (
        zooms(1.06, 0.01),
        zooms(1.11, 0.01),
        zooms(1.15, 0.01),
        zooms(1.20, 0.01),
        zooms(1.25, 0.01),
    ),
    "gaussian_blur": ((0.4,), (0.6,), (0.7,), (0.8,), (1,)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    "contrast": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "elastic_transform": (
        (0, 0, 32 * 0.08),
        (32 * 0.05, 32 * 0.2, 32 * 0.07),
        (32 * 0.08, 32 * 0.06, 32 * 0.06),
        (32 * 0.1, 32 * 0.04, 32 * 0.05),
        (32 * 0.1, 32 * 0.03, 32 * 0.03),
    ),
    "pixelate": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    "jpeg_compression": ((80,), (65,), (58,), (50,), (40,)),
}
