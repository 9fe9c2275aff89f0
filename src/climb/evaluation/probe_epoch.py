"""One epoch of the linear probe: softmax regression by Adam, in place, without autograd and without a host sync."""

from __future__ import annotations

import torch

from climb.precision import widest

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's defaults, with which the probe is defined."""


class ProbeEpoch:
    """The tensors of a linear probe in training, and the steps of one epoch over them.

    The addresses of all tensors and the number of steps never change, and `run` reads nothing from the host, so
    that a CUDA graph can hold a whole epoch. Between two runs the caller writes into ``order``, ``lr`` and
    ``parameters``.
    """

    def __init__(self, features: torch.Tensor, labels: torch.Tensor, *, classes: int, batch_size: int) -> None:
        """Room for a probe of ``classes`` classes on features (n, f), float32, and labels (n,), int64.

        Each epoch takes as many whole batches as there are; a set smaller than one batch is one batch.
        """
        rows, width = features.shape
        device = features.device
        exact = widest(device)
        self.features = features
        self.labels = labels
        self.batch_size = min(batch_size, rows)
        self.steps = rows // self.batch_size
        used = self.steps * self.batch_size

        self.order = torch.arange(used, device=device)
        """Rows of the epoch, in order (used,)."""
        self.lr = torch.zeros((), dtype=exact, device=device)
        self.parameters = torch.zeros(classes * (width + 1), device=device)
        """Weight, row by row, then bias: one vector, so that Adam is a few operations whatever the shapes."""
        self.weight, self.bias = self._split(self.parameters, classes, width)
        self.gradient = torch.zeros_like(self.parameters)
        self._weight_gradient, self._bias_gradient = self._split(self.gradient, classes, width)
        self.first_moment = torch.zeros_like(self.parameters)
        self.second_moment = torch.zeros_like(self.parameters)
        self.steps_taken = torch.zeros((), dtype=exact, device=device)

        self._step_numbers = torch.arange(1, self.steps + 1, dtype=exact, device=device)
        self._class_ids = torch.arange(classes, device=device)
        self._shuffled = torch.empty(used, width, device=device)
        self._shuffled_labels = torch.empty(used, dtype=torch.int64, device=device)
        self._logits = torch.empty(self.batch_size, classes, device=device)
        self._error = torch.empty_like(self._logits)
        self._target = torch.empty_like(self._logits)
        self._denominator = torch.empty_like(self.parameters)

    def start(self, generator: torch.Generator) -> None:
        """Initial weights as torch.nn.Linear draws them, from ``generator``; moments and counter at zero."""
        bound = self.weight.shape[1] ** -0.5
        self.weight.uniform_(-bound, bound, generator=generator)
        self.bias.uniform_(-bound, bound, generator=generator)
        for state in (self.first_moment, self.second_moment, self.steps_taken):
            state.zero_()

    @torch.no_grad()
    def run(self) -> None:
        """Train through the rows in ``order``, one step per batch."""
        torch.index_select(self.features, 0, self.order, out=self._shuffled)
        torch.index_select(self.labels, 0, self.order, out=self._shuffled_labels)
        slopes, offsets = self._adam_scales()
        for step in range(self.steps):
            batch = slice(step * self.batch_size, (step + 1) * self.batch_size)
            self._backward(self._shuffled[batch], self._shuffled_labels[batch])
            self._adam(slopes, offsets, step)
        self.steps_taken.add_(self.steps)

    def _backward(self, rows: torch.Tensor, labels: torch.Tensor) -> None:
        """The gradient of the mean cross-entropy over rows (b, f): (softmax - one-hot) times the inputs."""
        torch.addmm(self.bias, rows, self.weight.T, out=self._logits)
        torch.softmax(self._logits, 1, out=self._error)
        torch.eq(labels.unsqueeze(1), self._class_ids, out=self._target)
        self._error.sub_(self._target).div_(len(rows))
        torch.mm(self._error.T, rows, out=self._weight_gradient)
        torch.sum(self._error, 0, out=self._bias_gradient)

    def _adam_scales(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Adam's bias corrections for all steps of the epoch at once: slopes and offsets, each (steps,).

        A step subtracts lr / c1 * m / (sqrt(v) / c2 + eps), which is m / (slope * sqrt(v) + offset). The
        corrections are float64 where the device has it: 1 - 0.999 loses four digits in float32.
        """
        step = self.steps_taken + self._step_numbers
        step_size = self.lr / (1 - BETA_1**step)
        slope = 1 / (step_size * (1 - BETA_2**step).sqrt())
        return slope.float(), (EPSILON / step_size).float()

    def _adam(self, slopes: torch.Tensor, offsets: torch.Tensor, step: int) -> None:
        self.first_moment.lerp_(self.gradient, 1 - BETA_1)
        self.second_moment.mul_(BETA_2).addcmul_(self.gradient, self.gradient, value=1 - BETA_2)
        torch.sqrt(self.second_moment, out=self._denominator)
        self._denominator.mul_(slopes[step]).add_(offsets[step])
        self.parameters.addcdiv_(self.first_moment, self._denominator, value=-1)

    @staticmethod
    def _split(vector: torch.Tensor, classes: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of a parameter vector as weight (classes, width) and bias (classes,)."""
        return vector[: classes * width].view(classes, width), vector[classes * width :]
