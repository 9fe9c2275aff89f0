"""Features and paths as files: `.npy` with the paths beside it, or Parquet with both as columns.

A path need not be UTF-8. Beside `.npy` its bytes stand as they are; in Parquet, whose text is UTF-8, as ``\\udce9``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from climb.errors import ClimbError, InputError
from climb.export.embed import Embedded
from climb.files import write_atomic

SUFFIXES = (".npy", ".parquet")
_ROWS = 4096
"""Rows read at a time."""
_SEAL = b"\npaths sha256 "
"""What stands behind the array in a `.npy` file, before the digest of its paths; readers of arrays stop before it."""
_ESCAPED = re.compile(r"\\(udc[89a-f][0-9a-f])")


def paths_beside(features: Path) -> Path:
    """Where the paths of a `.npy` file are, one a line.

    >>> paths_beside(Path("out/features.npy")).name
    'features.paths.txt'
    """
    return features.with_suffix(".paths.txt")


def check_suffix(path: str | Path) -> Path:
    """Refuse a file of features that is neither `.npy` nor `.parquet`, or whose library is missing."""
    path = Path(path).expanduser()
    if path.suffix not in SUFFIXES:
        raise InputError(f"features are kept in {' or '.join(SUFFIXES)} files; given {path}")
    if path.suffix == ".parquet":
        _arrow("pyarrow")
    return path


def write_features(path: str | Path, batches: Iterable[Embedded]) -> int:
    """Write the features of all batches, in order; how many rows there were. A file there is replaced at the end."""
    path = check_suffix(path)
    rows = 0

    def fill(features: Path, paths: Path | None) -> None:
        nonlocal rows
        rows = _write_parquet(features, batches) if paths is None else _write_npy(features, paths, batches)
        if rows == 0:
            raise InputError("no image could be read: there are no features to write")

    if path.suffix == ".parquet":
        write_atomic(path, lambda features: fill(features, None))
    else:
        write_atomic(paths_beside(path), lambda paths: write_atomic(path, lambda features: fill(features, paths)))
    return rows


def read_features(path: str | Path) -> Iterator[Embedded]:
    """What `write_features` wrote, some rows at a time."""
    path = check_suffix(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist; write it with: climb embed MODEL IMAGES --out {path}")
    return _read_parquet(path) if path.suffix == ".parquet" else _read_npy(path)


# -- npy ---------------------------------------------------------------------------------------------------------------


def _write_npy(target: Path, paths: Path, batches: Iterable[Embedded]) -> int:
    rows, width = 0, 0
    digest = hashlib.sha256()
    with open(target, "wb") as body, open(paths, "wb") as names:
        start = 0
        for batch in batches:
            if rows == 0:
                width = batch.features.shape[1]
                start = _write_header(body, 0, width)
            for path in batch.paths:
                if "\n" in path:
                    raise InputError(f"the path {path!r} has a line break; write a .parquet file instead")
                line = path.encode("utf-8", "surrogateescape") + b"\n"
                digest.update(line)
                names.write(line)
            body.write(np.ascontiguousarray(batch.features, dtype="<f4").tobytes())
            rows += len(batch.paths)
        body.write(_SEAL + digest.hexdigest().encode())
        # numpy leaves room in the header for the count of rows to grow, for exactly this use.
        body.seek(0)
        if rows and _write_header(body, rows, width) != start:
            raise ClimbError(f"this numpy ({np.__version__}) cannot grow an array in a file; write a .parquet file")
    return rows


def _write_header(body: BinaryIO, rows: int, width: int) -> int:
    """Write the header of a float32 array (rows, width); where the numbers start."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(body, header)
    return body.tell()


def _read_npy(path: Path) -> Iterator[Embedded]:
    beside = paths_beside(path)
    try:
        features = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(features, np.memmap) or features.dtype.kind not in "fiu":  # an archive, or an array of text
            raise InputError(f"{path} holds no array of numbers; write it with: climb embed MODEL IMAGES --out {path}")
        text = beside.read_bytes()
        with open(path, "rb") as body:
            body.seek(features.offset + features.nbytes)
            seal = body.read(1024)
    except InputError:
        raise
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"cannot read {path} and {beside.name}: {error}") from error
    # A file that another program wrote has no seal.
    if seal.startswith(_SEAL) and seal != _SEAL + hashlib.sha256(text).hexdigest().encode():
        raise InputError(
            f"{path} and {beside.name} were not written together: the features would be given to other images; "
            f"write both anew with: climb embed MODEL IMAGES --out {path}"
        )
    # A name may hold what Python, too, takes for the end of a line.
    *names, _ = text.decode("utf-8", "surrogateescape").split("\n")
    if features.ndim != 2 or len(features) != len(names):
        raise InputError(
            f"{path} has shape {features.shape} and {beside.name} {len(names)} lines; "
            "they must have one row and one line an image"
        )
    for start in range(0, len(names), _ROWS):
        block = np.array(features[start : start + _ROWS], dtype=np.float32)
        yield Embedded(paths=names[start : start + _ROWS], features=block)


# -- parquet -----------------------------------------------------------------------------------------------------------


def _write_parquet(target: Path, batches: Iterable[Embedded]) -> int:
    arrow, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    writer = None
    rows = 0
    with open(target, "wb") as body:  # the library opens no file whose name is not UTF-8
        try:
            for batch in batches:
                width = batch.features.shape[1]
                numbers = arrow.array(batch.features.reshape(-1), type=arrow.float32())
                paths = [path.encode("utf-8", "backslashreplace").decode() for path in batch.paths]
                table = arrow.table(
                    {"path": arrow.array(paths), "embedding": arrow.FixedSizeListArray.from_arrays(numbers, width)}
                )
                writer = writer or parquet.ParquetWriter(body, table.schema)
                writer.write_table(table)
                rows += len(paths)
        finally:
            if writer is not None:
                writer.close()
    return rows


def _read_parquet(path: Path) -> Iterator[Embedded]:
    arrow, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    try:
        with open(path, "rb") as body, parquet.ParquetFile(body) as file:
            missing = {"path", "embedding"} - set(file.schema_arrow.names)
            if missing:
                raise InputError(f"{path} has no column {' and '.join(sorted(missing))}; expected path and embedding")
            for batch in file.iter_batches(batch_size=_ROWS, columns=["path", "embedding"]):
                rows = batch.column("embedding")
                features = np.asarray(rows.flatten(), dtype=np.float32).reshape(len(rows), -1)
                paths = [_ESCAPED.sub(_byte, path) for path in batch.column("path").to_pylist()]
                yield Embedded(paths=paths, features=features)
    except arrow.ArrowInvalid as error:
        raise InputError(f"{path} is no Parquet file: {error}") from error


def _byte(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1][1:], 16))


def _arrow(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise InputError('.parquet files need pyarrow. Type: pip install "climb-ssl[data]"') from error
