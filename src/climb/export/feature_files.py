"""Features and paths as files: `.npy` with the paths beside it, or Parquet with both as columns.

A path need not be UTF-8. Beside `.npy` its bytes stand as they are; in Parquet, whose text is UTF-8, as ``\\udce9``.
"""

from __future__ import annotations

import codecs
import hashlib
import logging
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
_BUFFER_BYTES = 2**20
"""Bytes of a Parquet file's column read at a time."""
_COLUMNS = ("path", "embedding")
"""Those of a Parquet file of features."""
_WRITE = "climb embed MODEL IMAGES --out features.parquet"
"""What to type. Not with the name of the file in question: it may be somebody's only copy of something else."""
_SEAL = b"\npaths sha256 "
"""What stands behind the array in a `.npy` file, before the digest of its paths; readers of arrays stop before it."""
_ESCAPED = re.compile(r"\\(udc[89a-f][0-9a-f])")
log = logging.getLogger("climb.export")


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
    # A file that another program wrote has no seal; one that was touched up in an editor ends its lines in other ways.
    if not seal.startswith(_SEAL):
        text = text.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").removesuffix(b"\n") + b"\n"
    elif seal != _SEAL + hashlib.sha256(text).hexdigest().encode():
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
    """Rows of what `_write_parquet` or another program wrote; those without a path or an embedding are left out."""
    arrow, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    left_out = 0
    try:
        # Other programs put a million rows into a group, which is read whole but for these two options.
        with open(path, "rb") as body, parquet.ParquetFile(body, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
            _check_columns(path, file.schema_arrow)
            width: int | None = None
            for batch in file.iter_batches(batch_size=_ROWS, columns=list(_COLUMNS)):
                whole = batch.drop_null()
                left_out += len(batch) - len(whole)
                if len(whole) == 0:
                    continue
                rows = whole.column("embedding").to_numpy(zero_copy_only=False)
                lengths = {width or len(rows[0]), *map(len, rows)}
                if len(lengths) > 1:
                    raise InputError(
                        f"the embeddings in {path} have {min(lengths)} to {max(lengths)} numbers; all must have as "
                        f"many; write them with: {_WRITE}"
                    )
                width = lengths.pop()
                names = [_text(name) for name in whole.column("path").cast(arrow.large_binary()).to_pylist()]
                yield Embedded(paths=names, features=np.stack(rows).astype(np.float32))
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the drive; without a number, of the library
            raise
        raise InputError(
            f"{path} is no Parquet file, or a damaged one ({' '.join(str(error).split())}); write one with: {_WRITE}"
        ) from error
    if left_out:
        log.warning("%s has %d rows without a path or an embedding; they are left out", path, left_out)


def _check_columns(path: Path, schema: Any) -> None:
    """Refuse what is not one column of text and one of lists of numbers."""
    names = schema.names
    if any(names.count(name) != 1 for name in _COLUMNS):
        raise InputError(
            f"{path} has the columns {', '.join(names) or '(none)'}; a file of features has one called path and one "
            f"called embedding; write one with: {_WRITE}. Images in a Parquet file are given as a dataset: hf:{path}"
        )
    types = _arrow("pyarrow.types")
    kind = schema.field("path").type
    text = kind.value_type if types.is_dictionary(kind) else kind
    # Some writers do not say of their bytes that they are text.
    texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary)
    if not any(is_it(text) for is_it in texts):
        raise InputError(f"the column path of {path} is of {kind}, not of text; write one with: {_WRITE}")
    kind = schema.field("embedding").type
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    numbers = (types.is_floating, types.is_integer, types.is_decimal)
    if not any(is_it(kind) for is_it in lists) or not any(is_it(kind.value_type) for is_it in numbers):
        raise InputError(
            f"the column embedding of {path} is of {kind}, not of lists of numbers; write one with: {_WRITE}"
        )


def _text(name: bytes) -> str:
    return _ESCAPED.sub(_byte, name.decode("utf-8", "surrogateescape"))


def _byte(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1][1:], 16))


def _arrow(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise InputError('.parquet files need pyarrow. Type: pip install "climb-ssl[data]"') from error
