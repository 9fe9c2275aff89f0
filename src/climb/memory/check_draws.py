"""What a draw must look like: images that were given, each under an id of its own, and the tensors of the contract."""

from __future__ import annotations

import torch

from climb.memory.check_traffic import Traffic, pixels_of
from climb.memory.contract import Memory, ReplayBatch
from climb.promise import promise


def check_draw(batch: ReplayBatch, n: int, traffic: Traffic, content: dict[int, bytes]) -> list[bytes]:
    """The ``n`` images drawn, as bytes. ``content`` is the record of what each id has named so far."""
    promise(isinstance(batch, ReplayBatch), f"sample gave {type(batch).__name__}; it must return a ReplayBatch or None")
    for name in ("images", "ids"):
        given = getattr(batch, name)
        promise(isinstance(given, torch.Tensor), f"sampled {name} are {type(given).__name__}; they must be a tensor")
    shape = (n, *traffic.image_shape)
    promise(batch.images.dtype == torch.uint8, f"sampled images are {batch.images.dtype}, not torch.uint8")
    promise(tuple(batch.images.shape) == shape, f"sampled {tuple(batch.images.shape)}, not {shape}")
    promise(batch.ids.dtype == torch.int64, f"ids are {batch.ids.dtype}, not torch.int64")
    promise(batch.ids.device.type == "cpu", f"ids are on {batch.ids.device}, not on the CPU")
    promise(tuple(batch.ids.shape) == (n,), f"ids have shape {tuple(batch.ids.shape)}, not ({n},)")
    if batch.embeddings is not None:
        _check_embeddings(batch.embeddings, n, traffic, batch.images.device)
    ids = batch.ids.tolist()
    promise(len(set(ids)) == n, f"sample({n}) gave an id twice: {sorted(ids)}")
    images = pixels_of(batch.images)
    promise(len(set(images)) == n, f"sample({n}) gave an image twice, under two ids: it is stored twice")
    for name, image in zip(ids, images, strict=True):
        promise(image in traffic.sent, f"the image with id {name} is not one that was inserted")
        promise(content.setdefault(name, image) == image, f"id {name} now names another image than before")
    return images


def draw_everything(
    memory: Memory, traffic: Traffic, content: dict[int, bytes]
) -> tuple[ReplayBatch | None, list[bytes]]:
    """All that is stored, and its images as bytes."""
    stored = len(memory)
    if not stored:
        return None, []
    batch = memory.sample(stored)
    if batch is None:
        raise AssertionError(f"sample({stored}) gave nothing with {stored} stored")
    return batch, check_draw(batch, stored, traffic, content)


def _check_embeddings(embeddings: torch.Tensor, n: int, traffic: Traffic, device: torch.device) -> None:
    shape, expected = tuple(embeddings.shape), (n, traffic.embedding_dim)
    promise(shape == expected, f"sampled embeddings have shape {shape}, not {expected}")
    promise(embeddings.dtype == torch.float32, f"sampled embeddings are {embeddings.dtype}, not torch.float32")
    promise(embeddings.device == device, f"sampled embeddings are on {embeddings.device}, the images on {device}")
    promise(not embeddings.requires_grad, "sampled embeddings require a gradient: what is stored must be detached")
