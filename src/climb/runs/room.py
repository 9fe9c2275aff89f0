"""Whether a dataset has room on the device."""

from __future__ import annotations

import torch

from climb.datasets import Dataset


def fits(data: Dataset, device: torch.device) -> bool:
    """Whether all images fit on the device beside the training: at most half of what is free."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return (data.train.images.nbytes + data.test.images.nbytes) * 2 < free
