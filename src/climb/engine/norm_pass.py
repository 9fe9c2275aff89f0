"""A pass of torch's compiler that makes one operator of a batch norm in training, what is added to it and its relu.

Imported only by who compiles: the compiler itself takes seconds to import.
"""

from __future__ import annotations

import inspect
import operator
from typing import Any, NamedTuple, cast

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.nn import functional

from climb.engine.norms import move_running, norm, norm_backward

SIGNATURE = inspect.signature(functional.batch_norm)
RELUS = (functional.relu, torch.relu, torch.relu_)
SUMS = (operator.add, operator.iadd, torch.add)
GIVEN_BY_AUTOGRAD = 9
"""Arguments of `norm_backward` where nobody has given it a second gradient."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class BatchNorm(NamedTuple):
    """What a batch norm is given."""

    x: fx.Node
    running_mean: fx.Node
    running_variance: fx.Node
    weight: fx.Node
    bias: fx.Node
    momentum: float
    eps: float


class Move(NamedTuple):
    """A running statistic, and what it is to move towards."""

    running: fx.Node
    batch: fx.Node
    factor: float
    momentum: float


class NormsInFewKernels(CustomGraphPass):
    """`norms_in_few_kernels`, as the compiler wants it."""

    def __call__(self, graph: fx.Graph) -> None:
        norms_in_few_kernels(graph)

    def uuid(self) -> str:
        """What compiled graphs are kept under; to be changed with the pass, and with the gradients of `norm`."""
        return "climb norms in few kernels, 4"


def norms_in_few_kernels(graph: fx.Graph) -> None:
    """Rewrites a graph of Dynamo's: `norm` for each batch norm over images that uses the statistics of its batch.

    With it goes a relu that nothing but the batch norm leads to, and what is added to the batch norm before such a
    relu. The running statistics move as torch would move them. Any other batch norm stays as it is: one that evaluates,
    has no weight or no running statistics, or averages over all batches.
    """
    moves: list[Move] = []
    for node in graph.find_nodes(op="call_function", target=functional.batch_norm):
        given = _in_training(node)
        if given is None:
            continue
        following, residual = _followed(node, given)
        # With an addend, where it is added and therefore there; without one, where the batch norm was.
        with graph.inserting_before(node if residual is None else following[0]):
            relu = bool(following)
            made = graph.call_function(norm._opoverload, (given.x, given.weight, given.bias, residual, relu, given.eps))
            result, mean, variance = (graph.call_function(operator.getitem, (made, index)) for index in range(3))
            moves += _moves(graph, given, mean, variance)
        chain = [node, *following]
        result.meta.update(chain[-1].meta)
        chain[-1].replace_all_uses_with(result)
        for replaced in reversed(chain):
            graph.erase_node(replaced)
    (end,) = graph.find_nodes(op="output")
    counts = _taken_counts(graph) if moves else []
    with graph.inserting_before(end):
        for momentum in sorted({move.momentum for move in moves}):
            running, batch, factors = zip(*(move[:3] for move in moves if move.momentum == momentum), strict=True)
            graph.call_function(move_running._opoverload, ([*running], [*batch], [*factors], momentum, counts))
            counts = []


class SumsIntoNorms(CustomGraphPass):
    """Rewrites a backward graph: where a norm's result had two uses, `norm_backward` adds their gradients itself."""

    def __call__(self, graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=norm_backward._opoverload):
            outgoing, *rest = cast("tuple[Any, ...]", node.args)
            if len(node.args) == GIVEN_BY_AUTOGRAD and _is_plain_sum(outgoing) and len(outgoing.users) == 1:
                one, other = outgoing.args
                node.args = (one, *rest, other)
                graph.erase_node(outgoing)
                if "eager_input_vals" in node.meta:  # whose layouts inductor keeps to: both are to be as their sum was
                    (total, *values), named = node.meta["eager_input_vals"]
                    node.meta["eager_input_vals"] = ((total, *values, total), named)

    def uuid(self) -> str:
        """What compiled graphs are kept under; to be changed with the pass."""
        return "climb sums into norms, 1"


def _is_plain_sum(node: fx.Node) -> bool:
    if node.target is not torch.ops.aten.add.Tensor or node.kwargs:
        return False
    values = [part.meta.get("val") for part in (node, *node.args) if isinstance(part, fx.Node)]
    kinds = {(value.shape, value.dtype) for value in values if isinstance(value, torch.Tensor)}
    return len(values) == 3 and len(kinds) == 1


