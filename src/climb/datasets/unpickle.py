"""Read a pickle that may hold numpy arrays and plain values, and nothing else."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from climb.errors import ClimbError, InputError


def _latin1(text: str, encoding: str) -> bytes:
    """How protocol 2 writes bytes. Other codecs (zip, bz2, ...) could inflate without limit."""
    if encoding != "latin1":
        raise ClimbError(f"refused to decode with '{encoding}'")
    return text.encode("latin1")


# Taken from what numpy itself writes: the functions have moved between numpy versions, their names in old
# files have not.
_ARRAY: Any = np.zeros(1)
_RECONSTRUCT: Callable[..., Any] = _ARRAY.__reduce__()[0]
_FROM_BUFFER: Callable[..., Any] = _ARRAY.__reduce_ex__(5)[0]

_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy.core.numeric", "_frombuffer"): _FROM_BUFFER,
    ("numpy._core.numeric", "_frombuffer"): _FROM_BUFFER,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise ClimbError(f"refused to load '{module}.{name}': only numpy arrays are admitted") from None


def load_arrays(path: Path) -> dict[str, Any]:
    """The dictionary pickled in ``path``, its keys as text.

    No code in the file is run: any global that numpy arrays do not need is refused with a ClimbError.
    """
    try:
        content = _ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except ClimbError as error:
        raise ClimbError(f"{path}: {error}; get the file from its official source") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    # A damaged pickle can fail in any opcode, each with its own exception.
    except Exception as error:
        raise InputError(f"{path} is not a readable pickle ({type(error).__name__}: {error})") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a {type(content).__name__}; expected a dictionary")
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}
