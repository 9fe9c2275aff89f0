"""The tensors of a checkpoint under the names of an encoder. Whatever does not fit is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from climb.errors import InputError, first_few

CLASSIFIERS = ("fc.", "_fc.", "classifier.", "head.", "head_dist.", "heads.", "fc_norm.")
"""Where torchvision and timm have the classifier, which is dropped."""
COUNTER = "num_batches_tracked"
"""Number of batches of a batch norm. Old checkpoints lack it, and nothing depends on it."""
NAMED = 3  # names in a message


def fitted(
    state: Mapping[str, Tensor],
    encoder: nn.Module,
    *,
    source: str,
    network: str = "this network",
    rename: Callable[[str], str] | None = None,
    adapt: Callable[[Mapping[str, Tensor], nn.Module], Mapping[str, Tensor]] | None = None,
) -> dict[str, Tensor]:
    """The weights of ``encoder`` among the tensors of a checkpoint, complete and in the encoder's order.

    A prefix of all names, such as "module." or "backbone.", is removed; tensors without it belong to other parts, such
    as a projector. The classifier is dropped.

    Args:
        state: tensors by name.
        encoder: the network that they are for.
        source: the checkpoint in messages.
        network: the encoder in messages.
        rename: see `Backbone`.
        adapt: see `Backbone`.

    >>> layer = nn.Linear(2, 1)
    >>> state = {"module.weight": torch.ones(1, 2), "module.bias": torch.zeros(1), "module.fc.bias": torch.zeros(9)}
    >>> list(fitted(state, layer, source="a file"))
    ['weight', 'bias']

    Raises:
        InputError: names the tensors that are missing, unexpected or of another shape.
    """
    expected = {name: value for name, value in encoder.state_dict().items() if isinstance(value, Tensor)}
    prefix = _prefix(state, expected, rename or str, source)
    found = {}
    for name, value in state.items():
        own = (rename or str)(name.removeprefix(prefix))
        classifier = name.removeprefix(prefix).startswith(CLASSIFIERS) and own not in expected
        if name.startswith(prefix) and not classifier:
            found[own] = value
    if adapt is not None:
        found = dict(adapt(found, encoder))
    missing = [name for name in expected if name not in found and not name.endswith(COUNTER)]
    unexpected = [name for name in found if name not in expected]
    misshapen = [
        f"{name} is {tuple(found[name].shape)}, expected {tuple(value.shape)}"
        for name, value in expected.items()
        if name in found and found[name].shape != value.shape
    ]
    faults = [*_said("missing", missing), *_said("unexpected", unexpected), *_said("of another shape", misshapen)]
    if faults:
        other = len(missing) + len(misshapen) > len(expected) // 2
        verdict = f"holds weights of another architecture than {network}" if other else f"does not fit {network}"
        raise InputError(f"{source} {verdict}: {'; '.join(faults)}")
    return {
        name: found[name].detach().to(value.dtype) if name in found else torch.zeros_like(value)
        for name, value in expected.items()
    }


def _prefix(state: Mapping[str, Tensor], expected: Iterable[str], rename: Callable[[str], str], source: str) -> str:
    """The prefix whose removal gives most of the expected names."""
    wanted = {name for name in expected if not name.endswith(COUNTER)}
    matches: Counter[str] = Counter()
    for name in state:
        words = name.split(".")
        for start in range(len(words)):
            if rename(".".join(words[start:])) in wanted:
                matches[".".join([*words[:start], ""]) if start else ""] += 1
    best = max(matches.values(), default=0)
    prefixes = [prefix for prefix, count in matches.items() if count == best]
    if "" in prefixes or not prefixes:
        return ""
    if len(prefixes) > 1 and best > len(wanted) // 2:
        raise InputError(
            f"{source} holds several encoders: {first_few(repr(prefix) for prefix in prefixes)}; save one of them alone"
        )
    return prefixes[0]


def _said(fault: str, names: list[str]) -> list[str]:
    return [f"{len(names)} {fault} ({first_few(names, limit=NAMED)})"] if names else []
