# SPDX-License-Identifier: BSD-3-Clause
"""arrays_test.py — arrays of others than NumPy, by DLPack, and who keeps their memory."""

import gc
import weakref

import fa3
import ml_dtypes
import numpy as np
import pytest
from attention_test import qkv
from kit import BOUND, assert_close, normal


class Foreign:
    """An array that is known by DLPack alone."""

    def __init__(self, array, versioned=True):
        self.array, self.versioned, self.asked = array, versioned, []
        self.shape, self.dtype = array.shape, array.dtype

    def __dlpack__(self, **options):
        self.asked.append(options)
        if not self.versioned and "max_version" in options:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(rng, versioned):
    arrays = qkv(rng)
    want = fa3.attention(*arrays)
    out = np.empty_like(want)
    foreign = [Foreign(x, versioned) for x in (*arrays, out)]
    assert fa3.attention(*foreign[:3], out=foreign[3]) is foreign[3]
    assert (out == want).all()
    assert foreign[0].asked[0] == {"max_version": (1, 0)}  # no stream on the CPU


def test_read_only_by_dlpack(rng):
    q, k, v = qkv(rng)
    q.flags.writeable = False
    assert (fa3.attention(Foreign(q), k, v, out=np.empty((2, 33, 4, 24), np.float32)) ==
            fa3.attention(q, k, v)).all()  # fmt: skip
    out = np.empty((2, 33, 4, 24), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: a read-only array"):
        fa3.attention(q, k, v, out=Foreign(out))


def test_an_output_has_to_be_given(rng):
    q, k, v = qkv(rng)
    with pytest.raises(TypeError, match="out: None, and .*Foreign has no __array_namespace__"):
        fa3.attention(Foreign(q), k, v)


def test_array_namespace(rng):
    q, k, v = qkv(rng)

    class Standard(Foreign):
        device = "cpu"

        def __array_namespace__(self):
            return np

    out = fa3.attention(Standard(q), k, v)
    assert type(out) is np.ndarray and (out == fa3.attention(q, k, v)).all()


class Bare:
    """Lends its memory, and has no attributes: no shape, no dtype, no device."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class MlxType:
    """Without an itemsize."""

    def __init__(self, name):
        self.name = name


class MlxSpace:
    float32, uint8 = MlxType("float32"), MlxType("uint8")

    @staticmethod
    def empty(shape, dtype):
        return Mlx(np.empty(shape, dtype.name))


class Mlx(Bare):
    """As MLX's arrays: no device, a dtype that is none of NumPy's, a namespace with few types."""

    @property
    def shape(self):
        return self._array.shape

    @property
    def dtype(self):
        return getattr(MlxSpace, self._array.dtype.name)

    def __array_namespace__(self):
        return MlxSpace


def test_without_attributes(rng):
    arrays = qkv(rng)
    mask = rng.standard_normal((33, 47)).astype(np.float32)
    want, lse = fa3.attention(*arrays, attn_mask=mask, return_lse=True)
    out = np.empty_like(want)
    bare = list(map(Bare, arrays))
    fa3.attention(*bare, attn_mask=Bare(mask), out=Bare(out))
    assert (out == want).all()

    plan = fa3.Plan(fa3.attention, *bare, attn_mask=Bare(mask), out=Bare(np.empty_like(want)))
    out.fill(np.nan)
    plan.run(*bare, attn_mask=Bare(mask), out=Bare(out))
    assert (out == want).all()

    dout = normal(rng, want.shape)
    given = (dout, *arrays, want, lse)
    found = fa3.attention_backward(*given, attn_mask=mask)
    made = [np.empty_like(x) for x in arrays]
    fa3.attention_backward(
        *map(Bare, given), attn_mask=Bare(mask), dq=made[0], dk=Bare(made[1]), dv=made[2]
    )
    assert all((a == b).all() for a, b in zip(made, found, strict=True))


def test_advice_without_attributes(rng):
    q, k, v = map(Bare, qkv(rng))
    need = r"out: None, and .*Bare has no __array_namespace__ .*\(out=.*numpy\.from_dlpack"
    out = np.empty((2, 33, 4, 24), np.float32)
    lse = np.empty((2, 4, 33), np.float32)
    for call in (
        lambda: fa3.attention(q, k, v),
        lambda: fa3.attention(q, k, v, out=out, return_lse=True),
        lambda: fa3.attention_backward(Bare(out), q, k, v, Bare(out), Bare(lse)),
        lambda: fa3.explain(fa3.attention, q, k, v),
        lambda: fa3.quantize(k),
    ):
        with pytest.raises(TypeError, match=need):
            call()
    with pytest.raises(ValueError, match="q: 2 dimensions, need 4"):
        fa3.attention(Bare(np.zeros((3, 4), np.float32)), k, v, out=out)
    with pytest.raises(TypeError, match="q: object, need an array.* and __dlpack_device__"):
        fa3.attention(object(), k, v, out=out)


def test_like_mlx(rng):
    arrays = qkv(rng)
    want, want_lse = fa3.attention(*arrays, return_lse=True)
    out, lse = fa3.attention(*map(Mlx, arrays), return_lse=True)
    assert type(out) is type(lse) is Mlx
    assert (out._array == want).all() and (lse._array == want_lse).all()
    assert (fa3.Plan(fa3.attention, *map(Mlx, arrays)).run(*map(Mlx, arrays))._array == want).all()

    codes = [fa3.quantize(Mlx(x)) for x in arrays]  # there is no type of 8 bits: uint8
    assert codes[0].codes._array.dtype == np.uint8
    coded = fa3.attention(*codes, out_dtype="float32", dtype="float8_e4m3fn")
    assert_close(coded._array, want, 0.2)
    with pytest.raises(TypeError, match="Mlx has no bfloat16 in its __array_namespace__"):
        fa3.attention(*codes, dtype="float8_e4m3fn")


def test_errors_of_the_producer_pass(rng):
    q, k, v = qkv(rng)

    class Broken(Foreign):
        def __dlpack__(self, **options):
            raise BufferError("no memory to lend")

    with pytest.raises(BufferError, match="no memory to lend"):
        fa3.attention(Broken(q), k, v, out=np.empty((2, 33, 4, 24), np.float32))


def test_a_gpu_array_without_a_gpu(rng):
    """The stream reaches the producer; then the context says that there is no GPU."""
    q, k, v = qkv(rng)

    class OnGpu(Foreign):
        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, *, stream=None, **options):
            self.stream = stream
            return super().__dlpack__(**options)

    array = OnGpu(q)
    out = np.empty((2, 33, 4, 24), np.float32)
    fa3.attention(array, k, v, out=out)  # what it lends is CPU memory after all
    assert array.stream == 1
    with pytest.raises(ValueError, match="stream: given for arrays on the CPU"):
        fa3.attention(array, k, v, out=out, stream=1234)
    assert array.stream == 1234


def test_requires_grad_is_refused(rng):
    q, k, v = qkv(rng)

    class Leaf(Foreign):
        requires_grad = True

        def is_neg(self):
            return False

    with pytest.raises(ValueError, match=r"q: requires a gradient.*q\.detach\(\)"):
        fa3.attention(Leaf(q), k, v, out=np.empty((2, 33, 4, 24), np.float32))


def test_nothing_is_kept(rng):
    q, k, v = qkv(rng)
    lent = Foreign(q.copy())
    alive = weakref.ref(lent)
    memory = weakref.ref(lent.array)
    fa3.attention(lent, k, v, out=np.empty((2, 33, 4, 24), np.float32))
    fa3.Plan(fa3.attention, lent, k, v, out=np.empty((2, 33, 4, 24), np.float32))
    del lent
    gc.collect()
    assert alive() is None and memory() is None


def test_what_array_struct_lends_is_held(rng):
    """Until the call ends: each look at it may make an array that nobody else keeps."""
    arrays = qkv(rng)
    made, alive = [], []

    class Fresh:
        def __init__(self, array):
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        @property
        def __array_struct__(self):
            copy = self.array.copy()
            made.append(weakref.ref(copy))
            return copy.__array_struct__

    def progress(done, total):
        alive.extend(x() is not None for x in made)

    out = np.empty((2, 33, 4, 24), np.float32)
    context = fa3.Context(progress=progress)
    fa3.attention(*map(Fresh, arrays), out=out, context=context)
    assert (out == fa3.attention(*arrays)).all()
    assert alive and all(alive)
    assert not any(x() for x in made)


def test_numbers_as_arrays(rng):
    """Of no dimensions, where they are the same for all elements."""
    q, k, v = qkv(rng)
    hidden = fa3.attention(q, k, v, attn_mask=np.array(False))
    assert (hidden == 0).all()
    shown = fa3.attention(q, k, v, attn_mask=np.array(True))
    assert_close(shown, fa3.attention(q, k, v), BOUND["float32"])
    codes = q.astype(ml_dtypes.float8_e4m3fn)
    ones = {"q_scale": 0.5, "k_scale": 0.5, "v_scale": 2.0}
    want, got = (
        fa3.attention(codes, codes, codes, **{n: make(x, np.float32) for n, x in ones.items()})
        for make in (lambda x, t: np.array([x], t), np.array)
    )
    assert (got == want).all()
    assert (fa3.attention(codes, codes, codes, v_scale=np.array(2, np.float32)) != got).any()
