# SPDX-License-Identifier: BSD-3-Clause
"""Plans, explain() and supported(): the arguments of a call without, or before, the call."""

import functools
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _fa3
from ._arrays import Array, mark_written, workspace_for

FORWARD, BACKWARD, QUANTIZE, COMBINE = 1, 2, 3, 4  # fa3_op
# The input that says where a call computes; of others q.
_FIRST = {QUANTIZE: "x", COMBINE: "o_parts"}


def execute(
    op: int,
    fields: dict,
    how: Any,
    context: Any,
    stream: int | None,
    written: tuple[Array | None, ...] = (),
) -> None:
    """Runs one operation of the C interface, or hands it to what stands in for a context. written:
    outputs that are the caller's own. Tensors of PyTorch on a GPU have their workspace from its
    allocator, so that a CUDA graph may capture the call."""
    if context is None or type(context) is _fa3.Context:
        like = fields[_FIRST.get(op, "q")]
        allocate = None
        if _is_torch_cuda(like):
            allocate = functools.partial(_workspace, like, stream)
        _fa3.run(op, fields, how, context, stream, allocate)
    elif isinstance(context, _StandIn):
        context.take(op, fields, how, stream)
    else:
        raise TypeError(f"context: {type(context).__name__}, need a fa3.Context or None")
    if written and type(context) is not _Recorder:
        mark_written(written)


def _is_torch(array: Array) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _is_torch_cuda(array: Array) -> bool:
    return getattr(array, "is_cuda", False) and _is_torch(array)


def _workspace(like: Array, stream: int | None, size: int) -> Array:
    """`size` bytes where `like` is, for work on this stream."""
    if stream is None or not _is_torch_cuda(like):
        return workspace_for(like, size)
    cuda = sys.modules["torch"].cuda
    # Memory of PyTorch's that other streams have freed may still be in use there.
    with cuda.stream(cuda.ExternalStream(max(stream, 0), like.device)):
        return workspace_for(like, size)


class _StandIn:
    def take(self, op: int, fields: dict, how: Any, stream: int | None) -> None:
        raise NotImplementedError


class _Recorder(_StandIn):
    """Keeps what a call would have run."""

    def __init__(self, function: Callable, arrays: tuple, arguments: dict):
        self.context = arguments.pop("context", None)
        if self.context is not None and type(self.context) is not _fa3.Context:
            kind = type(self.context).__name__
            raise TypeError(f"context: {kind}, need a fa3.Context or None")
        self.call = None
        try:
            function(*arrays, **arguments, context=self)
        except TypeError as error:
            if self.call is None and not callable(function):
                raise TypeError(f"{function!r}, need a function, as fa3.attention") from error
            raise
        if self.call is None:
            raise TypeError(
                f"{function!r}, need fa3.attention, fa3.attention_backward, fa3.quantize or "
                "fa3.combine"
            )

    def take(self, op: int, fields: dict, how: Any, stream: int | None) -> None:
        self.call = (op, fields, how, self.context)


def _has_arrays(value: Any) -> bool:
    """Whether an argument is an array or a tuple of them, as rotary tables and Quantized are."""
    if isinstance(value, tuple):
        return any(map(_has_arrays, value))
    return hasattr(value, "shape") or hasattr(value, "__dlpack__")


def _is_on_host(array: Array) -> bool:
    cpu = 1  # DLPack's kDLCPU
    return array.__dlpack_device__()[0] == cpu


class Plan:
    """A call that is checked and prepared once and run many times, on arrays of the same shapes,
    types and strides. On a GPU its kernel is found or compiled here, and a run may be captured in a
    CUDA graph.

        plan = fa3.Plan(fa3.attention, q, k, v, causal=True)
        out = plan.run(q, k, v)

    function: fa3.attention, fa3.attention_backward, fa3.quantize or fa3.combine; then its
    arguments. Arrays may be fa3.Spec. May be run by many threads at once.
    """

    def __init__(self, function: Callable, *arrays: Array, **arguments: Any):
        self._function = function
        self._arguments = {
            name: value for name, value in arguments.items() if not _has_arrays(value)
        }
        recorder = _Recorder(function, arrays, arguments)
        self._arguments.pop("context", None)
        self._arguments.pop("stream", None)
        self._plan = _fa3.plan(*recorder.call)
        self._spare: list[Array] = []  # workspaces on the CPU that no run is using

    @property
    def workspace_bytes(self) -> int:
        """Bytes that a run needs beside its arrays, on their device."""
        return self._plan.workspace_bytes

    @property
    def v_image(self) -> tuple[int, ...] | None:
        """Shape of the image of v that an attention on 8-bit codes would load, for v_image of
        fa3.quantize; None where there is none, as on the CPU."""
        return self._plan.v_image

    def run(
        self,
        *arrays: Array,
        workspace: Array | None = None,
        stream: int | None = None,
        **arguments: Array,
    ) -> Any:
        """Runs on these arrays, which the function takes by these names; the other arguments are
        the plan's.

        workspace: uint8, (workspace_bytes or more), of the same device; None = one that the plan
          keeps, on a GPU one of PyTorch's memory for its tensors. Two runs at once need two.
        stream: as in fa3.attention.

        Returns what the function returns. Raises ValueError where an array differs from the plan's.
        """
        return self._function(
            *arrays,
            **{**self._arguments, **arguments},
            context=_Runner(self, workspace),
            stream=stream,
        )


class _Runner(_StandIn):
    def __init__(self, plan: Plan, workspace: Array | None):
        self.plan, self.workspace = plan, workspace

    def take(self, op: int, fields: dict, how: Any, stream: int | None) -> None:
        plan = self.plan
        workspace, kept = self.workspace, None
        if workspace is None and plan.workspace_bytes > 0:
            try:
                workspace = kept = plan._spare.pop()
            except IndexError:
                like = fields[_FIRST.get(op, "q")]
                workspace = _workspace(like, stream, plan.workspace_bytes)
                # PyTorch keeps memory itself. On a GPU the work is only enqueued when it returns.
                if not _is_torch(workspace) and _is_on_host(workspace):
                    kept = workspace
        plan._plan.run(fields, how, workspace, stream)
        if kept is not None:
            plan._spare.append(kept)


class Support(NamedTuple):
    """Whether a call would be taken, and which backend would run it, or why not."""

    supported: bool
    reason: str

    def __bool__(self) -> bool:
        return self.supported


def supported(function: Callable, *arrays: Array, **arguments: Any) -> Support:
    """Would this call be taken? fa3.supported(fa3.attention, q, k, v, causal=True). Arrays may be
    fa3.Spec. Raises TypeError, ValueError for what is no array, or an array of another kind."""
    recorder = _Recorder(function, arrays, arguments)
    try:
        return Support(*_fa3.supported(*recorder.call))
    except NotImplementedError as error:  # there is no such device
        return Support(False, str(error))


def explain(function: Callable, *arrays: Array, **arguments: Any) -> dict:
    """How this call would be computed: backend and why, tiles, kernel, workspace, and for a GPU the
    time that it would take by a model. Arrays may be fa3.Spec. Raises as the call would."""
    recorder = _Recorder(function, arrays, arguments)
    return json.loads(_fa3.explain(*recorder.call))
