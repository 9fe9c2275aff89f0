"""The list of learned images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from climb.errors import ClimbError, DamagedFile
from climb.session import seen_images
from climb.session.seen_images import SeenImages


def test_many_identities_are_each_new_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_images, "MERGE_AT", 64)
    drawn = np.random.default_rng(0).integers(0, 2**64, 1000, dtype=np.uint64)
    given = [*drawn.tolist(), 0, 2**64 - 1, 2**63]
    seen = SeenImages(tmp_path / "k", 0)
    assert all(seen(identity) for identity in given)
    assert not any(seen(identity) for identity in given)
    for identity in given[:700]:
        seen.learned(identity)
    assert seen.write() == 700
    again = SeenImages(tmp_path / "k", 700)
    assert [again(identity) for identity in given] == [False] * 700 + [True] * 303


def test_what_the_checkpoint_does_not_count_is_forgotten_and_overwritten(tmp_path: Path) -> None:
    first = SeenImages(tmp_path / "k", 0)
    for identity in (5, 6, 7):
        first.learned(identity)
    first.write()
    second = SeenImages(tmp_path / "k", 2)
    assert [second(identity) for identity in (5, 6, 7)] == [False, False, True]
    second.learned(9)
    assert second.write() == 3
    assert np.fromfile(tmp_path / "k", dtype=np.uint64).tolist() == [5, 6, 9]


def test_what_the_checkpoint_does_not_count_is_cut_off_even_where_less_takes_its_place(tmp_path: Path) -> None:
    first = SeenImages(tmp_path / "k", 0)
    for identity in (5, 6, 7):
        first.learned(identity)
    first.write()
    second = SeenImages(tmp_path / "k", 1)
    second.learned(9)
    assert second.write() == 2
    assert np.fromfile(tmp_path / "k", dtype=np.uint64).tolist() == [5, 9]


def test_every_identity_is_written_once_however_often_it_is_written(tmp_path: Path) -> None:
    seen = SeenImages(tmp_path / "k", 0)
    for identity in (5, 6, 7):
        seen.learned(identity)
        assert seen.write() == identity - 4
    assert seen.write() == 3
    assert np.fromfile(tmp_path / "k", dtype=np.uint64).tolist() == [5, 6, 7]


def test_a_half_written_end_does_no_harm(tmp_path: Path) -> None:
    first = SeenImages(tmp_path / "k", 0)
    first.learned(1)
    first.write()
    with open(tmp_path / "k", "ab") as handle:
        handle.write(b"abc")  # a power cut
    second = SeenImages(tmp_path / "k", 1)
    second.learned(2)
    second.write()
    assert np.fromfile(tmp_path / "k", dtype=np.uint64).tolist() == [1, 2]


def test_a_list_shorter_than_the_checkpoint_counts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClimbError, match="names 0 learned images, the checkpoint counts 3"):
        SeenImages(tmp_path / "k", 3)


def test_asking_without_claiming_takes_no_note(tmp_path: Path) -> None:
    first = SeenImages(tmp_path / "k", 0)
    assert [first.is_new(3), first.is_new(3), first(3), first.is_new(3)] == [True, True, True, False]
    first.learned(3)
    first.write()
    assert not SeenImages(tmp_path / "k", 1).is_new(3)


def test_a_source_that_names_each_image_once_has_nothing_noted(tmp_path: Path) -> None:
    first = SeenImages(tmp_path / "k", 0)
    first.learned(4)
    first.write()
    seen = SeenImages(tmp_path / "k", 1, claims=False)
    assert [seen(3), seen.is_new(3), seen(3), seen(4)] == [True, True, True, False]
    seen.release(4)
    assert not seen(4)


def test_what_could_not_be_read_is_new_again_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_images, "MERGE_AT", 4)
    seen = SeenImages(tmp_path / "k", 0)
    for identity in range(6):  # four of them are in the sorted array, two are not
        seen(identity)
    for identity in (1, 5, 9):
        seen.release(identity)
    assert [seen.is_new(identity) for identity in (1, 2, 5, 9)] == [True, False, True, True]
    assert [seen(identity) for identity in (1, 1, 5, 5, 2)] == [True, False, True, False, False]


def test_a_flipped_bit_is_noticed_in_all_that_the_checkpoint_counts(tmp_path: Path) -> None:
    path, digests = tmp_path / "learned.u64", []
    first = SeenImages(path, 0)
    for identity in (5, 6, 7):
        first.learned(identity)
        first.write()
        digests.append(first.digest)
    assert not SeenImages(path, 2, digest=digests[1]).is_new(6)
    again = SeenImages(path, 2, digest=digests[1])
    again.learned(7)
    again.write()
    assert again.digest == digests[2]
    whole = path.read_bytes()
    for place in range(16):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(DamagedFile, match=r"learned\.u64 is damaged: .*restore the file, or start over"):
            SeenImages(path, 2, digest=digests[1])
