"""SCALE's pseudo-supervised loss: scalar by scalar; anchors, positives and negatives."""

from __future__ import annotations

import math

import pytest
import torch

from climb.errors import InputError
from climb.nets import Encoded
from climb.objectives.scale import Scale
from climb.objectives.simclr import SimCLR


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def encode(features: torch.Tensor, embeddings: torch.Tensor, replay: list[int]) -> Encoded:
    n = features.shape[1]
    return Encoded(
        views=torch.zeros(2, n, 3, 8, 8),
        features=features,
        embeddings=embeddings,
        stream_rows=torch.tensor([row for row in range(n) if row not in replay], dtype=torch.int64),
        replay_rows=torch.tensor(replay, dtype=torch.int64),
    )


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def similar_by_hand(features: torch.Tensor, share: float) -> list[list[bool]]:
    h = features.tolist()
    n = features.shape[1]
    similarity = [[0.0] * n for _ in range(n)]
    for v in range(2):
        for w in range(2):
            e = [
                [math.exp(-(2 - 2 * cosine(h[v][i], h[w][j])) / 0.1) if i != j else 0.0 for j in range(n)]
                for i in range(n)
            ]
            for i in range(n):
                for j in range(n):
                    rows, columns = sum(e[i]), sum(e[k][j] for k in range(n))
                    similarity[i][j] += (e[i][j] / rows + e[i][j] / columns) / 2 / 4
    pairs = [similarity[i][j] for i in range(n) for j in range(n) if i != j]
    mean = sum(pairs) / len(pairs)
    threshold = mean + share * (max(pairs) - mean)
    return [[i != j and similarity[i][j] > threshold for j in range(n)] for i in range(n)]


def loss_by_hand(encoded: Encoded, share: float, temperature: float) -> float:
    alike = similar_by_hand(encoded.features, share)
    stream = encoded.stream_rows.tolist()
    z = encoded.embeddings.tolist()
    n = len(z[0])
    total = 0.0
    for v in range(2):
        for i in stream:
            others = [(w, j) for w in range(2) for j in range(n) if (w, j) != (v, i)]
            denominator = sum(math.exp(cosine(z[v][i], z[w][j]) / temperature) for w, j in others)
            positives = [(w, j) for w, j in others if j == i or (j in stream and alike[i][j])]
            terms = [cosine(z[v][i], z[w][j]) / temperature - math.log(denominator) for w, j in positives]
            total -= sum(terms) / len(terms)
    return temperature / 0.07 * total / (2 * len(stream))


@pytest.mark.parametrize(("temperature", "share"), [(0.1, 0.1), (0.5, 0.3), (0.1, 0.0)])
@pytest.mark.parametrize("replay", [[], [5, 0, 3]])
def test_equals_the_definition_on_a_small_batch(temperature: float, share: float, replay: list[int]) -> None:
    encoded = encode(random(2, 7, 3), random(2, 7, 4, seed=1), replay)
    loss = Scale(temperature, share)(encoded)
    assert loss.item() == pytest.approx(loss_by_hand(encoded, share, temperature), rel=1e-9)


def test_similar_rows_follow_the_definition_and_are_neither_none_nor_all() -> None:
    features = random(2, 7, 3)
    found = Scale(positives=0.1).similar_rows(features)
    assert found.tolist() == similar_by_hand(features, 0.1)
    assert 0 < int(found.sum()) < 7 * 6


def grouped() -> torch.Tensor:
    """Features of rows 0, 1 (one kind), 2, 3 (another) and 4 (a third); both views the same."""
    kinds = torch.eye(3, dtype=torch.float64)
    return kinds[[0, 0, 1, 1, 2]].expand(2, 5, 3)


def test_similar_images_are_positives_of_each_other() -> None:
    found = Scale().similar_rows(grouped())
    assert found.nonzero().tolist() == [[0, 1], [1, 0], [2, 3], [3, 2]]


def test_a_worked_example() -> None:
    # Stream rows 0, 1 are alike; row 2 is replayed. Embeddings: 0 and 1 at (1, 0), 2 at (0, 1), both views, T = 1.
    # Each anchor has three positives of cosine 1 and two negatives of cosine 0: log(3e + 2) - 1, times 1 / 0.07.
    kinds = torch.eye(2, dtype=torch.float64)[[0, 0, 1]].expand(2, 3, 2)
    loss = Scale(temperature=1.0)(encode(kinds, kinds, [2]))
    assert loss.item() == pytest.approx((math.log(3 * math.e + 2) - 1) / 0.07, rel=1e-9)


def test_replayed_images_are_never_positives() -> None:
    """Rows 2 and 3 are as alike as 0 and 1, but come from the memory; so does 1: 0 has only its other view."""
    embeddings = random(2, 5, 4)
    alone = Scale(0.5, 1.0)  # no similarity lies above the maximum: nothing but the other view is a positive
    for replay, equal in (([1, 2, 3], True), ([2, 3], False)):
        encoded = encode(grouped(), embeddings, replay)
        assert (Scale(0.5)(encoded).item() == pytest.approx(alone(encoded).item())) is equal


