"""Selection: one image for each part of the data, typical, no near-duplicates, none where there is a label."""

from __future__ import annotations

import pytest
import torch

from climb.errors import InputError
from climb.novelty import find_neighbours, select_diverse, unit_features

GROUPS = 6


def grouped(each: int = 30, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.eye(GROUPS).repeat_interleave(each, dim=0)
    return centres + 0.1 * torch.rand(GROUPS * each, GROUPS, generator=generator)


def test_every_group_gets_one_and_it_is_typical() -> None:
    features = grouped()
    chosen = select_diverse(features, GROUPS)
    assert sorted(row // 30 for row in chosen.rows) == list(range(GROUPS))
    assert chosen.cluster_sizes == [30] * GROUPS
    units = unit_features(features)
    for row in chosen.rows:
        own = units[row // 30 * 30 : row // 30 * 30 + 30]
        density = find_neighbours(own, own, 20, themselves=True).distances.mean(dim=1)
        assert density[row % 30] == density.min()


def test_labelled_groups_come_last() -> None:
    features = grouped()
    labelled = features[[0, 1, 31, 62]]
    chosen = select_diverse(features, 3, labelled=labelled)
    assert {row // 30 for row in chosen.rows} <= {3, 4, 5}


def test_near_duplicates_are_left_out() -> None:
    features = grouped(each=3).repeat(4, 1)  # every image four times
    chosen = select_diverse(features, 18, apart=1e-4)
    assert len({row % 18 for row in chosen.rows}) == 18
    with pytest.raises(InputError, match="only 18 of 72 images are not near-duplicates of others; give --n 18 or less"):
        select_diverse(features, 19, apart=1e-4)
    labelled = features[:6]
    assert not {row % 18 for row in select_diverse(features, 12, labelled=labelled, apart=1e-4).rows} & set(range(6))


def test_the_same_seed_selects_the_same_and_all_can_be_selected() -> None:
    features = grouped()
    assert select_diverse(features, 9, seed=3).rows == select_diverse(features, 9, seed=3).rows
    assert sorted(select_diverse(features, len(features)).rows) == list(range(len(features)))
    equal = torch.ones(8, 4)
    assert len(set(select_diverse(equal, 8).rows)) == 8
    with pytest.raises(InputError, match="n is 9; there are 8 images"):
        select_diverse(equal, 9)
