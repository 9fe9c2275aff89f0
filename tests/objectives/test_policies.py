"""The views that objectives come with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from climb.augment.policy import Policy, common, simclr, simsiam


@pytest.mark.parametrize(
    ("policy", "jitter"), [(simsiam, (0.4, 0.4, 0.4, 0.1)), (common, (0.4, 0.4, 0.2, 0.1))], ids=["simsiam", "common"]
)
@pytest.mark.parametrize("image_size", [32, 64, 128, 224])
def test_only_the_strength_of_the_jitter_differs_from_simclr(
    policy: Callable[[int], Policy], jitter: tuple[float, ...], image_size: int
) -> None:
    ours, simclrs = vars(policy(image_size)), vars(simclr(image_size))
    strengths = ("brightness", "contrast", "saturation", "hue")
    assert tuple(ours[name] for name in strengths) == jitter
    assert {name: ours[name] for name in ours.keys() - strengths} == {
        name: simclrs[name] for name in simclrs.keys() - strengths
    }
