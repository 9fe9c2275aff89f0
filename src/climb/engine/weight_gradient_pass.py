"""A pass of torch's compiler that moves weight gradients to a second stream.

Imported only by who compiles: the compiler itself takes seconds to import.
"""

from __future__ import annotations

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass

from climb.engine.weight_gradients import weight_gradient

CONVOLUTION_BACKWARD = torch.ops.aten.convolution_backward.default
CAST = torch.ops.prims.convert_element_type.default


class WeightGradientsBeside(CustomGraphPass):
    """Rewrites a backward graph: `weight_gradient` wherever a weight's gradient goes straight to the optimiser.

    That is, out of the graph, at most by way of a cast to float32. A gradient that is used within the graph (a weight
    used twice, or padded before its use) stays where it is: there, nobody would wait for it.
    """

    def __call__(self, graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=CONVOLUTION_BACKWARD):
            outgoing, inputs, weight, _, stride, padding, dilation, transposed, _, groups, wanted = node.args
            gradient = _leaving(node)
            if gradient is None or transposed or not wanted[0]:
                continue
            with graph.inserting_before(node):
                beside = graph.call_function(
                    weight_gradient._opoverload,
                    (outgoing, inputs, weight, stride, padding, dilation, groups),
                )
            beside.meta.update(gradient.meta)
            gradient.replace_all_uses_with(beside)
            node.args = (*node.args[:-1], [True, False, wanted[2]])
        graph.eliminate_dead_code()

    def uuid(self) -> str:
        """What compiled graphs are kept under; to be changed with the pass."""
        return "climb weight gradients beside, 1"


def _leaving(convolution_backward: fx.Node) -> fx.Node | None:
    """The weight's gradient as it leaves the graph in float32, if it does so directly."""
    gradients = [user for user in convolution_backward.users if user.args[1] == 1]
    if len(gradients) != 1:
        return None
    gradient = gradients[0]
    users = list(gradient.users)
    if len(users) == 1 and users[0].target is CAST:
        gradient = users[0]
    leaves = [user.op for user in gradient.users] == ["output"]
    return gradient if leaves and gradient.meta["val"].dtype is torch.float32 else None


OPTIONS = {
    "post_grad_custom_post_pass": WeightGradientsBeside(),
    # Memory that is still being read on the second stream must not be written by the next kernel of the first.
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
    # For less memory the largest gradients would be left to the end, where nothing is beside them any more.
    "reorder_for_peak_memory": False,
    "combo_kernels": True,  # one kernel for many small tensors, such as the casts of all weights
}
"""For torch.compile, of a function whose backward is followed by `weight_gradients.BESIDE.wait`."""
