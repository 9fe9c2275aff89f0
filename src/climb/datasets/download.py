"""Find the folder of a dataset, or download its archive: checked, resumed and unpacked safely."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from climb.errors import ClimbError, InputError, first_few
from climb.files import cache_dir, only_one

_ATTEMPTS = 3
_TIMEOUT_S = 30.0
_log = logging.getLogger("climb.datasets")


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The files of a dataset: a folder, and the archive that holds it."""

    dataset: str
    """Name of the dataset, for messages."""
    folder: str
    """Name of the folder, inside the archive and where it is unpacked."""
    contents: tuple[str, ...]
    """Files and folders that must be in it."""
    url: str = ""
    """Address of the archive; "" if the dataset cannot be downloaded freely."""
    md5: str = ""


def locate(archive: Archive, *, root: Path | str | None, download: bool = True) -> Path:
    """The folder with all contents of a dataset.

    With a ``root``, the search covers ``root`` and ``root/<folder>``. Without one it covers ``$CLIMB_DATA``,
    ``$CLIMB_DATA/<folder>`` and ``<cache>/data/<folder>``. If none of them has the data, the archive is downloaded into
    ``root``, or into the cache.
    """
    home = cache_dir() / "data" if root is None else Path(root).expanduser()
    given = os.environ.get("CLIMB_DATA") if root is None else home
    places = [Path(given).expanduser(), Path(given).expanduser() / archive.folder] if given else []
    missing = {
        place: [name for name in archive.contents if not (place / name).exists()]
        for place in (*places, home / archive.folder)
    }
    for place, lacking in missing.items():
        if not lacking:
            return place
    wanted = f"{', '.join(archive.contents)} of dataset '{archive.dataset}'"
    searched = f"looked for {wanted} in: {', '.join(map(str, missing))}"
    give = "give its folder: --data FOLDER (in Python: root=FOLDER), or export CLIMB_DATA=FOLDER"
    if not archive.url:
        raise InputError(f"{searched}. It cannot be downloaded freely; {give}")
    manual = f"To download it yourself: curl -LO {archive.url}; unpack it, and {give}"
    if not download:
        raise InputError(f"{searched}, and downloading is switched off. {manual}")
    for place, lacking in missing.items():
        # Never download past, or unpack over, a folder that the user has begun to fill.
        if place.name == archive.folder and place.is_dir():
            raise InputError(f"{place} lacks {first_few(lacking)}: complete it, or remove it to download it anew")
    try:
        return install(archive, home)
    except ClimbError as error:
        raise ClimbError(f"{error}; {searched}. {manual}") from error


def writable_folder(folder: Path) -> Path:
    """The folder, created if it does not exist; a ClimbError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        advice = "set CLIMB_CACHE to a folder that can be written to, for example: export CLIMB_CACHE=/tmp/climb"
        raise ClimbError(f"cannot make the folder {folder}: {error.strerror}; {advice}") from error
    return folder


def install(archive: Archive, into: Path) -> Path:
    """Download ``archive`` unless it is installed, unpack it, and return ``into/<its folder>``.

    The cache keeps the archive until it is unpacked. The folder gets its name only when it is complete.
    """
    target = into / archive.folder
    downloads = writable_folder(cache_dir() / "downloads")
    with only_one(downloads / f"{archive.folder}.lock"):
        if not target.is_dir():
            packed = fetch(archive, downloads)
            _unpack(packed, archive, target)
            packed.unlink()
    return target


def fetch(archive: Archive, into: Path) -> Path:
    """Download the archive to a file in ``into`` and check its md5.

    An incomplete download is kept in ``<name>.part``. The next call resumes it if the server supports that.
    """
    whole = into / archive.url.rpartition("/")[2]
    part = whole.with_name(f"{whole.name}.part")
    if whole.is_file() and _md5(whole) == archive.md5:
        return whole
    for _ in range(_ATTEMPTS):
        have = part.stat().st_size if part.is_file() else 0
        if not _transfer(archive.url, part, have):
            continue
        md5 = _md5(part)
        if md5 == archive.md5:
            return part.replace(whole)
        part.unlink()
        # A resumed download may mix two versions of the file: only a download in one piece is proof.
        if not have:
            other = f"{archive.url} has md5 {md5} but {archive.md5} is expected: the file is damaged or has changed"
            raise ClimbError(f"{other}; run again, or download it by other means")
    kept = f"the first part is kept in {part}. Run the same command again to resume it."
    raise ClimbError(f"the download of {archive.url} broke off {_ATTEMPTS} times; {kept}")


def _transfer(url: str, part: Path, have: int) -> bool:
    """Append the bytes after the first ``have`` to ``part``. False if the connection broke off before the end."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            if response.status != 206:
                have = 0
            length = response.headers.get("Content-Length")
            _log.info("downloading %s to %s%s", url, part, f", from byte {have}" if have else "")
            with part.open("ab" if have else "wb") as file:
                shutil.copyfileobj(response, file)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:  # the server has no more bytes: the md5 tells whether ``part`` is complete
                return True
            raise ClimbError(f"{url}: the server answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise ClimbError(f"no network: {url} cannot be reached ({error.reason})") from error
    except (OSError, HTTPException) as error:
        _log.warning("the download of %s broke off: %s", url, error)
        return False
    return length is None or part.stat().st_size == have + int(length)


def _md5(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _unpack(packed: Path, archive: Archive, target: Path) -> None:
    """Unpack into a temporary folder and rename it, so that an incomplete folder never has the final name."""
    writable_folder(target.parent)
    _log.info("unpacking %s to %s", packed, target)
    prefix, place = f".{target.name}.", target.parent
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True) as draft:
        try:
            if zipfile.is_zipfile(packed):
                with zipfile.ZipFile(packed) as bundle:
                    for name in bundle.namelist():
                        if not Path(draft, name).resolve().is_relative_to(Path(draft).resolve()):
                            raise zipfile.BadZipFile(f"'{name}' would be written outside the folder")
                    bundle.extractall(draft)
            else:
                with tarfile.open(packed) as tape:
                    tape.extractall(draft, filter="data")
        except (tarfile.TarError, zipfile.BadZipFile) as error:
            raise ClimbError(f"{packed} cannot be unpacked: {error}") from error
        if not Path(draft, archive.folder).is_dir():
            raise ClimbError(f"{packed} holds no folder {archive.folder}")
        Path(draft, archive.folder).rename(target)
