"""Fetch an archive that is checked, resumed and unpacked safely."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath

from climb.cache import cache_dir
from climb.datasets.cache import writable_folder
from climb.errors import ClimbError
from climb.lock import only_one

_ATTEMPTS = 3
_BLOCK = 1 << 20
_PATIENCE_S = 30.0
_log = logging.getLogger("climb.datasets")


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A published archive that holds one folder."""

    url: str
    md5: str
    folder: str
    """Name of the folder inside, and of the dataset's folder once it is unpacked."""

    @property
    def file_name(self) -> str:
        """The last part of the address."""
        return PurePosixPath(self.url).name


class Unreachable(ClimbError):
    """The server could not be reached at all."""


def install(archive: Archive, into: Path) -> Path:
    """Download ``archive`` unless it is there, unpack it, and return ``into/<its folder>``.

    The archive is kept in the cache while it is incomplete, and removed once it is unpacked. The folder
    appears under its name only when it is complete.
    """
    target = into / archive.folder
    downloads = writable_folder(cache_dir() / "downloads")
    with only_one(downloads / f"{archive.file_name}.lock"):
        if not target.is_dir():
            packed = fetch(archive, downloads)
            _unpack(packed, archive, target)
            packed.unlink()
    return target


def fetch(archive: Archive, into: Path) -> Path:
    """The archive as a file in ``into``, its md5 checked.

    What has arrived is kept in ``<name>.part``; an interrupted download goes on from there where the server
    can do that, and starts over where it cannot.
    """
    whole, part = into / archive.file_name, into / f"{archive.file_name}.part"
    if whole.is_file() and _md5(whole) == archive.md5:
        return whole
    for _ in range(_ATTEMPTS):
        resumed = part.is_file() and part.stat().st_size > 0
        if not _transfer(archive.url, part):
            continue
        found = _md5(part)
        if found == archive.md5:
            part.replace(whole)
            return whole
        part.unlink()
        # The beginning may stem from another version of the file: only a download in one piece is proof.
        if not resumed:
            raise ClimbError(
                f"{archive.url} has md5 {found} but {archive.md5} is expected: the file was damaged on its way "
                "or has changed; run again, or download it by other means"
            )
    raise ClimbError(
        f"the download of {archive.url} broke off {_ATTEMPTS} times; what has arrived is kept in {part}. "
        "Run the same command again to go on from there."
    )


def _transfer(url: str, part: Path) -> bool:
    """Append what is missing to ``part``; False when the connection broke off before the end."""
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
            if answer.status != 206:
                have = 0
            length = answer.headers.get("Content-Length")
            expected = have + int(length) if length is not None else None
            _log.info("downloading %s to %s%s", url, part, f", from byte {have}" if have else "")
            with part.open("ab" if have else "wb") as file:
                shutil.copyfileobj(answer, file, _BLOCK)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:
                # The server has no byte after ours: either all is there, which the md5 tells, or nothing fits.
                return True
            raise ClimbError(f"{url}: the server answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise Unreachable(f"no network: {url} cannot be reached ({error.reason})") from error
    except (OSError, HTTPException) as error:
        _log.warning("the download of %s broke off: %s", url, error)
        return False
    return expected is None or part.stat().st_size == expected


def _md5(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _unpack(packed: Path, archive: Archive, target: Path) -> None:
    """Unpack beside ``target`` and rename, so that a half-unpacked folder never looks complete."""
    writable_folder(target.parent)
    _log.info("unpacking %s to %s", packed, target)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        if zipfile.is_zipfile(packed):
            with zipfile.ZipFile(packed) as bundle:
                _refuse_escapes(packed, bundle.NameToInfo, draft)
                bundle.extractall(draft)
        else:
            with tarfile.open(packed) as tape:
                tape.extractall(draft, filter="data")
        inner = draft / archive.folder
        if not inner.is_dir():
            raise ClimbError(f"{packed} holds no folder {archive.folder}")
        inner.rename(target)
    except (tarfile.TarError, zipfile.BadZipFile) as error:
        raise ClimbError(f"{packed} cannot be unpacked: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _refuse_escapes(packed: Path, members: Mapping[str, object], draft: Path) -> None:
    for name in members:
        if not (draft / name).resolve().is_relative_to(draft.resolve()):
            raise ClimbError(f"{packed} cannot be unpacked: '{name}' would be written outside the folder")
