"""Files appear whole or not at all."""

import os
from pathlib import Path

import pytest

from falconcal.errors import UsageError
from falconcal.io.atomic import atomic_path, check_writable, write_bytes, write_text


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


def test_a_place_that_nothing_can_be_written_to_is_refused_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_writable(tmp_path / "new" / "folder" / "some.csv")
    assert not list(tmp_path.iterdir())
    write_text(tmp_path / "file", "text")
    with pytest.raises(UsageError, match="file is a file"):
        check_writable(tmp_path / "file" / "some.csv")
    monkeypatch.setattr("os.access", lambda *_: False)  # whoever runs tests may write anywhere
    with pytest.raises(UsageError, match="is not writable"):
        check_writable(tmp_path / "some.csv")


def test_a_file_that_does_not_appear_leaves_no_folder_behind(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name in ("there/new/folder/some.csv", "there/some.csv"):
        with pytest.raises(RuntimeError), atomic_path(tmp_path / name):
            raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
