"""Crafted shifts: made for fitting calibrators and choosing settings, never for testing.

None of them is affine and none is a published benchmark, so a calibrator that is fitted on them
has not seen the shifts that studies test. One file per family; each has ten levels of strength 0
to 0.9. For words the families ``word_drop``, ``word_shuffle`` and ``typos`` serve, for tables and
signals ``sensor_noise``, ``missing_channels``, ``gain``, ``group_offset`` and ``time_warp``.
"""

from falconcal.shifts.crafted.background_lines import background_lines_shift
from falconcal.shifts.crafted.elastic_warp import elastic_warp_shift
from falconcal.shifts.crafted.gain import gain_shift
from falconcal.shifts.crafted.group_offset import group_offset_shift
from falconcal.shifts.crafted.mixed_images import mixed_images_shift
from falconcal.shifts.crafted.occlusion import occlusion_shift
from falconcal.shifts.crafted.patch_shuffle import patch_shuffle_shift
from falconcal.shifts.crafted.row_jitter import row_jitter_shift
from falconcal.shifts.crafted.speckle import speckle_shift
from falconcal.shifts.crafted.swirl import swirl_shift
from falconcal.shifts.crafted.time_warp import time_warp_shift
from falconcal.shifts.crafted.wave import wave_shift
from falconcal.shifts.shift import Shift


def crafted_shifts() -> dict[str, Shift]:
    """Return the crafted shifts of images, then those of tables and signals.

    Returns:
        The shifts by name.

    Example:
        >>> from falconcal.shifts import crafted_shifts
        >>> list(crafted_shifts())[:3]
        ['elastic_warp', 'swirl', 'wave']
    """
    return crafted_image_shifts() | crafted_sensor_shifts()


def crafted_image_shifts() -> dict[str, Shift]:
    """Return those for images (N, C, H, W) by name."""
    shifts = (
        elastic_warp_shift(),
        swirl_shift(),
        wave_shift(),
        patch_shuffle_shift(),
        occlusion_shift(),
        mixed_images_shift(),
        row_jitter_shift(),
        background_lines_shift(),
        speckle_shift(),
    )
    return {shift.name: shift for shift in shifts}


def crafted_sensor_shifts() -> dict[str, Shift]:
    """Return those for tables (N, channels) and signals (N, time, channels) by name."""
    shifts = (gain_shift(), group_offset_shift(), time_warp_shift())
    return {shift.name: shift for shift in shifts}
