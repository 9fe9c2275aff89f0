"""A pass of torch's compiler that moves weight gradients to a second stream.

Imported only by who compiles: the compiler itself takes seconds to import.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn
from torch._inductor.custom_graph_pass import CustomGraphPass

from climb.engine.weight_gradients import MANY_WEIGHTS, linear_gradient, weight_gradient

CONVOLUTION_BACKWARD = torch.ops.aten.convolution_backward.default
PRODUCT = torch.ops.aten.mm.default
PERMUTE = torch.ops.aten.permute.default
CAST = torch.ops.prims.convert_element_type.default


Left = tuple[fx.Node | None, fx.Node | None]
"""A weight that the chain is through with, and what says so."""


class WeightGradientsBeside(CustomGraphPass):
    """Rewrites a backward graph: `weight_gradient` wherever a weight's gradient goes straight to the optimiser.

    That is, out of the graph, at most by way of a cast to float32. A gradient that is used within the graph (a weight
    used twice, or padded before its use) stays where it is: there, nobody would wait for it.
    """

    def __call__(self, graph: fx.Graph) -> None:
        left: Left = (None, None)
        for node in graph.find_nodes(op="call_function", target=CONVOLUTION_BACKWARD):
            left = _move_convolution(graph, node, left)
        for node in graph.find_nodes(op="call_function", target=PRODUCT):
            _move_linear(graph, node)
        graph.eliminate_dead_code()

    def uuid(self) -> str:
        """What compiled graphs are kept under; to be changed with the pass."""
        return "climb weight gradients beside, 4"


def _move_convolution(graph: fx.Graph, node: fx.Node, left: Left) -> Left:
    """Move its weight's gradient, and say which weight the chain is through with after this node."""
    arguments: Any = node.args
    outgoing, inputs, weight, _, stride, padding, dilation, transposed, _, groups, wanted = arguments
    chain, gradient = (_part(node, number) for number in (0, 1))
    leaving = None if gradient is None else _leaving(gradient)
    if chain is None or leaving is None or transposed:
        return left
    # Before the chain goes on: both can begin at once.
    with graph.inserting_before(node):
        beside = graph.call_function(
            weight_gradient._opoverload,
            (outgoing, inputs, weight, stride, padding, dilation, groups, leaving.meta["val"].dtype, *left),
        )
    beside.meta.update(leaving.meta)
    leaving.replace_all_uses_with(beside)
    node.args = (*arguments[:-1], [True, False, wanted[2]])
    return (weight, chain) if weight.meta["val"].numel() >= MANY_WEIGHTS else (None, None)


def _move_linear(graph: fx.Graph, node: fx.Node) -> None:
    arguments: Any = node.args
    outgoing, inputs = arguments
    leaving = _leaving(node)
    layers = node.meta.get("fwd_nn_module_stack")  # of the forward that this is the backward of
    of_a_layer = layers is not None and issubclass(list(layers.values())[-1][1], nn.Linear)
    if leaving is None or not of_a_layer or outgoing.target is not PERMUTE:  # the input's has the weight in its place
        return
    with graph.inserting_before(node):
        beside = graph.call_function(linear_gradient._opoverload, (outgoing, inputs, leaving.meta["val"].dtype))
    beside.meta.update(leaving.meta)
    leaving.replace_all_uses_with(beside)


def _part(convolution_backward: fx.Node, number: int) -> fx.Node | None:
    """The gradient of the input (0) or of the weight (1), if the graph takes it."""
    parts = [user for user in convolution_backward.users if user.args[1] == number]
    return parts[0] if len(parts) == 1 else None


def _leaving(gradient: fx.Node) -> fx.Node | None:
    """A gradient as it leaves the graph, if it does so directly or as float32."""
    users = list(gradient.users)
    if len(users) == 1 and users[0].target is CAST and users[0].meta["val"].dtype is torch.float32:
        gradient = users[0]
    return gradient if [user.op for user in gradient.users] == ["output"] else None


OPTIONS = {
    "post_grad_custom_post_pass": WeightGradientsBeside(),
    # Memory that is still being read on the second stream must not be written by the next kernel of the first.
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
    # For less memory the largest gradients would be left to the end, where nothing is beside them any more.
    "reorder_for_peak_memory": False,
    "combo_kernels": True,  # one kernel for many small tensors, such as the casts of all weights
}
"""For torch.compile, of a function whose backward is followed by `BESIDE.wait`."""
