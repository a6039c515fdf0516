"""Files appear whole or not at all."""

import os
from pathlib import Path

import pytest

from falconcal.files import write_bytes, write_text


def test_a_write_that_fails_leaves_the_old_file_and_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "some.txt"
    write_text(file, "old")

    def fail(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space"):
        write_bytes(file, b"new" * 1000)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_folders_are_made_and_text_keeps_its_letters(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "täxt.md"
    write_text(file, "ECE ± 0.1\n")
    assert file.read_text(encoding="utf-8") == "ECE ± 0.1\n"


def test_others_may_read_what_the_user_lets_them(tmp_path: Path) -> None:
    for mask, mode in ((0o077, 0o600), (0o022, 0o644)):
        before = os.umask(mask)
        try:
            write_text(tmp_path / "some.txt", "text")
        finally:
            os.umask(before)
        assert (tmp_path / "some.txt").stat().st_mode & 0o777 == mode
