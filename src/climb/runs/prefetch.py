"""The images of each mini-batch, read before they are needed where they do not live on the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from climb.streams import Batch

AHEAD = 4
"""Mini-batches read ahead of the one that is trained on: a few milliseconds of disk for each."""


def with_images(
    batches: Iterable[Batch], images: torch.Tensor, device: torch.device
) -> Iterator[tuple[Batch, torch.Tensor]]:
    """Each mini-batch with its uint8 images (n, 3, H, W), on ``device``, in order.

    ``images`` (m, 3, H, W) is the training split. On the device, it is indexed there; elsewhere it is read ahead.
    """
    if images.device.type != device.type:
        return read_ahead(batches, images, device)
    return ((batch, images[batch.indices.to(images.device, non_blocking=True)]) for batch in batches)


def read_ahead(
    batches: Iterable[Batch], images: torch.Tensor, device: torch.device
) -> Iterator[tuple[Batch, torch.Tensor]]:
    """The same by a thread, for images on the host: perhaps on disk, mapped into memory, so that no step waits for it.

    They are read into pinned memory where the device is a GPU, from which copies do not wait either.
    """

    def read(indices: torch.Tensor) -> torch.Tensor:
        read = images[indices]
        return read.pin_memory() if device.type == "cuda" else read

    waiting: deque[tuple[Batch, Future[torch.Tensor]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="climb-prefetch") as reader:
        try:
            for batch in batches:
                waiting.append((batch, reader.submit(read, batch.indices)))
                if len(waiting) > AHEAD:
                    first, future = waiting.popleft()
                    yield first, future.result().to(device, non_blocking=True)
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result().to(device, non_blocking=True)
        finally:
            for _, future in waiting:
                future.cancel()
