"""Networks of other libraries: weights from our generator, no dropping, and one row of features per image."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from climb.errors import InputError
from climb.nets.network import frozen

MODULE = "module:"
"""Start of the name of a backbone that is a module of the caller; its class follows."""
INNER = "model."
"""Where a wrapped network has the parameters of the model of another library."""


def module_name(module: nn.Module) -> str:
    """The setting ``backbone`` of a learner whose network was passed as an object."""
    return f"{MODULE}{type(module).__name__}"


def same_class(module: nn.Module, stored: str, file: Path) -> nn.Module:
    """The module, if the file was saved with one of its class."""
    if stored != module_name(module):
        raise InputError(f"{file} was saved with backbone '{stored}'; given is '{module_name(module)}'")
    return module


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Inside, torch's global CPU generator starts from a seed that ``generator`` (a CPU one) draws.

    Libraries draw their weights from it. Afterwards it is as before.
    """
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    # Only the global CPU generator is seeded and restored: torch.manual_seed would also reseed the accelerators.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        yield


def switch_off_dropping(model: nn.Module) -> None:
    """Set dropout and stochastic depth to zero.

    They draw from global generators, so runs could not be repeated or resumed exactly, and they add noise to the
    targets of an alignment.
    """
    for part in model.modules():
        if isinstance(part, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            part.p = 0.0
        # Libraries have classes of their own for stochastic depth, and models that drop without a layer.
        for rate in ("drop_prob", "drop_rate", "dropout", "attention_dropout", "dropout_prob"):
            if isinstance(getattr(part, rate, None), float):
                setattr(part, rate, 0.0)


def measured_shape(model: nn.Module, image_size: int) -> tuple[int, ...]:
    """Shape of the output for one image: what a model says of it is not always true."""
    with frozen(model):
        return tuple(model(torch.zeros(1, 3, image_size, image_size)).shape)


def inner_name(name: str) -> str:
    """The wrapped network's name of a parameter of its model."""
    return name if name.startswith(INNER) else INNER + name


class ModuleEncoder(nn.Module):
    """A module of the caller. Maps normalised images ``(n, 3, H, W)`` to features ``(n, feature_dim)``.

    Feature maps ``(n, f, H, W)`` are averaged over their places.
    """

    def __init__(self, model: nn.Module, image_size: int) -> None:
        super().__init__()
        self.model = model
        kind = type(model).__name__
        try:
            shape = measured_shape(model, image_size)
        except (AttributeError, RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            takes = f"it must take float images (n, 3, {image_size}, {image_size})"
            raise InputError(f"backbone {kind} cannot encode an image: {reason}; {takes}") from error
        if len(shape) not in (2, 4) or shape[0] != 1:
            wanted = "it must give features (n, f) or feature maps (n, f, H, W)"
            raise InputError(f"backbone {kind} gives {shape} for one image; {wanted}")
        self.feature_dim = shape[1]
        """Length of a feature vector."""

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.model(images)
        return features if features.ndim == 2 else features.mean(dim=(2, 3))
