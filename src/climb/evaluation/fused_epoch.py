"""The epoch of the linear probe with fused Triton kernels: four kernels per step in place of fifteen, on CUDA devices.

A step takes microseconds, so its cost is the number of launches. cuBLAS computes the two matrix products; one Triton
kernel runs between them and one after them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from climb.evaluation.probe_epoch import BETA_1, BETA_2, ProbeEpoch

BLOCK = 1024
"""Weights that one program of the update handles."""
TILE = 8192
"""Errors that one program sums at a time for the biases."""


@triton.jit
def errors_kernel(logits, bias, labels, errors, rows, classes, BLOCK: tl.constexpr):
    """errors[row] = (softmax(logits[row] + bias) - one-hot of labels[row]) / rows; one program per row."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < classes
    values = tl.load(logits + row * classes + column, mask=inside, other=float("-inf"))
    values += tl.load(bias + column, mask=inside, other=0.0)
    powers = tl.exp(values - tl.max(values, axis=0))
    shares = powers / tl.sum(powers, axis=0)
    wrong = shares - (column == tl.load(labels + row)).to(tl.float32)
    tl.store(errors + row * classes + column, wrong / rows, mask=inside)


@triton.jit(do_not_specialize=["step"])
def adam_kernel(
    parameters, gradient, first, second, slopes, offsets, errors,
    step, weights, classes, rows, keep_first, keep_second,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """Adam for all weights, one block per program. The last program sums errors over rows and updates the biases."""
    program = tl.program_id(0)
    slope, offset = tl.load(slopes + step), tl.load(offsets + step)
    if program < tl.num_programs(0) - 1:
        place = program * BLOCK + tl.arange(0, BLOCK)
        inside = place < weights
        slant = tl.load(gradient + place, mask=inside, other=0.0)
        move(parameters, first, second, place, inside, slant, slope, offset, keep_first, keep_second)
    else:  # different names: in Triton a name has one type in both branches
        column = tl.arange(0, CLASSES)
        known = column < classes
        total = tl.zeros((CLASSES,), tl.float32)
        for start in range(0, ROWS, CHUNK):
            row = start + tl.arange(0, CHUNK)
            cells = (row[:, None] < rows) & known[None, :]
            total += tl.sum(tl.load(errors + row[:, None] * classes + column[None, :], mask=cells, other=0.0), axis=0)
        move(parameters, first, second, weights + column, known, total, slope, offset, keep_first, keep_second)


@triton.jit
def move(parameters, first, second, place, inside, slant, slope, offset, keep_first, keep_second):
    """One step of Adam for the parameters at ``place``. `ProbeEpoch._adam_scales` defines slope and offset."""
    mean = tl.load(first + place, mask=inside, other=0.0)
    mean += (slant - mean) * (1 - keep_first)
    square = tl.load(second + place, mask=inside, other=0.0) * keep_second + slant * slant * (1 - keep_second)
    value = tl.load(parameters + place, mask=inside, other=0.0)
    tl.store(first + place, mean, mask=inside)
    tl.store(second + place, square, mask=inside)
    tl.store(parameters + place, value - mean / (tl.sqrt(square) * slope + offset), mask=inside)


class FusedEpoch(ProbeEpoch):
    """`ProbeEpoch` with two Triton kernels and two matrix products per step."""

    def _backward(self, rows: torch.Tensor, labels: torch.Tensor) -> None:
        torch.mm(rows, self.weight.T, out=self._logits)
        count, classes = self._logits.shape
        block = triton.next_power_of_2(classes)
        errors_kernel[(count,)](self._logits, self.bias, labels, self._error, count, classes, BLOCK=block)
        torch.mm(self._error.T, rows, out=self._weight_gradient)

    def _adam(self, slopes: torch.Tensor, offsets: torch.Tensor, step: int) -> None:
        count, classes = self._logits.shape
        weights, width, height = self.weight.numel(), triton.next_power_of_2(classes), triton.next_power_of_2(count)
        adam_kernel[(triton.cdiv(weights, BLOCK) + 1,)](
            self.parameters, self.gradient, self.first_moment, self.second_moment, slopes, offsets, self._error,
            step, weights, classes, count, BETA_1, BETA_2,
            BLOCK=BLOCK, ROWS=height, CHUNK=min(height, max(1, TILE // width)), CLASSES=width, num_warps=8,
        )  # fmt: skip
