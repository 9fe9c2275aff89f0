"""Files of features and paths: `.npy` with a file of paths beside it, or Parquet with two columns.

A path need not be valid UTF-8. The file beside `.npy` contains its bytes; Parquet, whose text is UTF-8, ``\\udce9``.
"""

from __future__ import annotations

import codecs
import hashlib
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from climb.errors import ClimbError, InputError
from climb.export.embed import Embedded
from climb.files import write_atomic
from climb.sources.source import import_extra

SUFFIXES = (".npy", ".parquet")
_ROWS = 4096
"""Rows read at a time."""
_BUFFER_BYTES = 2**20
"""Bytes of a Parquet file's column read at a time."""
_COLUMNS = ("path", "embedding")
"""Columns of a Parquet file of features."""
_REMEDY = "write one with: climb embed MODEL IMAGES --out features.parquet"
"""The end of messages. Not with the name of the rejected file, which may be the only copy of something else."""
_SEAL = b"\npaths sha256 "
"""Follows the array in a `.npy` file, before a digest of the paths. Readers of arrays ignore it."""
_ESCAPED = re.compile(r"\\u(dc[89a-f][0-9a-f])")
log = logging.getLogger("climb.export")


def paths_beside(features: Path) -> Path:
    """The file with the paths of a `.npy` file, one per line.

    >>> paths_beside(Path("out/features.npy")).name
    'features.paths.txt'
    """
    return features.with_suffix(".paths.txt")


def check_suffix(path: str | Path) -> Path:
    """Reject a file of features that is neither `.npy` nor `.parquet`, or whose library is missing."""
    path = Path(path).expanduser()
    if path.suffix not in SUFFIXES:
        raise InputError(f"a file of features must end in {' or '.join(SUFFIXES)}, not {path}")
    if path.suffix == ".parquet":
        _arrow()
    return path


def write_features(path: str | Path, batches: Iterable[Embedded]) -> int:
    """Write the features of all batches, in order, and return the number of rows. Replaces a file at the end."""
    path = check_suffix(path)
    rows = 0

    def counted() -> Iterator[Embedded]:
        nonlocal rows
        for batch in batches:
            rows += len(batch.paths)
            yield batch
        if rows == 0:
            raise InputError("no image could be read, so there are no features to write")

    if path.suffix == ".parquet":
        write_atomic(path, lambda file: _write_parquet(file, counted()))
    else:
        write_atomic(
            paths_beside(path), lambda paths: write_atomic(path, lambda file: _write_npy(file, paths, counted()))
        )
    return rows


