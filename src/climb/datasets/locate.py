"""Find the folder of a dataset, or bring it here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from climb.cache import cache_dir
from climb.datasets.download import Archive, Unreachable, install
from climb.errors import ClimbError, InputError


def locate(
    dataset: str,
    *,
    root: Path | str | None,
    folder: str,
    marks: Sequence[str],
    archive: Archive | None = None,
    download: bool = False,
) -> Path:
    """The folder that holds every name in ``marks``.

    With a ``root``, only ``root`` and ``root/<folder>`` are looked at; without one, ``$CLIMB_DATA`` and
    ``$CLIMB_DATA/<folder>``, then ``<cache>/data/<folder>``. If none has the data, an ``archive`` is downloaded
    into ``root``, or into the cache.
    """
    looked = _candidates(root, folder)
    for place in looked:
        if all((place / mark).exists() for mark in marks):
            return place
    missing = f"looked for {', '.join(marks)} of dataset '{dataset}' in: {', '.join(str(place) for place in looked)}"
    if archive is None:
        raise InputError(
            f"{missing}. It cannot be downloaded freely; give its folder: --data FOLDER, or export CLIMB_DATA=FOLDER"
        )
    help_yourself = (
        f"Where there is a network: curl -LO {archive.url}; unpack it, and give the folder it was unpacked to: "
        "--data FOLDER (in Python: root=FOLDER), or export CLIMB_DATA=FOLDER"
    )
    if not download:
        raise InputError(f"{missing}, and downloading is switched off. {help_yourself}")
    for place in looked:
        # Never download past, or unpack over, a folder that someone has begun to fill.
        if place.name == folder and place.is_dir():
            lacking = [mark for mark in marks if not (place / mark).exists()]
            raise InputError(f"{place} lacks {', '.join(lacking)}: complete it, or remove it to download it anew")
    target = Path(root).expanduser() if root is not None else cache_dir() / "data"
    try:
        return install(archive, target)
    except Unreachable as error:
        raise ClimbError(f"{error}; {missing}. {help_yourself}") from error


def _candidates(root: Path | str | None, folder: str) -> list[Path]:
    if root is not None:
        given = Path(root).expanduser()
        return [given, given / folder]
    shared = os.environ.get("CLIMB_DATA")
    places = [Path(shared).expanduser(), Path(shared).expanduser() / folder] if shared else []
    return [*places, cache_dir() / "data" / folder]
