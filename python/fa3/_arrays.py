# SPDX-License-Identifier: BSD-3-Clause
"""Outputs that are made for the caller: of the kind, and in the place, of an input."""

import sys
from typing import Any

try:
    import numpy
except ImportError:  # nothing of ours needs it, only its arrays
    numpy = None

from ._fa3 import Reading, Spec, spec_of

# Of NumPy, PyTorch or anything with __dlpack__ and __dlpack_device__; or a Spec where only a plan
# is made. Of attributes nothing is taken for granted: shape, dtype and device may be missing.
Array = Any


_RANKS = {
    (3, 4): "4, (batch, seqlen, heads, head_dim), or 3, (total tokens, heads, head_dim), with "
    "cu_seqlens",
    (2, 3): "3, (batch, heads, seqlen), or 2, (heads, total tokens), with cu_seqlens",
    (1,): "1, (batch + 1)",
    (4, 5): "5, (parts, batch, seqlen, heads, head_dim), or 4, (parts, total, heads, head_dim)",
}


def shape_of(name: str, array: Array, ranks: tuple[int, ...] = (3, 4)) -> tuple[int, ...]:
    """The extents of an argument, which must be an array of one of these ranks."""
    shape = extents_of(name, array)
    if len(shape) not in ranks:
        raise ValueError(f"{name}: {len(shape)} dimensions, need {_RANKS[ranks]}")
    return shape


def extents_of(name: str, array: Array) -> tuple[int, ...]:
    """The extents of an argument, which must be an array."""
    try:
        return tuple(array.shape)
    except AttributeError:
        return tuple(spec_of(name, array).shape)


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
    missing = "__array_namespace__"
    if hasattr(like, missing):
        space = like.__array_namespace__()
        if dtype is None:
            dtype = "dtype" if hasattr(like, "dtype") else spec_of("out", like).dtype
        kind = like.dtype if dtype == "dtype" else getattr(space, dtype, None)
        if kind is not None and hasattr(space, "empty"):
            place = {"device": like.device} if hasattr(like, "device") else {}
            return space.empty(shape, dtype=kind, **place)
        missing = f"{'empty' if kind is not None else dtype} in its __array_namespace__"
    raise TypeError(
        f"out: None, and {type(like).__module__}.{type(like).__name__} has no {missing} "
        "to make one; pass the arrays to write to (out=, lse=, dq=, …), or pass inputs of another "
        "kind: numpy.from_dlpack, torch.from_dlpack"
    )


def has_type(array: Array, name: str) -> bool:
    """Whether arrays of this kind can have a type."""
    if is_numpy(array):
        try:
            _numpy_dtype(name)
        except TypeError:
            return False
    elif hasattr(array, "__array_namespace__"):
        return hasattr(array.__array_namespace__(), name)
    return True


def workspace_for(like: Array, size: int) -> Array:
    """Bytes where `like` is. On the CPU of NumPy, whatever `like` is: nobody sees them."""
    cpu = 1  # DLPack's kDLCPU
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.empty(size, dtype=torch.uint8, device=like.device)
    if numpy is not None and (is_numpy(like) or like.__dlpack_device__()[0] == cpu):
        return numpy.empty(size, numpy.uint8)
    try:
        return empty(like, (size,), "uint8")
    except TypeError:
        raise TypeError(
            f"workspace: None, and nothing makes one for {type(like).__name__}; pass {size} bytes "
            "(uint8) on its device"
        ) from None


def is_numpy(array: Array) -> bool:
    return type(array).__module__ == "numpy"


def is_eight_bit(array: Array) -> bool:
    """Whether an array holds codes of 8 bits."""
    dtype = getattr(array, "dtype", None)
    if not hasattr(dtype, "itemsize"):
        name = dtype if type(dtype) is str else spec_of("q", array).dtype  # a Spec has a name
        return name in ("int8", "float8_e4m3fn")
    return dtype.itemsize == 1


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
