"""The kernels of `climb.engine.norms`: tensors in channels-last, which lie in memory as rows of channels.

Where one program holds all rows of a few channels, a batch norm is one kernel. Otherwise it is two: the first sums up
chunks of rows, and every program of the second puts these sums together by itself, for they are few.

Imported only on GPU machines, where Triton is. Offsets are of 32 bits: tensors have less than 2**31 numbers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# The sizes are those that were fastest on an H200, for the 20 views of ten images in the four stages of a ResNet-18.
WARPS = 4
ROWS_AT_ONCE, FEW_CHANNELS = 512, 8
"""The most rows that one program holds, and of how many channels."""
ROWS, CHANNELS = 128, 32
"""Rows and channels of a program of the second of two kernels."""
FEW_CHUNKS, MANY_CHUNKS, MANY_ROWS = 20, 80, 8192
"""Chunks that the first of two kernels sums up: few, or many where there are many rows."""
ROWS_OF_A_TILE = 256
"""The most rows that a program of that kernel holds at a time."""


@triton.jit
def norm_kernel(
    x, weight, bias, residual, y, means, variances, rows, channels, eps,
    RELU: tl.constexpr, RESIDUAL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of channels a program, with all of its rows."""
    column, known = columns(tl.program_id(0), channels, BLOCK)
    place, inside = places(tl.arange(0, ROWS), rows, column, known, channels)
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if RESIDUAL:  # read before it is needed, while the sums are still to come
        addend = tl.load(residual + place, mask=inside, other=0.0)
    slope, offset = tl.load(weight + column, mask=known, other=0.0), tl.load(bias + column, mask=known, other=0.0)
    mean = tl.sum(value, axis=0) / rows
    value = tl.where(inside, value - mean[None, :], 0.0)
    variance = tl.sum(value * value, axis=0) / rows
    tl.store(means + column, mean, mask=known)
    tl.store(variances + column, variance, mask=known)
    value = value * (tl.rsqrt(variance + eps) * slope)[None, :] + offset[None, :]
    if RESIDUAL:
        value += addend.to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + place, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def chunk_statistics_kernel(
    x, means, squares, rows, channels,
    TILES: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """means and squares[chunk, channel]: the mean over the rows of a chunk, and the summed squares around it."""
    chunk = tl.program_id(0)
    column, known = columns(tl.program_id(1), channels, BLOCK)
    count = 0
    mean = tl.zeros((BLOCK,), tl.float32)
    square = tl.zeros((BLOCK,), tl.float32)
    for tile in range(TILES):
        first = (chunk * TILES + tile) * TILE
        place, inside = places(first + tl.arange(0, TILE), rows, column, known, channels)
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        added = tl.maximum(tl.minimum(rows - first, TILE), 0)
        added_mean = tl.sum(value, axis=0) / tl.maximum(added, 1)
        value = tl.where(inside, value - added_mean[None, :], 0.0)
        distance = added_mean - mean
        share = added.to(tl.float32) / tl.maximum(count + added, 1)
        square += tl.sum(value * value, axis=0) + distance * distance * (share * count)
        mean += distance * share
        count += added
    tl.store(means + chunk * channels + column, mean, mask=known)
    tl.store(squares + chunk * channels + column, square, mask=known)


@triton.jit
def norm_by_chunks_kernel(
    x, weight, bias, residual, y, means, variances, chunk_means, chunk_squares, rows, channels, eps, chunks, chunk_rows,
    RELU: tl.constexpr, RESIDUAL: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """A tile of rows and channels a program, given the statistics of all chunks of rows."""
    column, known = columns(tl.program_id(1), channels, BLOCK)
    place, inside = places(tl.program_id(0) * TILE + tl.arange(0, TILE), rows, column, known, channels)
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if RESIDUAL:
        addend = tl.load(residual + place, mask=inside, other=0.0)
    slope, offset = tl.load(weight + column, mask=known, other=0.0), tl.load(bias + column, mask=known, other=0.0)
    chunk = tl.arange(0, CHUNKS)
    held, there = places(chunk, chunks, column, known, channels)
    parts = tl.load(chunk_means + held, mask=there, other=0.0)
    squares = tl.load(chunk_squares + held, mask=there, other=0.0)
    counts = tl.maximum(tl.minimum(rows - chunk * chunk_rows, chunk_rows), 0).to(tl.float32)[:, None]
    mean = tl.sum(parts * counts, axis=0) / rows
    distance = parts - mean[None, :]
    variance = tl.sum(squares + distance * distance * counts, axis=0) / rows
    if tl.program_id(0) == 0:
        tl.store(means + column, mean, mask=known)
        tl.store(variances + column, variance, mask=known)
    value = (value - mean[None, :]) * (tl.rsqrt(variance + eps) * slope)[None, :] + offset[None, :]
    if RESIDUAL:
        value += addend.to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + place, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def norm_backward_kernel(
    outgoing, also, x, y, weight, means, variances, of_x, of_weight, of_bias, of_residual, rows, channels, eps,
    RELU: tl.constexpr, RESIDUAL: tl.constexpr, ALSO: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of channels a program, with all of its rows."""
    column, known = columns(tl.program_id(0), channels, BLOCK)
    place, inside = places(tl.arange(0, ROWS), rows, column, known, channels)
    mean, scale = mean_and_scale(means, variances, column, known, eps)
    slope = tl.load(weight + column, mask=known, other=0.0)
    normal = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    gradient = masked_gradient(outgoing, also, y, place, inside, RELU, ALSO)
    normal = (normal - mean[None, :]) * scale[None, :]  # beyond the last row the gradient is 0
    total, slanted = tl.sum(gradient, axis=0), tl.sum(gradient * normal, axis=0)
    tl.store(of_bias + column, total, mask=known)
    tl.store(of_weight + column, slanted, mask=known)
    if RESIDUAL:
        tl.store(of_residual + place, gradient.to(of_residual.dtype.element_ty), mask=inside)
    through_statistics = (total[None, :] + normal * slanted[None, :]) / rows
    gradient = (gradient - through_statistics) * (scale * slope)[None, :]
    tl.store(of_x + place, gradient.to(of_x.dtype.element_ty), mask=inside)


@triton.jit
def chunk_gradients_kernel(
    outgoing, also, x, y, means, variances, totals, slants, rows, channels, eps,
    RELU: tl.constexpr, ALSO: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """totals and slants[chunk, channel]: what the rows of a chunk give to the gradients of bias and weight."""
    chunk = tl.program_id(0)
    column, known = columns(tl.program_id(1), channels, BLOCK)
    mean, scale = mean_and_scale(means, variances, column, known, eps)
    total = tl.zeros((BLOCK,), tl.float32)
    slanted = tl.zeros((BLOCK,), tl.float32)
    for tile in range(TILES):
        first = (chunk * TILES + tile) * TILE
        place, inside = places(first + tl.arange(0, TILE), rows, column, known, channels)
        distance = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        gradient = masked_gradient(outgoing, also, y, place, inside, RELU, ALSO)
        total += tl.sum(gradient, axis=0)
        slanted += tl.sum(gradient * (distance - mean[None, :]), axis=0)
    tl.store(totals + chunk * channels + column, total, mask=known)
    tl.store(slants + chunk * channels + column, slanted * scale, mask=known)


@triton.jit
def norm_backward_by_chunks_kernel(
    outgoing, also, x, y, weight, means, variances, of_x, of_weight, of_bias, of_residual, totals, slants,
    rows, channels, eps, chunks,
    RELU: tl.constexpr, RESIDUAL: tl.constexpr, ALSO: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
    CHUNKS: tl.constexpr,
):  # fmt: skip
    """A tile of rows and channels a program, given the sums of all chunks of rows."""
    column, known = columns(tl.program_id(1), channels, BLOCK)
    place, inside = places(tl.program_id(0) * TILE + tl.arange(0, TILE), rows, column, known, channels)
    mean, scale = mean_and_scale(means, variances, column, known, eps)
    slope = tl.load(weight + column, mask=known, other=0.0)
    normal = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    gradient = masked_gradient(outgoing, also, y, place, inside, RELU, ALSO)
    held, there = places(tl.arange(0, CHUNKS), chunks, column, known, channels)
    total = tl.sum(tl.load(totals + held, mask=there, other=0.0), axis=0)
    slanted = tl.sum(tl.load(slants + held, mask=there, other=0.0), axis=0)
    if tl.program_id(0) == 0:
        tl.store(of_bias + column, total, mask=known)
        tl.store(of_weight + column, slanted, mask=known)
    if RESIDUAL:
        tl.store(of_residual + place, gradient.to(of_residual.dtype.element_ty), mask=inside)
    normal = (normal - mean[None, :]) * scale[None, :]
    through_statistics = (total[None, :] + normal * slanted[None, :]) / rows
    gradient = (gradient - through_statistics) * (scale * slope)[None, :]
    tl.store(of_x + place, gradient.to(of_x.dtype.element_ty), mask=inside)


@triton.jit
def columns(block, channels, BLOCK: tl.constexpr):
    """The channels of a block, and which of them there are."""
    column = block * BLOCK + tl.arange(0, BLOCK)
    return column, column < channels


@triton.jit
def places(row, rows, column, known, channels):
    """Where these rows and columns lie, and which of them there are."""
    return row[:, None] * channels + column[None, :], (row < rows)[:, None] & known[None, :]


@triton.jit
def mean_and_scale(means, variances, column, known, eps):
    variance = tl.load(variances + column, mask=known, other=0.0)
    return tl.load(means + column, mask=known, other=0.0), tl.rsqrt(variance + eps)


@triton.jit
def masked_gradient(outgoing, also, y, place, inside, RELU: tl.constexpr, ALSO: tl.constexpr):
    """Float32: what arrives at the result, where relu let it through."""
    gradient = tl.load(outgoing + place, mask=inside, other=0.0).to(tl.float32)
    if ALSO:
        gradient += tl.load(also + place, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        gradient = tl.where(tl.load(y + place, mask=inside, other=0.0).to(tl.float32) <= 0, 0.0, gradient)
    return gradient


def norm(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, relu: bool, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """See `climb.engine.norms.norm`; ``x`` and ``residual`` are in channels-last."""
    rows, channels = _rows(x), x.shape[1]
    y, (mean, variance) = torch.empty_like(x), (x.new_empty(channels, dtype=torch.float32) for _ in range(2))
    given = (x, weight, bias, x if residual is None else residual, y, mean, variance)
    what = {"RELU": relu, "RESIDUAL": residual is not None, "num_warps": WARPS}
    if rows <= ROWS_AT_ONCE:
        grid = (triton.cdiv(channels, FEW_CHANNELS),)
        norm_kernel[grid](*given, rows, channels, eps, ROWS=triton.next_power_of_2(rows), BLOCK=FEW_CHANNELS, **what)
        return y, mean, variance
    chunks, tile, tiles = _chunks(rows)
    parts = [x.new_empty((chunks, channels), dtype=torch.float32) for _ in range(2)]
    blocks = triton.cdiv(channels, CHANNELS)
    chunk_statistics_kernel[(chunks, blocks)](
        x, *parts, rows, channels, TILES=tiles, TILE=tile, BLOCK=CHANNELS, num_warps=WARPS
    )
    norm_by_chunks_kernel[(triton.cdiv(rows, ROWS), blocks)](
        *given, *parts, rows, channels, eps, chunks, tile * tiles,
        TILE=ROWS, BLOCK=CHANNELS, CHUNKS=triton.next_power_of_2(chunks), **what,
    )  # fmt: skip
    return y, mean, variance


def norm_backward(
    outgoing: Tensor,
    also: Tensor | None,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    mean: Tensor,
    variance: Tensor,
    relu: bool,
    residual: bool,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `climb.engine.norms.norm_backward`; all are in channels-last."""
    rows, channels = _rows(x), x.shape[1]
    of_x, of_weight, of_bias = (torch.empty_like(tensor) for tensor in (x, weight, weight))
    of_residual = torch.empty_like(x) if residual else x.new_empty(0)
    gradients = (of_x, of_weight, of_bias, of_residual)
    both = (outgoing, outgoing if also is None else also)
    what = {"RELU": relu, "ALSO": also is not None, "num_warps": WARPS}
    if rows <= ROWS_AT_ONCE:
        norm_backward_kernel[(triton.cdiv(channels, FEW_CHANNELS),)](
            *both, x, y, weight, mean, variance, *gradients, rows, channels, eps,
            RESIDUAL=residual, ROWS=triton.next_power_of_2(rows), BLOCK=FEW_CHANNELS, **what,
        )  # fmt: skip
        return gradients
    chunks, tile, tiles = _chunks(rows)
    parts = [x.new_empty((chunks, channels), dtype=torch.float32) for _ in range(2)]
    blocks = triton.cdiv(channels, CHANNELS)
    chunk_gradients_kernel[(chunks, blocks)](
        *both, x, y, mean, variance, *parts, rows, channels, eps, TILES=tiles, TILE=tile, BLOCK=CHANNELS, **what
    )
    height = ROWS if rows > MANY_ROWS else ROWS // 2
    norm_backward_by_chunks_kernel[(triton.cdiv(rows, height), blocks)](
        *both, x, y, weight, mean, variance, *gradients, *parts, rows, channels, eps, chunks,
        RESIDUAL=residual, TILE=height, BLOCK=CHANNELS, CHUNKS=triton.next_power_of_2(chunks), **what,
    )  # fmt: skip
    return gradients


def _rows(x: Tensor) -> int:
    return x.numel() // x.shape[1]


def _chunks(rows: int) -> tuple[int, int, int]:
    """How many chunks there are, of how many rows the tiles of a chunk are, and how many tiles a chunk is."""
    wanted = triton.cdiv(rows, MANY_CHUNKS if rows > MANY_ROWS else FEW_CHUNKS)
    tile = min(triton.next_power_of_2(wanted), ROWS_OF_A_TILE)
    tiles = triton.cdiv(wanted, tile)
    return triton.cdiv(rows, tile * tiles), tile, tiles
