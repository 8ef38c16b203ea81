# SPDX-License-Identifier: BSD-3-Clause
"""compat_private_test.py — the functions that libraries of context parallelism import although
their names begin with an underscore, against FP64."""

import pytest
import torch
from fa3.compat import flash_attn as two
from fa3.compat import flash_attn_interface as three
from torch_kit import BOUND, assert_close, attend, each_device, gradients, normal, qkv, some

both = pytest.mark.parametrize("family", [three, two], ids=["three", "two"])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261128)


def forward(family, q, k, v, causal=False, left=-1, right=-1, softcap=0.0, scale=None, varlen=None,
            **others):  # fmt: skip
    """(out, lse, …) by the names that the family has for the arguments."""
    if family is three:
        names = dict(zip(("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
                         varlen or (), strict=False))  # fmt: skip
        return three._flash_attn_forward(
            q, k, v, causal=causal, window_size_left=left, window_size_right=right,
            softcap=softcap, softmax_scale=scale, **names, **others,
        )  # fmt: skip
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    function = two._flash_attn_varlen_forward if varlen else two._flash_attn_forward
    return function(
        q, k, v, *(varlen or ()), 0.0, scale, causal, left, right, softcap, None, False, **others
    )


def backward(family, dout, q, k, v, out, lse, wanted, causal=False, left=-1, right=-1, softcap=0.0,
             scale=None, varlen=None):  # fmt: skip
    if family is three:
        names = dict(zip(("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
                         varlen or (), strict=False))  # fmt: skip
        dq, dk, dv = wanted
        return three._flash_attn_backward(
            dout, q, k, v, out, lse, dq=dq, dk=dk, dv=dv, is_causal=causal, window_size_left=left,
            window_size_right=right, softcap=softcap, softmax_scale=scale, **names,
        )  # fmt: skip
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    function = two._flash_attn_varlen_backward if varlen else two._flash_attn_backward
    return function(
        dout, q, k, v, out, lse, *wanted, *(varlen or ()), 0.0, scale, causal, left, right,
        softcap, None, False,
    )  # fmt: skip


def filled(*tensors):
    return [torch.full_like(x, torch.nan) for x in tensors]


@each_device
@both
@pytest.mark.parametrize("options", [
    {}, {"causal": True}, {"left": 5, "right": 3}, {"left": 4}, {"causal": True, "left": 6},
    {"softcap": 2.0, "scale": 0.3},
], ids=str)  # fmt: skip
def test_forward_and_backward(device, family, options):
    q, k, v = qkv(some(device), device)
    bound = BOUND[some(device)]
    sides = [options.get(side, -1) for side in ("left", "right")]
    want, want_lse = attend(
        q, k, v, causal=options.get("causal", False), softcap=options.get("softcap", 0.0),
        window=tuple(None if side < 0 else side for side in sides), scale=options.get("scale"),
    )  # fmt: skip
    with torch.no_grad():
        out, lse, *rest = forward(family, q, k, v, **options)
        assert len(rest) == 2
        assert_close(out, want, bound)
        rows = want_lse.isfinite()
        assert_close(lse[rows], want_lse[rows], 1e-5)
        dout = normal(*out.shape, dtype=out.dtype, device=device)
        wanted = filled(q, k, v)
        # A ring's logarithms are a view whose last stride is not 1.
        lse = lse.transpose(1, 2).contiguous().transpose(1, 2)
        sums = backward(family, dout, q, k, v, out, lse, wanted, **options)
    for a, b in zip(wanted, gradients(want, (q, k, v), dout), strict=True):
        assert_close(a, b, 4 * bound)
    assert_close(sums, (dout.double() * out.double()).sum(-1).transpose(1, 2), 1e-5)


@each_device
@both
def test_parts_of_a_sequence(device, family):
    """What a ring does: each part of the keys with the output and the logarithms of all."""
    q, k, v = (x.detach() for x in qkv(some(device), device))
    out, lse, *_ = forward(family, q, k, v)
    dout = normal(*out.shape, dtype=out.dtype, device=device)
    whole = filled(q, k, v)
    backward(family, dout, q, k, v, out, lse, whole)
    dq = torch.zeros_like(q, dtype=torch.float32)
    for part in (slice(0, 20), slice(20, None)):
        rows = filled(q, k, v)
        wanted = rows[0], rows[1][:, part], rows[2][:, part]
        backward(family, dout, q, k[:, part], v[:, part], out, lse, wanted)
        dq += wanted[0]
        bound = 2 * BOUND[some(device)]
        for a, b in zip(wanted[1:], whole[1:], strict=True):
            assert_close(a, b[:, part], bound)
        outside = rows[1][:, 20:] if part.start == 0 else rows[1][:, :20]
        assert outside.isnan().all()
    assert_close(dq, whole[0], bound)


@each_device
@both
def test_varlen(device, family):
    q, k, v = (normal(n, h, 32, dtype=some(device), device=device, grad=True)
               for n, h in ((30, 4), (40, 2), (40, 2)))  # fmt: skip
    cu_q = torch.tensor([0, 12, 30], dtype=torch.int32, device=device)
    cu_k = torch.tensor([0, 15, 40], dtype=torch.int32, device=device)
    varlen = cu_q, cu_k, 18, 25
    parts = [
        attend(q[None, a:b], k[None, c:d], v[None, c:d], causal=True)
        for a, b, c, d in ((0, 12, 0, 15), (12, 30, 15, 40))
    ]
    want = torch.cat([out[0] for out, _ in parts])
    bound = BOUND[some(device)]
    with torch.no_grad():
        out, lse, *_ = forward(family, q, k, v, causal=True, varlen=varlen)
        assert_close(out, want, bound)
        assert_close(lse, torch.cat([lse[0] for _, lse in parts], 1), 1e-5)
        dout = normal(*out.shape, dtype=out.dtype, device=device)
        wanted = filled(q, k, v)
        sums = backward(family, dout, q, k, v, out, lse, wanted, causal=True, varlen=varlen)
        again = filled(q, k, v)
        varlen = cu_q.long(), cu_k.long(), torch.tensor(18), torch.tensor(25)
        backward(family, dout, q, k, v, out, lse, again, causal=True, varlen=varlen)
    for a, b in zip(wanted, gradients(want, (q, k, v), dout), strict=True):
        assert_close(a, b, 4 * bound)
    for a, b in zip(again, wanted, strict=True):
        assert_close(a, b, bound)
    assert_close(sums, (dout.double() * out.double()).sum(-1).T, 1e-5)


@each_device
def test_rows_of_no_sequence(device):
    """Are 0, and −inf, with and without zero_tensors."""
    x = normal(10, 2, 16, dtype=some(device), device=device)
    cu = torch.tensor([0, 4, 8], dtype=torch.int32, device=device)
    varlen = cu, cu, 4, 4
    for zero in (False, True):
        out, lse, *_ = forward(two, x, x, x, varlen=varlen, zero_tensors=zero)
        wanted = filled(x, x, x)
        backward(two, torch.ones_like(x), x, x, x, out, lse, wanted, varlen=varlen)
        assert all((t[8:] == 0).all() for t in (out, *wanted)) and (lse[:, 8:] == -torch.inf).all()


@each_device
@both
def test_only_some_gradients(device, family):
    q, k, v = (x.detach() for x in qkv(some(device), device))
    out, lse, *_ = forward(family, q, k, v)
    dout = normal(*out.shape, dtype=out.dtype, device=device)
    whole = filled(q, k, v)
    want = backward(family, dout, q, k, v, out, lse, whole)
    dk = torch.empty_like(k)
    got = backward(family, dout, q, k, v, out, lse, (None, dk, None))
    assert torch.equal(got, want)
    assert_close(dk, whole[1], BOUND[some(device)])
    assert torch.equal(backward(family, dout, q, k, v, out, lse, (None,) * 3), want)


def test_alibi():
    q, k, v = (x.detach().requires_grad_() for x in qkv())
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    want = two.flash_attn_func(q, k, v, alibi_slopes=slopes)
    dout = normal(*want.shape)
    expected = gradients(want, (q, k, v), dout)
    scale = q.shape[-1] ** -0.5
    wanted = filled(q, k, v)
    with torch.no_grad():
        out, lse, *_ = two._flash_attn_forward(
            q, k, v, 0.0, scale, False, -1, -1, 0.0, slopes, False
        )
        assert_close(out, want, 1e-6)
        two._flash_attn_backward(
            dout, q, k, v, out, lse, *wanted, 0.0, scale, False, -1, -1, 0.0, slopes, False
        )
    for a, b in zip(wanted, expected, strict=True):
        assert_close(a, b, 1e-6)


def test_seqused_and_out():
    q, k, v = qkv(grad=False)
    used = torch.tensor([20, 47], dtype=torch.int32)
    into = torch.empty_like(q)
    out, lse, *_ = three._flash_attn_forward(q, k, v, out_=into, seqused_k=used)
    assert out is into
    wanted = filled(q, k, v)
    dout = torch.randn_like(out)
    three._flash_attn_backward(
        dout, q, k, v, out, lse, sequed_k=used, dq=wanted[0], dk=wanted[1], dv=wanted[2]
    )
    short = [x[:1, :20] if i else x[:1] for i, x in enumerate((q, k, v))]
    inputs = [x.clone().requires_grad_() for x in short]
    want = attend(*inputs)[0]
    assert_close(out[:1], want, 3e-6)
    for a, b in zip(wanted, gradients(want, inputs, dout[:1]), strict=True):
        assert_close(a[:1, : b.shape[1]], b, 12e-6)
    assert (wanted[1][0, 20:] == 0).all()


@pytest.mark.parametrize("family", [three, two], ids=["three", "two"])
def test_compiled_in_one_graph(family):
    """An autograd.Function as those libraries write it."""

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            out, lse, *_ = forward(family, q, k, v, causal=True)
            ctx.save_for_backward(q, k, v, out, lse)
            return out

        @staticmethod
        def backward(ctx, dout):
            q, k, v, out, lse = ctx.saved_tensors
            wanted = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
            backward(family, dout, q, k, v, out, lse, wanted, causal=True)
            return wanted

    inputs = qkv()
    dout = normal(2, 33, 4, 32)
    want = Attention.apply(*inputs)
    compiled = torch.compile(Attention.apply, backend="aot_eager", fullgraph=True)(*inputs)
    assert torch.equal(compiled, want)
    for a, b in zip(gradients(compiled, inputs, dout), gradients(want, inputs, dout), strict=True):
        assert torch.equal(a, b)


@both
def test_compiled_with_lengths_as_tensors(family):
    x = normal(10, 2, 16)
    cu = torch.tensor([0, 3, 10], dtype=torch.int32)
    out, lse, *_ = forward(family, x, x, x, varlen=(cu, cu, 7, 7))
    dout = normal(10, 2, 16)

    def run(cu):
        wanted = [torch.zeros_like(x) for _ in "qkv"]
        longest = (cu[1:] - cu[:-1]).max()
        backward(family, dout, x, x, x, out, lse, wanted, varlen=(cu, cu, longest, longest))
        return wanted

    calls = []

    def backend(graph, inputs):
        calls.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    compiled = torch.compile(run, backend=backend, fullgraph=True)
    for a, b in zip(compiled(cu), run(cu), strict=True):
        assert_close(a, b, 3e-6)
    assert "fa3.backward" in calls and "item" not in calls  # which would wait for the device


WRONG = {
    "dq: float64": lambda t: t.update(dq=t["dq"].double()),
    r"dk: float32 \(2, 40, 2, 32\)": lambda t: t.update(dk=t["dk"][:, :40]),
    "dv: list": lambda t: t.update(dv=[1]),
    r"softmax_lse: float32 \(2, 33, 4\)": lambda t: t.update(lse=t["lse"].transpose(1, 2)),
    "softmax_lse: float64": lambda t: t.update(lse=t["lse"].double()),
    "dout: float32": lambda t: t.update(dout=t["dout"][:1]),
    "out: float16": lambda t: t.update(out=t["out"].half()),
    "softmax_scale: 0, need another": lambda t: t.update(scale=0),
}


@both
@pytest.mark.parametrize("said", WRONG)
def test_wrong_arguments_are_named_before_anything_is_written(family, said):
    q, k, v = qkv(grad=False)
    out, lse, *_ = forward(family, q, k, v)
    dq, dk, dv = filled(q, k, v)
    given = {"dout": torch.randn_like(out), "out": out, "lse": lse, "dq": dq, "dk": dk, "dv": dv}
    WRONG[said](given)
    wanted = tuple(given[n] for n in ("dq", "dk", "dv"))
    with pytest.raises((ValueError, TypeError), match=f"^{said}"):
        backward(
            family, given["dout"], q, k, v, given["out"], given["lse"], wanted,
            scale=given.get("scale"),
        )  # fmt: skip
    assert dq.isnan().all() and dk.isnan().all() and dv.isnan().all()


def test_eight_bits_have_no_gradients():
    x = torch.randn(1, 4, 2, 16).to(torch.float8_e4m3fn)
    out = torch.zeros(1, 4, 2, 16, dtype=torch.bfloat16)
    with pytest.raises(NotImplementedError, match="q: torch.float8_e4m3fn has no gradients"):
        three._flash_attn_backward(out, x, x, x, out, torch.zeros(1, 2, 4), dq=torch.zeros(1))
