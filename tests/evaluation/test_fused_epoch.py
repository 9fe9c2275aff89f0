"""The fused epoch is the plain one, up to rounding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from climb.evaluation.probe_epoch import ProbeEpoch


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "width", "classes", "batch"), [(70, 16, 5, 16), (3000, 512, 100, 256), (900, 33, 1000, 50)]
)
def test_a_fused_epoch_is_a_plain_one(rows: int, width: int, classes: int, batch: int) -> None:
    pytest.importorskip("triton")
    from climb.evaluation.fused_epoch import FusedEpoch

    device = torch.device("cuda")
    generator = torch.Generator(device).manual_seed(0)
    features = F.normalize(torch.randn(rows, width, generator=generator, device=device))
    labels = torch.randint(0, classes, (rows,), generator=generator, device=device)
    epochs = [kind(features, labels, classes=classes, batch_size=batch) for kind in (ProbeEpoch, FusedEpoch)]
    for epoch in epochs:
        epoch.start(torch.Generator(device).manual_seed(1))
        epoch.lr.fill_(0.05)
    for _ in range(3):
        order = torch.randperm(rows, generator=generator, device=device)
        for epoch in epochs:
            epoch.order.copy_(order[: len(epoch.order)])
            epoch.run()
    plain, fused = epochs
    torch.testing.assert_close(fused.parameters, plain.parameters, atol=1e-3, rtol=0)
    apart = torch.linalg.vector_norm(fused.second_moment - plain.second_moment)
    assert apart < 0.01 * torch.linalg.vector_norm(plain.second_moment)  # each is tiny
