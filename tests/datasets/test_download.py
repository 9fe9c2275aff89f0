from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from climb.datasets.download import Archive, fetch, install, locate
from climb.errors import ClimbError, InputError

CONTENT = bytes(range(256)) * 4000


@dataclass
class Site:
    """A server on this machine, and the requests it got."""

    files: dict[str, bytes]
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)
    """Bytes to send before closing the connection, one entry for each request; empty: everything."""
    asked: list[str | None] = field(default_factory=list)
    address: str = ""


class Handler(BaseHTTPRequestHandler):
    def __init__(self, site: Site, *args: object) -> None:
        self.site = site
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.site.asked.append(wanted)
        body = self.site.files.get(self.path.lstrip("/"))
        if body is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.site.ranges else 0
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        limit = self.site.cut_after.pop(0) if self.site.cut_after else len(body)
        self.wfile.write(body[start : start + limit])

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    site = Site(files={"data.bin": CONTENT})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, site))
    site.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


def archive(site: Site, name: str = "data.bin", md5: str | None = None, folder: str = "inner") -> Archive:
    known = md5 or hashlib.md5(site.files.get(name, b"")).hexdigest()
    return Archive(dataset="toy", folder=folder, contents=("file",), url=f"{site.address}/{name}", md5=known)


def tar(*members: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tape:
        for name in members:
            entry = tarfile.TarInfo(name)
            entry.size = 5
            tape.addfile(entry, io.BytesIO(b"hello"))
    return buffer.getvalue()


def zipped(*members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        for name in members:
            bundle.writestr(name, "hello")
    return buffer.getvalue()


def test_whole_download(site: Site, tmp_path: Path) -> None:
    assert fetch(archive(site), tmp_path).read_bytes() == CONTENT
    assert site.asked == [None]
    assert not (tmp_path / "data.bin.part").exists()


def test_a_complete_file_is_not_downloaded_again(site: Site, tmp_path: Path) -> None:
    fetch(archive(site), tmp_path)
    fetch(archive(site), tmp_path)
    assert len(site.asked) == 1


def test_a_partial_file_is_resumed(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    assert fetch(archive(site), tmp_path).read_bytes() == CONTENT
    assert site.asked == ["bytes=1000-"]


def test_a_server_without_ranges_starts_over(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    assert fetch(archive(site), tmp_path).read_bytes() == CONTENT
    assert site.asked == ["bytes=1000-"]


def test_a_broken_connection_resumes(site: Site, tmp_path: Path) -> None:
    site.cut_after = [300_000, 200_000]
    assert fetch(archive(site), tmp_path).read_bytes() == CONTENT
    assert site.asked == [None, "bytes=300000-", "bytes=500000-"]


def test_a_partial_file_is_kept_after_three_failures(site: Site, tmp_path: Path) -> None:
    site.cut_after = [1000, 1000, 1000]
    with pytest.raises(ClimbError, match=r"broke off 3 times; the first part is kept in .*data\.bin\.part"):
        fetch(archive(site), tmp_path)
    assert (tmp_path / "data.bin.part").read_bytes() == CONTENT[:3000]
    assert fetch(archive(site), tmp_path).read_bytes() == CONTENT
    assert site.asked[-1] == "bytes=3000-"


def test_a_wrong_partial_file_is_removed(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(b"x" * 1000)
    assert fetch(archive(site), tmp_path).read_bytes() == CONTENT
    assert site.asked == ["bytes=1000-", None]


def test_a_part_that_is_complete_or_too_long(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT)
    assert fetch(archive(site), tmp_path).read_bytes() == CONTENT
    (tmp_path / "data.bin").unlink()
    (tmp_path / "data.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(archive(site), tmp_path).read_bytes() == CONTENT


def test_a_wrong_md5_names_both(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ClimbError) as caught:
        fetch(archive(site, md5="0" * 32), tmp_path)
    assert hashlib.md5(CONTENT).hexdigest() in str(caught.value)
    assert "0" * 32 in str(caught.value)
    assert list(tmp_path.glob("data.bin*")) == []


def test_a_missing_file_on_the_server(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ClimbError, match="gone: the server answered 404"):
        fetch(archive(site, name="gone"), tmp_path)


@pytest.mark.parametrize(("name", "pack"), [("a.tar.gz", tar), ("a.zip", zipped)])
def test_install_unpacks_once_and_clears_up(site: Site, tmp_path: Path, cache: Path, name: str, pack: object) -> None:
    site.files[name] = pack("inner/file", "inner/deep/file")  # type: ignore[operator]
    target = install(archive(site, name), tmp_path / "data")
    assert (target / "deep" / "file").read_text() == "hello"
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["inner"]
    assert not (cache / "downloads" / name).exists()
    install(archive(site, name), tmp_path / "data")
    assert len(site.asked) == 1


@pytest.mark.parametrize(("name", "pack"), [("a.tar.gz", tar), ("a.zip", zipped)])
def test_an_archive_cannot_write_outside(site: Site, tmp_path: Path, name: str, pack: object) -> None:
    site.files[name] = pack("inner/file", "../../escaped")  # type: ignore[operator]
    with pytest.raises(ClimbError, match="cannot be unpacked"):
        install(archive(site, name), tmp_path / "deep" / "data")
    assert list(tmp_path.rglob("escaped")) == []
    assert list((tmp_path / "deep" / "data").iterdir()) == []


def test_damaged_and_unexpected_archives(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ClimbError, match="cannot be unpacked"):
        install(archive(site), tmp_path / "data")
    site.files["other.zip"] = zipped("elsewhere/file")
    with pytest.raises(ClimbError, match="holds no folder inner"):
        install(archive(site, "other.zip"), tmp_path / "data")


def test_locate_downloads_into_the_cache_or_the_root(site: Site, tmp_path: Path, cache: Path) -> None:
    site.files["a.zip"] = zipped("inner/file")
    wanted = archive(site, "a.zip")
    assert locate(wanted, root=None) == cache / "data" / "inner"
    assert locate(wanted, root=tmp_path / "mine") == tmp_path / "mine" / "inner"
    assert len(site.asked) == 2


def test_simultaneous_installs_download_once(site: Site, tmp_path: Path) -> None:
    site.files["a.zip"] = zipped("inner/file")
    threads = [threading.Thread(target=install, args=(archive(site, "a.zip"), tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "inner" / "file").is_file()
    assert len(site.asked) == 1


def test_no_network_is_reported_with_a_manual_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    # No server listens on port 1, which is reserved: the connection is refused at once.
    nowhere = Archive(dataset="toy", folder="toy", contents=("file",), url="http://127.0.0.1:1/toy.zip", md5="0" * 32)
    with pytest.raises(ClimbError) as caught:
        locate(nowhere, root=tmp_path / "data")
    message = str(caught.value)
    for part in ("no network", nowhere.url, str(tmp_path / "data" / "toy"), "curl -LO", "root=FOLDER"):
        assert part in message
    assert not (tmp_path / "data").exists()
    assert not isinstance(caught.value, InputError)
