# SPDX-License-Identifier: BSD-3-Clause
"""compile_test.py — numbers that change under torch.compile, numbers that are tensors, and what is
refused of tensors without data."""

import fa3.torch
import pytest
import torch
import torch._dynamo
from fa3.compat.flash_attn import flash_attn_varlen_func
from fa3.compat.flash_attn_interface import flash_attn_with_kvcache
from fa3.torch.function import TELLS_CONSTANTS
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_kit import each_device, normal, qkv, some

attention = fa3.torch.attention


@pytest.fixture(autouse=True)
def anew():
    torch.manual_seed(20261128)
    torch._dynamo.reset()


# ---- Numbers that change ------------------------------------------------------------------------

NUMBERS = {
    "cache_seqlens": lambda q, k, n: flash_attn_with_kvcache(q, k, k, cache_seqlens=n),
    "window": lambda q, k, n: attention(q, k, k, window=(n, 0)),
    "window beside causal": lambda q, k, n: attention(q, k, k, window=(n, n), causal=True),
    "window_size": lambda q, k, n: flash_attn_with_kvcache(q, k, k, window_size=(n, n)),
    "softmax_scale": lambda q, k, n: attention(q, k, k, softmax_scale=n / 7),
    "integer softmax_scale": lambda q, k, n: attention(q, k, k, softmax_scale=n),
    "softcap": lambda q, k, n: attention(q, k, k, softcap=n / 2),
    "seed": lambda q, k, n: attention(
        *(x.bfloat16() for x in (q, k, k)), precision="eight_bit", seed=n
    ),
    "scale": lambda q, k, n: fa3.torch.scaled_dot_product_attention(q, k, k, scale=n / 7),
}


FLOATS = ("softmax_scale", "integer softmax_scale", "softcap", "scale")


@each_device
@pytest.mark.parametrize("name", NUMBERS)
def test_compiled_twice_for_many_values(device, name):
    if name in FLOATS and not TELLS_CONSTANTS:
        pytest.skip("PyTorch compiles for each value of a float")
    q, k, _ = qkv(some(device), device, batch=2, rows=16, keys=16, heads_kv=4, grad=False)
    call, counter = NUMBERS[name], CompileCounterWithBackend("eager")
    compiled = torch.compile(call, backend=counter, fullgraph=True)
    for n in range(2, 14):
        assert torch.equal(compiled(q, k, n), call(q, k, n))
    assert counter.frame_count == 2


@each_device
def test_max_seqlen_that_changes(device):
    x = normal(40, 4, 16, dtype=some(device), device=device)
    cu = torch.tensor([0, 13, 40], dtype=torch.int32, device=device)

    def call(n):
        return attention(x, x, x, cu_seqlens_q=cu, cu_seqlens_kv=cu, max_seqlen_q=n,
                         max_seqlen_kv=n)  # fmt: skip

    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(call, backend=counter, fullgraph=True)
    for n in range(27, 40):
        assert torch.equal(compiled(n), call(n))
    assert counter.frame_count == 2


@pytest.mark.skipif(not TELLS_CONSTANTS, reason="PyTorch compiles for each value of a float")
def test_scale_that_changes_in_a_step_by_inductor():
    """Which compiles for each value of a float that is no tensor, where Dynamo does not."""
    inputs = qkv(heads_kv=4)

    def loss(q, k, v, scale):
        return attention(q, k, v, softmax_scale=scale).square().sum()

    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(loss, backend=counter, fullgraph=True)
    for scale in (0.1, 0.2, 0.3, 0.5):
        got = torch.autograd.grad(compiled(*inputs, scale), inputs)
        want = torch.autograd.grad(loss(*inputs, scale), inputs)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert counter.frame_count == 2


@pytest.mark.parametrize("dynamic", [False, True])
def test_sdpa_compiled(dynamic):
    x = normal(2, 4, 9, 16)
    sdpa = fa3.torch.scaled_dot_product_attention
    compiled = torch.compile(sdpa, backend="eager", fullgraph=True, dynamic=dynamic)
    assert torch.equal(compiled(x, x, x), sdpa(x, x, x))
    assert torch.equal(compiled(x, x, x, dropout_p=0), sdpa(x, x, x))


# ---- Numbers that are tensors -------------------------------------------------------------------


