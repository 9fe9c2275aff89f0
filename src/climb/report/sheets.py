"""Contact sheets: many small images in one lossy WebP picture, as text that a page can hold."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

QUALITIES = (80, 60, 40, 25, 12, 4)
BUDGET = 2_400_000  # bytes of all sheets of a page together; text makes it a third more

Pixels = NDArray[np.uint8]


def encoded_sheets(
    groups: Sequence[torch.Tensor], *, columns: Sequence[int], budget: int = BUDGET
) -> list[tuple[str, int, int]]:
    """Each group of uint8 images (n, 3, H, W) as (data URI, width, height), at the best quality within ``budget``."""
    pictures = [
        Image.fromarray(contact_sheet(images, columns=wide)) for images, wide in zip(groups, columns, strict=True)
    ]
    for quality in QUALITIES:
        files = [webp(picture, quality) for picture in pictures]
        if sum(map(len, files)) <= budget:
            break
    return [(data_uri(file), *picture.size) for file, picture in zip(files, pictures, strict=True)]


def contact_sheet(images: torch.Tensor, *, columns: int) -> Pixels:
    """uint8 images (n, 3, H, W) as one picture (height, width, 4), row by row; the rest of the last row is clear.

    >>> contact_sheet(torch.zeros(5, 3, 8, 8, dtype=torch.uint8), columns=3).shape
    (16, 24, 4)
    """
    n, _, height, width = images.shape
    columns = min(columns, n)
    rows = -(-n // columns)
    tiles = np.zeros((rows * columns, height, width, 4), dtype=np.uint8)
    tiles[:n, :, :, :3] = images.permute(0, 2, 3, 1).cpu().numpy()
    tiles[:n, :, :, 3] = 255
    together = tiles.reshape(rows, columns, height, width, 4).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(together.reshape(rows * height, columns * width, 4))


def webp(picture: Image.Image, quality: int) -> bytes:
    """A picture as a lossy WebP file; clear places stay clear."""
    file = io.BytesIO()
    picture.save(file, format="WEBP", quality=quality, method=4)
    return file.getvalue()


def data_uri(file: bytes) -> str:
    """A WebP file as an address that holds it."""
    return f"data:image/webp;base64,{base64.b64encode(file).decode('ascii')}"
