"""What a number was measured with."""

from __future__ import annotations

import platform

import numpy
import torch

from climb._version import __version__


def versions(device: torch.device) -> dict[str, str]:
    """Versions of the libraries that decide a result, and the device's name."""
    found = {
        "climb": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "device": str(device),
        "device_name": device_name(device),
    }
    if device.type == "cuda" and torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def device_name(device: torch.device) -> str:
    """What people call the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads" if device.type == "cpu" else device.type
