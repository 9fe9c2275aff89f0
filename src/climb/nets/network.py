"""An encoder and its projector, as one network."""

from __future__ import annotations

from torch import Tensor, nn


class Network(nn.Module):
    """Normalised images ``(n, 3, H, W)`` to the encoder's features and the projector's embeddings."""

    feature_dim: int
    """Length of a feature vector, the encoder's output."""

    embedding_dim: int
    """Length of an embedding, the projector's output."""

    bottleneck_dim: int
    """The hidden width that suits an aligner or predictor of these embeddings."""

    def __init__(
        self, encoder: nn.Module, projector: nn.Module, *, feature_dim: int, embedding_dim: int, bottleneck_dim: int
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector
        self.feature_dim = feature_dim
        self.embedding_dim = embedding_dim
        self.bottleneck_dim = bottleneck_dim

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(images)
        return features, self.projector(features)
