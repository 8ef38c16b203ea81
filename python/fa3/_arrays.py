# SPDX-License-Identifier: BSD-3-Clause
"""Outputs that are made for the caller: of the kind, and in the place, of an input."""

import sys
from typing import Any

try:
    import numpy
except ImportError:  # nothing of ours needs it, only its arrays
    numpy = None

from ._fa3 import Reading, Spec

# Of NumPy, PyTorch or anything with __dlpack__ and shape; or a Spec where only a plan is made.
Array = Any


_RANKS = {
    (3, 4): "4, (batch, seqlen, heads, head_dim), or 3, (total tokens, heads, head_dim), with "
    "cu_seqlens",
    (2, 3): "3, (batch, heads, seqlen), or 2, (heads, total tokens), with cu_seqlens",
    (1,): "1, (batch + 1)",
}


def shape_of(name: str, array: Array, ranks: tuple[int, ...] = (3, 4)) -> tuple[int, ...]:
    """The extents of an argument, which must be an array of one of these ranks."""
    try:
        shape = tuple(array.shape)
    except AttributeError:
        kind = type(array).__name__
        raise TypeError(
            f"{name}: {kind}, need an array: of NumPy, PyTorch, or anything with __dlpack__ and "
            "shape"
        ) from None
    if len(shape) not in ranks:
        raise ValueError(f"{name}: {len(shape)} dimensions, need {_RANKS[ranks]}")
    return shape


def check_float(name: str, dtype: str | None) -> None:
    """The type of a new output."""
    if dtype is not None and dtype not in ("float32", "float16", "bfloat16", "float64"):
        raise ValueError(
            f'{name}: {dtype!r}, need "float32", "float16", "bfloat16", "float64" or None'
        )


def mark_written(arrays: tuple[Array | None, ...]) -> None:
    """Tells PyTorch's autograd that its tensors among these have new contents: what has saved one
    refuses to use it."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch.autograd.graph, "increment_version"):
        return
    for x in arrays:
        if isinstance(x, torch.Tensor) and not x.is_inference():
            torch.autograd.graph.increment_version(x)


def empty(like: Array, shape: tuple[int, ...], dtype: str | None) -> Array:
    """A new array where `like` is; dtype None: of the same type."""
    kind = type(like)
    if kind.__module__ == "numpy":
        return numpy.empty(shape, like.dtype if dtype is None else _numpy_dtype(dtype))
    if kind is Spec:
        return Spec(shape, like.dtype if dtype is None else dtype, None, like.device)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        kind = like.dtype if dtype is None else getattr(torch, dtype)
        return torch.empty(shape, dtype=kind, device=like.device)
    if hasattr(like, "__array_namespace__"):
        space = like.__array_namespace__()
        kind = like.dtype if dtype is None else getattr(space, dtype)
        return space.empty(shape, dtype=kind, device=like.device)
    raise TypeError(
        f"out: None, and {type(like).__module__}.{type(like).__name__} has no __array_namespace__ "
        "to make one; pass the arrays to write to (out=, lse=, dq=, …)"
    )


def is_numpy(array: Array) -> bool:
    return type(array).__module__ == "numpy"


def is_eight_bit(array: Array) -> bool:
    """Whether an array holds codes of 8 bits."""
    dtype = array.dtype
    if type(dtype) is str:  # of a Spec
        return dtype in ("int8", "float8_e4m3fn")
    return getattr(dtype, "itemsize", 0) == 1


_numpy_dtypes: dict[str, Any] = {}


def _numpy_dtype(name: str) -> Any:
    if name not in _numpy_dtypes:
        if name in ("bfloat16", "float8_e4m3fn"):
            try:
                import ml_dtypes
            except ImportError:
                raise TypeError(
                    f"{name}: NumPy has no such type; pip install ml_dtypes, or pass an array of "
                    "unsigned integers to write to"
                ) from None
            _numpy_dtypes[name] = numpy.dtype(getattr(ml_dtypes, name))
        else:
            _numpy_dtypes[name] = numpy.dtype(name)
    return _numpy_dtypes[name]


_readings: dict[Any, Reading] = {None: Reading()}


def reading_of(dtype: str | tuple[str, ...] | None) -> Reading:
    """What arrays of unsigned integers hold, from the argument `dtype`."""
    try:
        found = _readings.get(dtype)
    except TypeError:
        found = None
    if found is None:
        if not isinstance(dtype, (str, tuple)):
            kind = type(dtype).__name__
            raise TypeError(f'dtype: {kind}, need a name, as "bfloat16", or a tuple of names')
        sizes = {"": "", 16: "", 8: ""}
        for name in (dtype,) if isinstance(dtype, str) else dtype:
            if name in ("float16", "bfloat16"):
                sizes[16] = name
            elif name == "float8_e4m3fn":
                sizes[8] = name
            else:
                raise ValueError(
                    f'dtype: "{name}", need "bfloat16", "float16" (of uint16) or "float8_e4m3fn" '
                    "(of uint8), or a tuple of two of these"
                )
        found = _readings[dtype] = Reading(sizes[16], sizes[8])
    return found
