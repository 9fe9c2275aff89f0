"""The trained network, its outputs for a batch, and its weights: random ones, and what is published."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from climb.parallel import Share

Channels = tuple[float, float, float]
"""A number for each colour channel."""
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pretrained:
    """Published weights of a network, and the images that they were trained on."""

    mean: Channels = IMAGENET_MEAN
    """Mean of the channels, on the 0..1 scale."""
    std: Channels = IMAGENET_STD
    """Standard deviation of the channels."""
    image_size: int = 224
    """Side of the images in pixels."""
    state: Callable[[int], Mapping[str, Tensor]] | None = None
    """``state(image_size)`` returns the tensors by name, for ``--weights pretrained``. None if there are files only."""


class Network(nn.Module):
    """An encoder and its projector. Maps normalised images ``(n, 3, H, W)`` to features and embeddings."""

    def __init__(
        self, encoder: nn.Module, projector: nn.Module, *, feature_dim: int, embedding_dim: int, bottleneck_dim: int
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector
        self.feature_dim = feature_dim
        """Length of a feature vector, the output of the encoder."""
        self.embedding_dim = embedding_dim
        """Length of an embedding, the output of the projector."""
        self.bottleneck_dim = bottleneck_dim
        """Hidden width for an aligner or a predictor of these embeddings."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(images)
        return features, self.projector(features)


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The network's outputs for two views of a training batch of n images. The order of the rows has no meaning."""

    views: torch.Tensor
    """float (2, n, 3, H, W): the augmented images. If processes share the batch, only the rows of this process."""
    features: torch.Tensor
    """(2, n, f): the encoder's output, float32."""
    embeddings: torch.Tensor
    """(2, n, d): the projector's output, float32."""
    stream_rows: torch.Tensor
    """int64 (s,): rows that come from the stream."""
    replay_rows: torch.Tensor
    """int64 (r,): rows that come from the memory; empty before replay starts."""
    targets: torch.Tensor | None = None
    """float32 (r, d): embeddings that the memory stores of the replay rows; None if it stores none."""
    share: Share | None = None
    """Rows of this process, if processes share the batch. All fields but ``views`` hold all rows in every process."""
    bf16: bool = False
    """Whether networks compute in bf16. Losses are always float32."""

    def embedded_by(
        self, network: nn.Module, rows: Literal["all", "replay"] = "all", *, views: int = 2
    ) -> torch.Tensor:
        """Embeddings (views, m, d) of the first ``views`` views of these rows by another network, without gradient.

        Reference networks must see images through this method. If processes share the batch, each encodes its own
        rows, and the results are gathered.
        """
        replay = self.replay_rows if self.share is None else self.share.own_replay
        seen = self.views[:views] if rows == "all" else self.views[:views].index_select(1, replay)
        # Autocast covers only this forward: the arithmetic of the caller, a loss, must stay float32.
        lower = torch.autocast(seen.device.type, dtype=torch.bfloat16) if self.bf16 else nullcontext()
        with torch.no_grad(), lower:
            _, flat = network(seen.flatten(0, 1))
        embeddings: torch.Tensor = flat.view(*seen.shape[:2], flat.shape[1])  # not -1: there may be no rows
        if self.share is None:
            return embeddings
        return self.share.of_all(embeddings) if rows == "all" else self.share.of_replay(embeddings)


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients inside the context. Afterwards every module has its former mode."""
    # Restored module by module: `network.train()` would also change modules that stay in evaluation mode on purpose.
    flags = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in flags:
            module.training = training


Built = TypeVar("Built", bound=nn.Module)


def fill(part: nn.Module, generator: torch.Generator) -> None:
    """Draw the weights of one layer.

    Convolutions start from He's normal (fan out), as in torchvision's residual networks. Linear layers start from the
    uniform +-1/sqrt(fan in), as in torch. Batch norms start from one and zero.
    """
    if isinstance(part, nn.Conv2d) and part.bias is None:
        nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu", generator=generator)
    elif isinstance(part, nn.Linear):
        bound = 1 / math.sqrt(part.in_features)
        nn.init.uniform_(part.weight, -bound, bound, generator=generator)
        if part.bias is not None:
            nn.init.uniform_(part.bias, -bound, bound, generator=generator)
    elif isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
        part.reset_parameters()
    elif any(True for _ in part.parameters(recurse=False)) or any(True for _ in part.buffers(recurse=False)):
        # Without an initialisation, the weights would be uninitialised memory.
        raise TypeError(f"no initialisation is defined for {part}")


def initialised(
    build: Callable[[], Built], generator: torch.Generator, *, fill: Callable[[nn.Module, torch.Generator], None] = fill
) -> Built:
    """Build a module on the CPU and draw its weights from ``generator``, a CPU one, by ``fill`` for each layer.

    The global generator is not used.

    >>> same = [initialised(lambda: nn.Linear(4, 2), torch.Generator().manual_seed(3)) for _ in range(2)]
    >>> torch.equal(same[0].weight, same[1].weight)
    True
    """
    with torch.device("meta"):  # without storage, so that constructors draw nothing
        module = build()
    module.to_empty(device="cpu")
    for part in module.modules():
        fill(part, generator)
    return module