def test_without_pseudo_positives_and_replay_it_is_simclr_scaled() -> None:
    features, embeddings = random(2, 6, 3), random(2, 6, 4, seed=1)
    loss = Scale(temperature=0.2, positives=1.0)(encode(features, embeddings, []))
    torch.testing.assert_close(loss, SimCLR(0.2).loss(embeddings[0], embeddings[1]) * 0.2 / 0.07)


@pytest.mark.parametrize("replay", [[0, 1, 2, 3], [4, 5, 6, 7], [6, 1, 4, 3]])
def test_anchors_are_the_stream_rows_wherever_they_lie(replay: list[int]) -> None:
    """Replayed embeddings are pushed away as negatives, but nothing asks their own views to agree."""
    features, embeddings = random(2, 8, 3), random(2, 8, 4, seed=1)
    stream = [row for row in range(8) if row not in replay]
    objective = Scale(0.5)
    value = objective(encode(features, embeddings, replay)).item()

    # Swapping views of replayed rows among themselves leaves the set of negatives as it is.
    swapped = embeddings.clone()
    swapped[0, replay] = embeddings[0, replay[::-1]]
    assert objective(encode(features, swapped, replay)).item() == pytest.approx(value)
    swapped = embeddings.clone()
    swapped[0, stream] = embeddings[0, stream[::-1]]
    assert objective(encode(features, swapped, replay)).item() != pytest.approx(value, rel=1e-3)

    order = [*stream, *replay]
    moved = encode(features[:, order], embeddings[:, order], [4, 5, 6, 7])
    assert objective(moved).item() == pytest.approx(value)


def test_similarity_does_not_depend_on_the_length_of_features() -> None:
    features = random(2, 7, 3)
    lengths = torch.linspace(0.1, 30, 7, dtype=torch.float64).view(1, 7, 1)
    assert torch.equal(Scale().similar_rows(features), Scale().similar_rows(features * lengths))


def test_gradient_agrees_with_finite_differences() -> None:
    features = random(2, 5, 3)

    def loss(embeddings: torch.Tensor) -> torch.Tensor:
        return Scale(0.5)(encode(features, embeddings, [1, 4]))

    assert torch.autograd.gradcheck(loss, random(2, 5, 4, seed=1).requires_grad_())


def test_no_gradient_passes_through_the_choice_of_positives() -> None:
    features, embeddings = random(2, 5, 3).requires_grad_(), random(2, 5, 4, seed=1).requires_grad_()
    Scale()(encode(features, embeddings, [1])).backward()
    assert features.grad is None
    assert embeddings.grad is not None


@pytest.mark.parametrize(("rows", "replay"), [(1, []), (2, []), (2, [0])])
def test_tiny_batches_have_a_finite_loss(rows: int, replay: list[int]) -> None:
    embeddings = random(2, rows, 4, seed=1).requires_grad_()
    loss = Scale()(encode(random(2, rows, 3), embeddings, replay))
    loss.backward()
    assert embeddings.grad is not None
    assert torch.isfinite(loss)
    assert torch.isfinite(embeddings.grad).all()


def test_collapsed_features_have_a_finite_loss() -> None:
    embeddings = torch.ones(2, 6, 4, requires_grad=True)
    loss = Scale()(encode(torch.zeros(2, 6, 3), embeddings, [0, 1]))
    loss.backward()
    # All cosines are 1: each positive has probability 1 / 11, however many there are.
    assert loss.item() == pytest.approx(0.1 / 0.07 * math.log(11), rel=1e-5)


def test_the_defaults_are_the_originals() -> None:
    encoded = encode(random(2, 7, 3), random(2, 7, 4, seed=1), [5, 0])
    assert Scale()(encoded).item() == pytest.approx(loss_by_hand(encoded, 0.1, 0.1), rel=1e-9)
    assert Scale()(encoded).item() != pytest.approx(loss_by_hand(encoded, 0.3, 0.1), rel=1e-3)


@pytest.mark.parametrize("temperature", [-1.0, 0.0, float("nan")])
def test_an_impossible_temperature_is_rejected(temperature: float) -> None:
    with pytest.raises(InputError, match=rf"temperature is {temperature}; allowed: above 0"):
        Scale(temperature=temperature)


def test_bad_input_is_rejected() -> None:
    with pytest.raises(InputError, match=r"positives is 1\.5; allowed: 0"):
        Scale(positives=1.5)
    with pytest.raises(InputError, match="SCALE needs stream rows"):
        Scale()(encode(random(2, 3, 3), random(2, 3, 4), [0, 1, 2]))


def test_depends_on_no_value_that_the_host_would_have_to_wait_for() -> None:
    """Tensors without values raise wherever Python asks for one."""
    encoded = Encoded(
        views=torch.empty(2, 5, 3, 8, 8, device="meta"),
        features=torch.empty(2, 5, 3, device="meta"),
        embeddings=torch.empty(2, 5, 4, device="meta", requires_grad=True),
        stream_rows=torch.empty(3, dtype=torch.int64, device="meta"),
        replay_rows=torch.empty(2, dtype=torch.int64, device="meta"),
    )
    Scale()(encoded).backward()
