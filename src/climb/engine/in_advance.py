"""For many steps of few images: their views, and what a teacher says of them, all at once before the first step.

With ten images a forward leaves much of a GPU idle, and forty of them take forty times as long. Where neither images
nor teacher change from one pass over a mini-batch to the next, the teacher need not be asked in each.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from math import ceil

import torch
from torch import Tensor, nn

from climb.augment import Augment
from climb.engine.compiled import compiled
from climb.engine.groups import ByGroups
from climb.engine.numerics import Precision, autocast, numerics

MOST_PIXELS = 2**20
"""Pixels of views that a teacher is asked about at a time: 1024 views of 32 pixels a side, which fill a GPU and keep
less memory than a step of other methods, or about one pass over ten images of 224. (The views of all passes are there
at once: 10 MB of float32 at 32 pixels, 494 MB at 224.)"""


class InAdvance:
    """The views of several passes over the same images, and what a teacher that stands still meanwhile says of them.

    The same as in each pass by itself: the same random numbers in the same order, a teacher that normalises by the
    views of one pass, and running statistics that move pass by pass.
    """

    def __init__(
        self,
        augment: Augment,
        teacher: nn.Module,
        *,
        generator: torch.Generator,
        precision: Precision,
        device: torch.device,
        tuned: bool = False,
    ) -> None:
        self._augment = augment
        self._generator = generator
        self._precision = precision
        self._device = device
        self._tuned = tuned
        self._teacher = ByGroups(teacher)
        self._views: Callable[[Tensor, Tensor], Tensor] = self._eager_views
        self._ask: Callable[[Tensor], Tensor] = self._eager_ask

    def __call__(self, images: Tensor, passes: Tensor) -> tuple[Tensor, Tensor]:
        """Views (p, 2, n, 3, H, W) of uint8 images (n, 3, H, W), and embeddings (p, 2, n, d).

        Of ``passes`` (p,) only the length counts: a CUDA graph is known by the shapes of its inputs.
        """
        numbers = torch.stack([self._augment.numbers(images, self._generator) for _ in range(len(passes))])
        views = self._views(images, numbers)
        by_pass = views.flatten(1, 2)
        pixels = by_pass[0, :, 0].numel()  # of one pass, the least that can be asked about
        parts = by_pass.tensor_split(ceil(len(passes) / max(MOST_PIXELS // pixels, 1)))
        with numerics(self._device, self._precision, tuned=self._tuned):
            said = torch.cat([self._ask(part) for part in parts])
        return views, said.view(*views.shape[:3], said.shape[2])

    def _eager_views(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Given the numbers of each pass (p, k, 2 n): those of view one, then those of view two."""
        passes, n = len(numbers), len(images)
        by_view = numbers.view(passes, -1, 2, n).permute(1, 2, 0, 3).flatten(1)
        views = self._augment.views(images.repeat(passes, 1, 1, 1), by_view)
        return views.view(2, passes, *images.shape).transpose(0, 1).contiguous()

    def _eager_ask(self, views: Tensor) -> Tensor:
        """(p, 2 n, d): what the teacher says of views (p, 2 n, 3, H, W)."""
        with torch.no_grad(), autocast(self._device, self._precision):
            _, embeddings = self._teacher(views)
        return torch.as_tensor(embeddings)

    def compiled(self) -> InAdvance:
        """The same by torch.compile."""
        twin = copy.copy(self)
        twin._views = compiled(self._eager_views)
        twin._ask = compiled(self._eager_ask)
        return twin
