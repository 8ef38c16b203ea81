# SPDX-License-Identifier: BSD-3-Clause
"""codes_test.py — attention on codes of 8 bits as an operator: fa3.torch.attention_on_codes."""

import fa3
import fa3.compat.flash_attn_interface as three
import fa3.torch
import pytest
import torch
from torch_kit import each_device, normal

ours = fa3.torch.attention_on_codes
F8 = torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261128)
    torch.compiler.reset()


def codes(device, *shape):
    return normal(*(shape or (2, 48, 4, 64)), device=device).to(F8)


def scales(device, heads=4):
    return {f"{name}_scale": torch.rand(2, heads, device=device) + 0.5 for name in "qkv"}


def quantized(device, kind):
    """q, k and v of each kind that fa3.quantize makes."""
    x = [normal(2, 48, 4, 64, dtype=torch.bfloat16, device=device) for _ in "qkv"]
    if kind == "heads":
        return [fa3.quantize(t) for t in x]
    if kind == "tokens":
        return [*(fa3.quantize(t, "int8", block=(1, 0)) for t in x[:2]), fa3.quantize(x[2])]
    if kind == "means":
        q, k = fa3.quantize(x[0], "int8"), fa3.quantize(x[1], "int8", offset=True)
        return [q, k, fa3.quantize(x[2], offset=True)]
    return [*(fa3.quantize(t, "int8") for t in x[:2]), x[2]]  # v of 16 bits


@each_device
@pytest.mark.parametrize("kind", ["heads", "tokens", "means", "16 bits"])
@pytest.mark.parametrize("terms", [{}, {"causal": True}, {"window": (9, 2)}], ids=str)
def test_like_fa3_attention(device, kind, terms):
    inputs = quantized(device, kind)
    want, want_lse = fa3.attention(*inputs, return_lse=True, **terms)
    out, lse = ours(*inputs, return_lse=True, **terms)
    assert out.dtype == torch.bfloat16 and torch.equal(out, want) and torch.equal(lse, want_lse)


@each_device
def test_varlen_and_numbers_in_tensors(device):
    x = codes(device, 48, 4, 64)
    cu = torch.tensor([0, 20, 48], dtype=torch.int32, device=device)
    how = {**scales(device), "cu_seqlens_q": cu, "cu_seqlens_kv": cu, "causal": True}
    want = fa3.attention(x, x, x, max_seqlen_q=28, max_seqlen_kv=28, softmax_scale=0.25, **how)
    longest = (cu[1:] - cu[:-1]).max()
    got = ours(x, x, x, max_seqlen_q=longest, max_seqlen_kv=longest,
               softmax_scale=torch.tensor(0.25), **how)  # fmt: skip
    assert torch.equal(got, want)


@each_device
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_without_breaks(device, backend):
    def call(x, y, how):
        first = three.flash_attn_func(x, y, y, causal=True, **how)
        return first, three.flash_attn_with_kvcache(x, y, y, cache_seqlens=40, **how)

    x, y = codes(device), codes(device)
    how = {name.replace("scale", "descale"): s for name, s in scales(device).items()}
    compiled = torch.compile(call, backend=backend, fullgraph=True)
    for a, b in zip(compiled(x, y, how), call(x, y, how), strict=True):
        assert torch.equal(a, b)


@each_device
def test_opcheck(device):
    """Of int8 with v in 16 bits, and of E4M3 but for its schema test, which cannot compare that."""
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    v = normal(2, 48, 4, 64, dtype=torch.bfloat16, device=device)
    i8 = torch.randint(-128, 128, (2, 48, 4, 64), dtype=torch.int8, device=device)
    for (q, v), used in (((i8, v), tests), ((codes(device), codes(device)), tests[1:])):
        of_q, of_k, _ = scales(device).values()
        arguments = (q, q, v, *(None,) * 19, True, None, None, False, 0, None, 0.0, 0, 0, False,
                     False, of_q, of_k, *(None,) * 4, [0] * 6, torch.bfloat16)  # fmt: skip
        torch.library.opcheck(torch.ops.fa3.forward_codes.default, arguments, test_utils=used)


@each_device
def test_gradients_are_refused(device):
    """Not lost without a word; what is computed without them is what it was."""
    x, y = normal(2, 48, 4, 64, device=device, grad=True), codes(device)
    want = three.flash_attn_func(y, y, y)
    refusal = "8-bit q, k and v have no gradients"
    compiled = torch.compile(ours, backend="aot_eager")
    for call in (three.flash_attn_func, ours):
        out = call(y, x.to(F8), y)
        with pytest.raises(NotImplementedError, match=refusal):
            out.float().sum().backward()
    with pytest.raises(Exception, match=refusal):  # which compiles the backward with the forward
        compiled(y, x.to(F8), y)
    for call in (three.flash_attn_func, ours, compiled):
        with torch.no_grad():
            assert not call(y, x.to(F8), y).requires_grad
    assert torch.equal(three.flash_attn_func(y, y, y), want)


@each_device
def test_vmap_and_views(device):
    x = codes(device, 3, 2, 48, 4, 64)
    mapped = torch.vmap(ours)(x, x, x)
    for a, one in zip(mapped, x, strict=True):
        assert torch.equal(a, ours(one, one, one))
    spread = torch.zeros(2, 48, 4, 128, device=device).to(F8)
    spread.view(torch.uint8)[..., ::2] = x[0].view(torch.uint8)
    assert torch.equal(ours(*(spread[..., ::2],) * 3), ours(*(x[0],) * 3))


def test_workspaces_of_tensors_of_a_gpu_are_pytorchs(monkeypatch):
    """Here on the CPU, which decodes in one; gpu_test.py captures graphs."""
    asked = []

    def allocate(like, stream, size):
        asked.append(size)
        return torch.empty(size, dtype=torch.uint8)

    x = codes("cpu")
    want = fa3.attention(x, x, x)
    monkeypatch.setattr(fa3._plan, "_is_torch_cuda", lambda x: isinstance(x, torch.Tensor))
    monkeypatch.setattr(fa3._plan, "_workspace", allocate)
    assert torch.equal(fa3.attention(x, x, x), want)
    assert asked == [fa3.Plan(fa3.attention, x, x, x).workspace_bytes] and asked[0] > 0


def test_refused():
    x = codes("cpu")
    q = fa3.quantize(torch.randn(2, 48, 4, 64))
    with pytest.raises(ValueError, match="q_scale: given, but q is a Quantized"):
        ours(q, q, q, q_scale=torch.ones(1))
    with pytest.raises(TypeError, match="v: ndarray, need a torch.Tensor"):
        ours(x, x, x.float().numpy())
    with pytest.raises(TypeError, match="k_block: need a tuple of rows and columns"):
        ours(x, x, x, k_block=3)
    with pytest.raises(NotImplementedError, match="forward-mode derivatives"):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(torch.ones(1), torch.ones(1))
            ours(x, x, x, v_scale=dual)