@each_device
@pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])
def test_max_seqlen_as_a_tensor(device, backend):
    x = normal(10, 2, 16, dtype=some(device), device=device, grad=True)
    cu = torch.tensor([0, 3, 10], dtype=torch.int32, device=device)

    def call(x, cu):
        longest = (cu[1:] - cu[:-1]).max()
        return flash_attn_varlen_func(x, x, x, cu, cu, longest, longest, causal=True,
                                      deterministic=True)  # fmt: skip

    want = flash_attn_varlen_func(x, x, x, cu, cu, 7, 7, causal=True, deterministic=True)
    got = (torch.compile(call, backend=backend, fullgraph=True) if backend else call)(x, cu)
    assert torch.equal(got, want)
    dout = torch.randn_like(want)
    assert torch.equal(torch.autograd.grad(got, x, dout)[0], torch.autograd.grad(want, x, dout)[0])


def test_max_seqlen_as_a_tensor_with_a_mask_of_its_columns():
    """Which nobody knows before the run; the run refuses what does not fit."""
    q, x, cu = normal(2, 5, 2, 16), normal(10, 2, 16), torch.tensor([0, 3, 10], dtype=torch.int32)

    def call(q, x, cu, mask):
        longest = (cu[1:] - cu[:-1]).max()
        return attention(q, x, x, cu_seqlens_kv=cu, max_seqlen_kv=longest, attn_mask=mask)

    compiled, mask = torch.compile(call, backend="eager", fullgraph=True), normal(5, 7)
    want = attention(q, x, x, cu_seqlens_kv=cu, max_seqlen_kv=7, attn_mask=mask)
    assert torch.equal(compiled(q, x, cu, mask), want)
    with pytest.raises(ValueError, match=r"attn_mask.shape\[3\]=9"):
        compiled(q, x, cu, normal(5, 9))


@each_device
def test_learnable_scale_in_a_compiled_step(device):
    inputs = qkv(some(device), device)
    scale = torch.tensor(0.2, device=device, requires_grad=True)

    def loss(q, k, v, scale, cap):
        out = attention(q, k, v, softmax_scale=scale.exp(), softcap=cap, causal=True)
        return out.float().square().sum()

    cap = torch.tensor(3.0, device=device)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    got = torch.autograd.grad(compiled(*inputs, scale, cap), (scale, inputs[2]))
    want = torch.autograd.grad(loss(*inputs, scale, cap), (scale, inputs[2]))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2 if device == "cuda" else 1e-5, atol=1e-3)


@each_device
def test_opcheck_of_numbers_in_tensors(device):
    q, k, v = qkv(some(device), device)
    number = torch.tensor(0.3, device=device, requires_grad=True)
    cap, longest = torch.tensor(2.0), torch.tensor(33)
    common = (q, k, v, *(None,) * 13, number, cap, longest, longest, None, None, True, None, None,
              False, 0, None, 0.0, 0, 0, False, True)  # fmt: skip
    torch.library.opcheck(torch.ops.fa3.forward.default, (*common, "default", 0, 0))
    with torch.no_grad():
        common = tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in common)
        out, lse = torch.ops.fa3.forward(*common, "default", 0, 0)
        for needs in ((True, True, True, False, False, True), (False,) * 5 + (True,)):
            torch.library.opcheck(
                torch.ops.fa3.backward.default,
                (torch.randn_like(out), None, *common[:3], out, lse, *common[3:], *needs),
            )


# ---- Tensors without data -----------------------------------------------------------------------


def ones(*shape, dtype=torch.float32):
    return lambda: torch.ones(shape, dtype=dtype)


def whole(*shape, dtype=torch.int32):
    return ones(*shape, dtype=dtype)