def read_features(path: str | Path) -> Iterator[Embedded]:
    """Read a file of `write_features`, some rows at a time."""
    path = check_suffix(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist; write it with: climb embed MODEL IMAGES --out {path}")
    return _read_parquet(path) if path.suffix == ".parquet" else _read_npy(path)


# -- npy ---------------------------------------------------------------------------------------------------------------


def _write_npy(target: Path, paths: Path, batches: Iterable[Embedded]) -> None:
    rows, start, digest = 0, 0, hashlib.sha256()
    with open(target, "wb") as body, open(paths, "wb") as names:
        for batch in batches:
            width = batch.features.shape[1]
            if rows == 0:
                start = _write_header(body, 0, width)
            for path in batch.paths:
                if "\n" in path:
                    raise InputError(f"the path {path!r} contains a line break; write a .parquet file instead")
                line = path.encode("utf-8", "surrogateescape") + b"\n"
                digest.update(line)
                names.write(line)
            body.write(np.ascontiguousarray(batch.features, dtype="<f4").tobytes())
            rows += len(batch.paths)
        body.write(_SEAL + digest.hexdigest().encode())
        # numpy's header has padding so that the number of rows can grow.
        body.seek(0)
        if _write_header(body, rows, width) != start:
            raise ClimbError(f"this numpy ({np.__version__}) cannot grow an array in a file; write a .parquet file")


def _write_header(body: BinaryIO, rows: int, width: int) -> int:
    """Write the header of a float32 array (rows, width), and return the offset of the data."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(body, header)
    return body.tell()


def _read_npy(path: Path) -> Iterator[Embedded]:
    beside, remedy = paths_beside(path), f"write it with: climb embed MODEL IMAGES --out {path}"
    try:
        features, text = np.load(path, mmap_mode="r", allow_pickle=False), beside.read_bytes()
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"cannot read {path} and {beside.name}: {error}") from error
    if not isinstance(features, np.memmap) or features.dtype.kind not in "fiu":  # an archive or an array of text
        raise InputError(f"{path} has no array of numbers; {remedy}")
    with open(path, "rb") as body:
        body.seek(features.offset + features.nbytes)
        seal = body.read(1024)
    # Files of other programs have no digest, and editors may change line ends.
    if not seal.startswith(_SEAL):
        text = text.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").removesuffix(b"\n") + b"\n"
    elif seal != _SEAL + hashlib.sha256(text).hexdigest().encode():
        mixed = f"{path} and {beside.name} were not written together, so features would be of other images"
        raise InputError(f"{mixed}; {remedy}")
    # Not splitlines: a name may contain other line separators.
    *names, _ = text.decode("utf-8", "surrogateescape").split("\n")
    if features.ndim != 2 or len(features) != len(names):
        shapes = f"{path} has shape {features.shape} and {beside.name} {len(names)} lines"
        raise InputError(f"{shapes}; they need one row and one line per image")
    for start in range(0, len(names), _ROWS):
        block = np.array(features[start : start + _ROWS], dtype=np.float32)
        yield Embedded(paths=names[start : start + _ROWS], features=block)


# -- parquet -----------------------------------------------------------------------------------------------------------


def _write_parquet(target: Path, batches: Iterable[Embedded]) -> None:
    arrow, parquet = _arrow(), _arrow("pyarrow.parquet")
    with open(target, "wb") as body, ExitStack() as stack:  # pyarrow cannot open a file whose name is not UTF-8
        writer = None
        for batch in batches:
            paths = arrow.array([path.encode("utf-8", "backslashreplace").decode() for path in batch.paths])
            numbers = arrow.array(batch.features.reshape(-1), type=arrow.float32())
            rows = arrow.FixedSizeListArray.from_arrays(numbers, batch.features.shape[1])
            table = arrow.table([paths, rows], names=_COLUMNS)
            writer = writer or stack.enter_context(parquet.ParquetWriter(body, table.schema))
            writer.write_table(table)


def _read_parquet(path: Path) -> Iterator[Embedded]:
    """Read a file of `_write_parquet` or of another program. Rows without a path or an embedding are skipped."""
    arrow, parquet = _arrow(), _arrow("pyarrow.parquet")
    skipped = 0
    try:
        # Without these two options a row group, which may have a million rows, is read as a whole.
        with open(path, "rb") as body, parquet.ParquetFile(body, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
            _check_columns(path, file.schema_arrow)
            width: int | None = None
            for batch in file.iter_batches(batch_size=_ROWS, columns=list(_COLUMNS)):
                whole = batch.drop_null()
                skipped += len(batch) - len(whole)
                if len(whole) == 0:
                    continue
                rows = whole.column("embedding").to_numpy(zero_copy_only=False)
                lengths = {width or len(rows[0]), *map(len, rows)}
                if len(lengths) > 1:
                    differ = f"the embeddings in {path} have {min(lengths)} to {max(lengths)} numbers"
                    raise InputError(f"{differ}; all need the same length; {_REMEDY}")
                width = lengths.pop()
                names = [_text(name) for name in whole.column("path").cast(arrow.large_binary()).to_pylist()]
                yield Embedded(paths=names, features=np.stack(rows).astype(np.float32))
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # without a number: from pyarrow
            raise
        reason = " ".join(str(error).split())
        raise InputError(f"{path} is not a Parquet file, or damaged ({reason}); {_REMEDY}") from error
    if skipped:
        log.warning("%s has %d rows without a path or an embedding; they are skipped", path, skipped)


def _check_columns(path: Path, schema: Any) -> None:
    """Reject a file without one column of text and one column of lists of numbers."""
    names = schema.names
    if any(names.count(name) != 1 for name in _COLUMNS):
        columns = f"the columns {', '.join(names) or '(none)'}; allowed: one column path and one column embedding"
        raise InputError(f"{path} has {columns}; {_REMEDY}. For images in a Parquet file, use a dataset: hf:{path}")
    types = _arrow("pyarrow.types")

    def is_any(kind: Any, *allowed: str) -> bool:
        return any(getattr(types, f"is_{name}")(kind) for name in allowed)

    kind = schema.field("path").type
    text = kind.value_type if types.is_dictionary(kind) else kind
    # Some writers do not declare their bytes as text.
    if not is_any(text, "string", "large_string", "string_view", "binary"):
        raise InputError(f"the column path of {path} has type {kind}, not text; {_REMEDY}")
    kind = schema.field("embedding").type
    lists = is_any(kind, "list", "large_list", "fixed_size_list")
    if not lists or not is_any(kind.value_type, "floating", "integer", "decimal"):
        raise InputError(f"the column embedding of {path} has type {kind}, not lists of numbers; {_REMEDY}")


def _text(name: bytes) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), name.decode("utf-8", "surrogateescape"))


def _arrow(name: str = "pyarrow") -> Any:
    return import_extra(name, ".parquet files", "data")
