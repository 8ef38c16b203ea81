# SPDX-License-Identifier: BSD-3-Clause
"""fa3: exact attention. Arrays in, arrays out, on the CPU and on Hopper GPUs.

    import fa3
    out = fa3.attention(q, k, v, causal=True)

q is (batch, seqlen_q, heads_q, head_dim), k and v (batch, seqlen_kv, heads_kv, …): arrays of NumPy,
tensors of PyTorch, or anything with __dlpack__. Nothing is copied or moved: CPU arrays are computed
on the CPU, CUDA arrays on their GPU, and what is returned is of the same kind, in the same place.

Errors are Python's own, with the library's sentence about which argument, what it is, what is
needed and what to do: ValueError, TypeError, NotImplementedError (legal, but not offered by this
device or build), MemoryError, OSError, RuntimeError (CUDA, compiling a kernel).
"""

from ._attention import attention, attention_backward
from ._combine import combine
from ._fa3 import Context, Spec
from ._fa3 import build_info as _build_info
from ._fa3 import version as _version
from ._plan import Plan, Support, explain, supported
from ._quantize import Quantized, quantize

__version__ = _version()
__all__ = [
    "Context",
    "Plan",
    "Quantized",
    "Spec",
    "Support",
    "attention",
    "attention_backward",
    "build_info",
    "combine",
    "explain",
    "quantize",
    "supported",
]


def build_info() -> dict:
    """The build: version, compiler, instruction sets, and each backend with whether it can be used
    here and why not."""
    import json

    return json.loads(_build_info())
