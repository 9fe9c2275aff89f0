from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from climb.datasets.cifar import load_arrays
from climb.errors import ClimbError, InputError


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_of_every_protocol(tmp_path: Path, protocol: int) -> None:
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    (tmp_path / "file").write_bytes(pickle.dumps({b"data": array, "labels": [1, 2], b"raw": b"\xff\x00"}, protocol))
    content = load_arrays(tmp_path / "file")
    assert sorted(content) == ["data", "labels", "raw"]
    np.testing.assert_array_equal(content["data"], array)
    assert content["labels"] == [1, 2]
    assert content["raw"] == b"\xff\x00"


def test_names_of_older_and_newer_numpy(tmp_path: Path) -> None:
    array = np.arange(5, dtype=np.uint8)
    written = pickle.dumps({b"data": array}, protocol=2)
    modules = (b"numpy.core.multiarray", b"numpy._core.multiarray")
    for old in modules:
        for new in modules:
            (tmp_path / "file").write_bytes(written.replace(b"c" + old + b"\n", b"c" + new + b"\n"))
            np.testing.assert_array_equal(load_arrays(tmp_path / "file")["data"], array)


def test_python_2_strings_become_bytes(tmp_path: Path) -> None:
    # What Python 2 wrote for {"label_names": ["caf\xe9"]}, protocol 2: SHORT_BINSTRING opcodes.
    (tmp_path / "file").write_bytes(b"\x80\x02}U\x0blabel_names]U\x04caf\xe9as.")
    assert load_arrays(tmp_path / "file") == {"label_names": [b"caf\xe9"]}


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch harmed",)


def test_code_in_a_pickle_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(pickle.dumps({b"data": Harmful()}))
    with pytest.raises(ClimbError, match=r"file: refused to load '(posix|nt)\.system': only numpy arrays"):
        load_arrays(tmp_path / "file")
    assert not (tmp_path / "harmed").exists()


def test_other_codecs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"c_codecs\nencode\n(V\nVzip\ntR.")
    with pytest.raises(ClimbError, match="refused to decode with 'zip'"):
        load_arrays(tmp_path / "file")


def test_damaged_missing_and_other_content(tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(pickle.dumps({b"data": np.zeros(100)})[:50])
    with pytest.raises(InputError, match="cut is not a readable pickle"):
        load_arrays(tmp_path / "cut")
    (tmp_path / "list").write_bytes(pickle.dumps([1]))
    with pytest.raises(InputError, match="list holds a list; expected a dictionary"):
        load_arrays(tmp_path / "list")
    with pytest.raises(InputError, match="nowhere cannot be read: No such file"):
        load_arrays(tmp_path / "nowhere")
