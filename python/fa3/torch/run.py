# SPDX-License-Identifier: BSD-3-Clause
"""Runs the library on tensors of PyTorch: a context for each device, its stream and memory."""

import os
from typing import Any

import torch
from torch import Tensor

from .._fa3 import Context, Reading
from .._fa3 import run as _run
from .._plan import BACKWARD, FORWARD

# PyTorch before 2.10 lends tensors by a method, which refuses those that require a gradient.
_LENDS = hasattr(Tensor, "__dlpack_c_exchange_api__")
READING = Reading(recorded=True)
_contexts: dict[tuple[str, int, bool], Context] = {}
os.register_at_fork(after_in_child=_contexts.clear)


def context(device: torch.device, double: bool = False) -> Context:
    """One for each GPU, and for each number of threads that PyTorch is set to; made when needed.
    double: float64, which the backend reference alone computes."""
    if device.type == "cpu":
        key = ("cpu", torch.get_num_threads(), double)
    else:
        index = torch.cuda.current_device() if device.index is None else device.index
        key = ("cuda", index, False)
    found = _contexts.get(key)
    if found is None:
        if key[0] == "cpu":
            found = Context("cpu", backend="reference" if double else "auto", num_threads=key[1])
        else:
            found = Context(f"cuda:{key[1]}")
        found = _contexts.setdefault(key, found)
    return found


def execute(op: int, fields: dict[str, Any], device: torch.device) -> None:
    """Runs one operation of the C interface on the current stream."""
    attends = op in (FORWARD, BACKWARD)
    where = context(device, attends and fields["q"].dtype is torch.float64)
    if not _LENDS:
        for name, value in fields.items():
            if isinstance(value, Tensor):
                fields[name] = value.detach()
    if device.type == "cpu":
        _run(op, fields, READING, where, None)
        return
    stream = None if _LENDS else torch.cuda.current_stream(device).cuda_stream or 1
    _run(op, fields, READING, where, stream, lambda size: _workspace(size, device))


def _workspace(size: int, device: torch.device) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)
