"""One epoch of the linear probe: softmax regression with Adam, in place, without autograd and host syncs."""

from __future__ import annotations

from collections.abc import Callable

import torch

from climb.precision import widest

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's defaults. They are part of the probe's definition."""


class ProbeEpoch:
    """The tensors of a linear probe in training, and the steps of one epoch.

    Addresses and the number of steps are constant, and `run` reads nothing from the host, so a CUDA graph can hold an
    epoch. Between two runs, write into ``order``, ``lr`` and ``parameters``.
    """

    def __init__(self, features: torch.Tensor, labels: torch.Tensor, *, classes: int, batch_size: int) -> None:
        """Allocate a probe of ``classes`` classes on float32 features (n, f) and int64 labels (n,).

        An epoch consists of the complete batches. A set smaller than one batch is one batch.
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
        """(used,): the rows of the epoch, in order."""
        self.lr = torch.zeros((), dtype=exact, device=device)
        self.parameters = torch.zeros(classes * (width + 1), device=device)
        """Weight, row by row, then bias: one vector, so that Adam needs only a few operations."""
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
        """Draw initial weights like torch.nn.Linear, from ``generator``. Reset moments and counter."""
        bound = self.weight.shape[1] ** -0.5
        self.weight.uniform_(-bound, bound, generator=generator)
        self.bias.uniform_(-bound, bound, generator=generator)
        for state in (self.first_moment, self.second_moment, self.steps_taken):
            state.zero_()

    @torch.no_grad()
    def run(self) -> None:
        """Train on the rows in ``order``, one step per batch."""
        torch.index_select(self.features, 0, self.order, out=self._shuffled)
        torch.index_select(self.labels, 0, self.order, out=self._shuffled_labels)
        slopes, offsets = self._adam_scales()
        for step in range(self.steps):
            batch = slice(step * self.batch_size, (step + 1) * self.batch_size)
            self._backward(self._shuffled[batch], self._shuffled_labels[batch])
            self._adam(slopes, offsets, step)
        self.steps_taken.add_(self.steps)

    def _backward(self, rows: torch.Tensor, labels: torch.Tensor) -> None:
        """Gradient of the mean cross-entropy over rows (b, f): (softmax - one-hot) times the inputs."""
        torch.addmm(self.bias, rows, self.weight.T, out=self._logits)
        torch.softmax(self._logits, 1, out=self._error)
        torch.eq(labels.unsqueeze(1), self._class_ids, out=self._target)
        self._error.sub_(self._target).div_(len(rows))
        torch.mm(self._error.T, rows, out=self._weight_gradient)
        torch.sum(self._error, 0, out=self._bias_gradient)

    def _adam_scales(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Adam's bias corrections for all steps of the epoch: slopes and offsets, each (steps,).

        A step subtracts lr / c1 * m / (sqrt(v) / c2 + eps), which equals m / (slope * sqrt(v) + offset).
        """
        # In float64 if the device supports it: 1 - 0.999 loses four digits in float32.
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


def captured_epoch(run: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """A function that replays ``run`` from a CUDA graph, one launch in place of thousands. Elsewhere ``run`` itself.

    ``run`` must read and write only device tensors with fixed addresses. It runs once as the warm-up of the capture, so
    set the tensors that it writes afterwards.

    >>> counter = torch.zeros(())
    >>> def count():
    ...     counter.add_(1)
    >>> replay = captured_epoch(count, counter.device)
    >>> replay()
    >>> counter.item()
    1.0
    """
    if device.type != "cuda":
        return run
    with torch.cuda.device(device):
        # The warm-up, in which cuBLAS allocates its workspace, must run on a side stream.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Pass a stream of this device: torch's default capture stream belongs to the first device that captured.
        # Thread-local mode: a thread that copies images during the capture must not invalidate it.
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            run()
    return graph.replay
