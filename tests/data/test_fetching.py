"""Downloads from a server on this machine: right, wrong, broken off, from the next mirror."""

import gzip
import hashlib
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from falconcal.cli import app
from falconcal.data import data_files, load_dataset, load_test
from falconcal.data.data_files import SOURCES, DataFile
from falconcal.data.fetching import RemoteFile, fetch_file, offline
from falconcal.data.locations import cache_folder
from falconcal.errors import UserError
from tests.helpers.official_layouts import write_archive, write_cifar10, write_mnist

CONTENT = bytes(range(256)) * 400
ENDLESS = 500 * 10**6  # enough to see that nobody stops


class Server:
    """Serves bytes by path; a path under /broken ends halfway, /gone is not there.

    /endless never ends, /huge says that it is long, /packed is short until it is unpacked.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.sent = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                data = outer.files.get(self.path.rpartition("/")[2])
                if data is None or self.path.startswith("/gone"):
                    self.send_error(404)
                    return
                self.send_response(200)
                if self.path.startswith("/endless"):
                    self.end_headers()
                    self.stream()
                    return
                if self.path.startswith("/huge"):
                    self.send_header("Content-Length", str(10**15))
                    self.end_headers()
                    self.stream()
                    return
                if self.path.startswith("/packed"):
                    data = gzip.compress(bytes(10**8))
                    self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                half = len(data) // 2 if self.path.startswith("/broken") else len(data)
                self.wfile.write(data[:half])

            def stream(self) -> None:
                """Send until nobody listens any more."""
                with suppress(OSError):
                    while outer.sent < ENDLESS:
                        outer.sent += self.wfile.write(CONTENT)

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.root = f"http://127.0.0.1:{self.http.server_port}"
        # shutdown waits for one interval
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("FALCONCAL_OFFLINE", "0")
    monkeypatch.setenv("FALCONCAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FALCONCAL_DATA", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    started = Server()
    started.files["file.bin"] = CONTENT
    yield started
    started.http.shutdown()
    started.http.server_close()


def remote(server: Server, *folders: str, content: bytes = CONTENT) -> RemoteFile:
    urls = tuple(f"{server.root}/{folder}/file.bin" for folder in folders)
    return RemoteFile(urls, f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))


def test_the_right_file_arrives_and_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "folder" / "file.bin"
    assert fetch_file(remote(server, "good"), target) == target
    assert target.read_bytes() == CONTENT
    fetch_file(remote(server, "good"), target)
    assert server.asked == ["/good/file.bin"]


def test_a_file_that_was_cut_off_on_disk_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "file.bin"
    target.write_bytes(CONTENT[:100])
    fetch_file(remote(server, "good"), target)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("first", ["gone", "broken", "good"])
def test_after_a_mirror_that_fails_comes_the_next(
    server: Server, tmp_path: Path, first: str
) -> None:
    wanted = remote(server, first, "good")
    if first == "good":  # nobody listens there
        wanted = replace(wanted, urls=("http://127.0.0.1:9/file.bin", wanted.urls[1]))
    assert fetch_file(wanted, tmp_path / "file.bin").read_bytes() == CONTENT


def test_wrong_and_broken_files_are_refused_and_leave_nothing(
    server: Server, tmp_path: Path
) -> None:
    target = tmp_path / "folder" / "file.bin"
    with pytest.raises(UserError, match=r"cannot download file\.bin") as raised:
        fetch_file(remote(server, "good", "broken", "gone", content=CONTENT[::-1]), target)
    words = str(raised.value)
    assert "/good/file.bin: gave another file than was published (wrong checksum)" in words
    assert "/broken/file.bin: " in words
    assert "broke off" in words
    assert "/gone/file.bin: the server answers 404" in words
    assert str(target.parent) in words
    assert not target.parent.exists()


@pytest.mark.end_to_end
@pytest.mark.parametrize("kind", ["endless", "huge", "packed"])
def test_what_is_longer_than_published_is_given_up_at_once(
    server: Server, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / "folder" / "file.bin"
    with pytest.raises(UserError, match=f"/{kind}/file.bin: gives more than the 102,400 bytes"):
        fetch_file(remote(server, kind), target)
    assert not target.parent.exists()
    assert server.sent < ENDLESS / 10
    assert fetch_file(remote(server, kind, "good"), target).read_bytes() == CONTENT


def test_offline_means_offline(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALCONCAL_OFFLINE", "1")
    assert offline()
    with pytest.raises(UserError, match=r"downloads are switched off.*--offline"):
        fetch_file(remote(server, "good"), tmp_path / "file.bin")
    assert server.asked == []


def served(server: Server, source: DataFile, file: Path) -> DataFile:
    """Return a source whose file the server has."""
    name = source.names[0]
    data = file.read_bytes()
    server.files[name] = data
    checksum = f"md5:{hashlib.md5(data).hexdigest()}"
    urls = (f"{server.root}/gone/{name}", f"{server.root}/good/{name}")
    return replace(source, remote=RemoteFile(urls, checksum, len(data)), content=None)


def test_mnist_is_downloaded_when_it_lies_nowhere_and_found_afterwards(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from falconcal.data.sets import mnist

    write_mnist(tmp_path / "far")
    there = [served(server, one, tmp_path / "far" / one.names[0]) for one in data_files.MNIST]
    monkeypatch.setattr(mnist, "MNIST", there)
    assert len(load_dataset("mnist").validation) == 5000
    assert sorted(path.name for path in (cache_folder() / "mnist").iterdir()) == sorted(
        one.names[0] for one in there
    )
    asked = len(server.asked)
    assert len(load_test("mnist")) == 20
    assert len(server.asked) == asked
    with pytest.raises(UserError, match="expected the file"):  # a path given is the only place
        load_test("mnist", path=str(tmp_path))


def test_cifar_is_read_out_of_the_downloaded_archive_and_nothing_is_unpacked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from falconcal.data.sets import cifar10

    write_cifar10(tmp_path / "far")
    members = {
        f"cifar-10-batches-bin/{path.name}": path.read_bytes()
        for path in (tmp_path / "far").iterdir()
    }
    archive = tmp_path / "packed" / "cifar-10-binary.tar.gz"
    write_archive(archive, {**members, "../../outside.bin": b"evil", "/outside.bin": b"evil"})
    monkeypatch.setattr(cifar10, "CIFAR10", served(server, data_files.CIFAR10, archive))
    assert len(load_dataset("cifar10").train) == 50
    found = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert "outside.bin" not in found
    assert [path.name for path in (cache_folder() / "cifar-10").iterdir()] == [archive.name]


def run(*words: str) -> tuple[int, str]:
    outcome = CliRunner().invoke(app, ["data", *words])
    text = outcome.output + (str(outcome.exception) if outcome.exception else "")
    return outcome.exit_code, text


def test_the_command_lists_fetches_and_verifies(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "far")
    there = tuple(served(server, one, tmp_path / "far" / one.names[0]) for one in data_files.MNIST)
    monkeypatch.setitem(SOURCES, "mnist", there)
    code, text = run("list")
    assert code == 0
    assert "to download" in text.partition("\n")[0]
    code, text = run("fetch", "mnist")
    assert code == 0
    assert str(cache_folder() / "mnist" / "t10k-labels-idx1-ubyte.gz") in text
    code, text = run("verify", "mnist")
    assert (code, text.count("as published"), text.count("not")) == (0, 4, 0)
    (cache_folder() / "mnist" / there[2].names[0]).write_bytes(b"changed")
    code, text = run("verify", "mnist")
    assert code == 1
    assert "t10k-images-idx3-ubyte.gz: not as published" in text
    code, text = run("fetch", "minst")
    assert "Did you mean 'mnist'" in text


def test_the_command_stays_offline_when_told(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALCONCAL_OFFLINE", "0")
    code, text = run("fetch", "newsgroups", "--offline")
    assert code == 1
    assert "switched off" in text
    assert server.asked == []


def test_real_files_are_recognised_however_they_are_packed(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from falconcal.data.inventory import verify_dataset

    monkeypatch.setenv("FALCONCAL_DATA", str(real_data))
    assert [verdict for _, verdict in verify_dataset("mnist")] == ["as published"] * 4
    clothes = [verdict for _, verdict in verify_dataset("fashion_mnist")]
    assert clothes[2:] == ["as published"] * 2


@pytest.mark.parametrize("name", SOURCES)
def test_every_file_has_mirrors_and_a_checksum(name: str) -> None:
    for source in SOURCES[name]:
        assert len(source.remote.urls) > 1
        algorithm, _, value = source.remote.checksum.partition(":")
        assert len(value) == {"md5": 32, "sha256": 64}[algorithm]