def _in_training(node: fx.Node) -> BatchNorm | None:
    """What this batch norm is given, if it is one to replace."""
    bound = SIGNATURE.bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    given: dict[str, Any] = bound.arguments
    tensors = [given[name] for name in ("input", "running_mean", "running_var", "weight", "bias")]
    numbers = [given["momentum"], given["eps"]]
    if given["training"] is not True or not all(isinstance(number, float | int) for number in numbers):
        return None
    x, *others = (_value(tensor) for tensor in tensors)
    if x is None or x.dim() != 4 or x.dtype not in DTYPES or not all(isinstance(size, int) for size in x.shape):
        return None
    if _rows(x) < 2 or any(other is None or other.dtype is not torch.float32 for other in others):
        return None
    users = [user for running in tensors[1:3] for user in running.users]
    if not all(user.target is move_running._opoverload or _trains(user) for user in users):
        return None  # somebody else here reads them, and would have to wait for their move
    return BatchNorm(*tensors, *numbers)


def _trains(node: fx.Node) -> bool:
    if node.target is not functional.batch_norm:
        return False
    return SIGNATURE.bind(*node.args, **node.kwargs).arguments.get("training") is True


def _followed(node: fx.Node, given: BatchNorm) -> tuple[list[fx.Node], fx.Node | None]:
    """What the operator takes in: a relu, or a sum and its relu, and what that sum adds to the batch norm."""
    following = _only_user(node)
    if following is None:
        return [], None
    if _is_relu(following):
        return ([], None) if _switched(node, following) else ([following], None)
    addend, relu = _addend(following, node), _only_user(following)
    if addend is None or relu is None or not _is_relu(relu) or _switched(node, relu):
        return [], None
    # The operator comes later than the batch norm did: what it reads and moves must not have changed in between, as it
    # might where others know it too.
    alone = all(len(tensor.users) == 1 for tensor in (given.x, given.running_mean, given.running_variance))
    return ([following, relu], addend) if alone else ([], None)


def _switched(first: fx.Node, last: fx.Node) -> bool:
    """Whether gradients are switched on or off in between."""
    node = first
    while node is not last and node.target is not torch._C._set_grad_enabled:
        node = node.next
    return node is not last


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def _is_relu(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in ("relu", "relu_")
    return node.op == "call_function" and node.target in RELUS


def _addend(node: fx.Node, batch_norm: fx.Node) -> fx.Node | None:
    """What ``node`` adds to a batch norm, if it is a tensor like the batch norm and nothing else is done."""
    if node.op != "call_function" or node.target not in SUMS or node.kwargs or len(node.args) != 2:
        return None
    left, right = node.args
    other = right if left is batch_norm else left
    if not isinstance(other, fx.Node) or other is batch_norm or (node.target is operator.iadd and other is left):
        return None
    ours, theirs = _value(batch_norm), _value(other)
    if ours is None or theirs is None:
        return None
    alike = (ours.shape, ours.dtype, ours.device) == (theirs.shape, theirs.dtype, theirs.device)
    return other if alike else None


def _moves(graph: fx.Graph, given: BatchNorm, mean: fx.Node, variance: fx.Node) -> list[Move]:
    """The running statistics towards those of this batch, its variance as an estimate of the population's.

    What is moved twice in the graph is moved one after the other; the rest can wait for each other.
    """
    value = _value(given.x)
    assert value is not None
    rows = _rows(value)
    waiting = []
    unbiased = rows / (rows - 1)
    for running, now, factor in ((given.running_mean, mean, 1.0), (given.running_variance, variance, unbiased)):
        move = Move(running, graph.call_method("detach", (now,)), factor, given.momentum)
        if len(running.users) == 1:  # the batch norm
            waiting.append(move)
        else:
            graph.call_function(move_running._opoverload, ([running], [move.batch], [factor], given.momentum, []))
    return waiting


def _taken_counts(graph: fx.Graph) -> list[fx.Node]:
    """Counters of batch norms, which the graph is given and does nothing with but add one: no longer here."""
    taken = []
    for node in graph.find_nodes(op="call_method", target="add_"):
        counter, value = node.args[0], _value(node.args[0])
        if value is None or value.dtype is not torch.int64 or value.dim() != 0 or node.args[1:] != (1,) or node.kwargs:
            continue
        assert isinstance(counter, fx.Node)
        named = "num_batches_tracked" in counter.name  # somebody else's may be read right after
        if named and counter.op == "placeholder" and len(counter.users) == 1 and not node.users:
            taken.append(counter)
            graph.erase_node(node)
    return taken


def _value(node: object) -> torch.Tensor | None:
    """What Dynamo saw there, if it is a tensor."""
    value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _rows(x: torch.Tensor) -> int:
    return x.numel() // x.shape[1]


OPTIONS = {
    "pre_grad_custom_pass": NormsInFewKernels(),
    "post_grad_custom_pre_pass": SumsIntoNorms(),
    # What is still being read on the second stream must not be written by the next kernel of the first.
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
}
"""For torch.compile, of a function that is followed by `BESIDE.wait`."""