X, THREE = ones(2, 6, 4, 16), ones(6, 4, 16)
CODES = ones(2, 6, 4, 16, dtype=torch.float8_e4m3fn)
VARLEN = {"cu_seqlens_q": whole(2), "cu_seqlens_kv": whole(2)}
on_codes = fa3.torch.attention_on_codes
BAD = {
    "keys": (attention, (X, X, ones(2, 5, 4, 16)), {}),
    "batch": (attention, (X, ones(1, 6, 4, 16), ones(1, 6, 4, 16)), {}),
    "heads": (attention, (X, ones(2, 6, 3, 16), ones(2, 6, 3, 16)), {}),
    "head dim": (attention, (X, ones(2, 6, 4, 8), X), {}),
    "wide": (attention, (ones(1, 2, 1, 513),) * 3, {}),
    "no cu_seqlens": (attention, (THREE,) * 3, {}),
    "dense cu_seqlens": (attention, (X,) * 3, VARLEN),
    "negative bound": (attention, (THREE,) * 3, {**VARLEN, "max_seqlen_q": -2}),
    "half a token": (attention, (THREE,) * 3, {**VARLEN, "max_seqlen_q": 2.5}),
    "int64": (attention, (THREE,) * 3, {**VARLEN, "cu_seqlens_q": whole(2, dtype=torch.int64)}),
    "strides": (
        attention, (THREE,) * 3,
        {**VARLEN, "cu_seqlens_q": lambda: torch.ones(4, dtype=torch.int32)[::2]},
    ),
    "mixed": (attention, (X, ones(2, 6, 4, 16, dtype=torch.float16), X), {}),
    "long": (attention, (whole(2, 6, 4, 16, dtype=torch.int64),) * 3, {}),
    "bool": (attention, (ones(2, 6, 4, 16, dtype=torch.bool),) * 3, {}),
    "left": (attention, (X,) * 3, {"window": (-3, 0)}),
    "fp8 of float32": (attention, (X,) * 3, {"precision": "fp8"}),
    "used": (attention, (X,) * 3, {"seqused_q": whole(3)}),
    "slopes": (attention, (X,) * 3, {"alibi_slopes": ones(3)}),
    "slopes of 16 bits": (attention, (X,) * 3, {"alibi_slopes": ones(4, dtype=torch.float16)}),
    "one id": (attention, (X,) * 3, {"sequence_ids_q": whole(2, 6)}),
    "mask": (attention, (X,) * 3, {"attn_mask": ones(5, 6)}),
    "NaN": (attention, (X,) * 3, {"softmax_scale": float("nan")}),
    "text": (attention, (X,) * 3, {"softmax_scale": "1"}),
    "softcap": (attention, (X,) * 3, {"softcap": -1.0}),
    "scales": (on_codes, (CODES,) * 3, {"q_scale": ones(3)}),
    "codes of float32": (on_codes, (X,) * 3, {}),
    "block": (on_codes, (CODES,) * 3, {"q_block": (1,)}),
    "out_dtype": (on_codes, (CODES,) * 3, {"out_dtype": torch.float64}),
}  # fmt: skip


def refusal(call, inputs, terms, device=None):
    with torch.device(device) if device else torch.device("cpu"):
        inputs = [make() for make in inputs]
        terms = {name: x() if callable(x) else x for name, x in terms.items()}
    with pytest.raises(Exception) as error:
        call(*inputs, **terms)
    return type(error.value), str(error.value)


@pytest.mark.parametrize("name", BAD)
def test_refused_without_data_in_the_same_words(name):
    call, inputs, terms = BAD[name]
    want = refusal(call, inputs, terms)
    assert want[0] in (ValueError, TypeError, NotImplementedError)
    assert refusal(call, inputs, terms, "meta") == want
    with FakeTensorMode():
        assert refusal(call, inputs, terms) == want


def test_refused_while_compiling():
    """Also where extents are symbols, which stay free."""
    x, short = torch.ones(2, 6, 4, 16), torch.ones(2, 5, 4, 16)
    for dynamic in (False, True):
        compiled = torch.compile(attention, backend="eager", fullgraph=True, dynamic=dynamic)
        assert compiled(x, x, x).shape == x.shape
        with pytest.raises(Exception, match=r"ValueError\('attention: v.shape\[1\]=5 disagrees"):
            compiled(x, x, short)
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(attention, backend=counter, fullgraph=True, dynamic=True)
    for rows in range(3, 9):
        x = torch.ones(2, rows, 4, 16)
        assert torch.equal(compiled(x, x, x), attention(x, x, x))
    assert counter.frame_count == 1


def test_backward_refuses_without_data():
    for device in ("cpu", "meta"):
        q, k, out, lse = (torch.ones(s, device=device) for s in
                          ((2, 6, 4, 16), (2, 6, 4, 16), (2, 5, 4, 16), (2, 4, 6)))  # fmt: skip
        with pytest.raises(ValueError, match=r"out.shape\[1\]=5"):
            torch.ops.fa3.backward(q, None, q, k, k, out, lse, *(None,) * 19, False, None, None,
                                   False, 0, None, 0.0, 0, 0, False, False, *(True,) * 3,
                                   *(False,) * 3)  # fmt: skip


@pytest.mark.parametrize("columns", [False, True])
def test_extents_that_only_the_run_knows(columns):
    def call(x, n):
        if columns:
            y = x[:, : n.item()]
            return attention(y, y, y)
        y = x[0][x[0, :, 0, 0] > 0]
        cu = torch.tensor([0, 1], dtype=torch.int32) * y.shape[0]
        return attention(y, y, y, cu_seqlens_q=cu, cu_seqlens_kv=cu)

    config = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with torch._dynamo.config.patch(config):
        compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
        for n in (5, 7):
            x = normal(2, 9, 4, 16)
            assert torch.equal(compiled(x, torch.tensor(n)), call(x, torch.tensor(n)))
