# SPDX-License-Identifier: BSD-3-Clause
"""operators_test.py — torch.ops.fa3 in PyTorch's machinery: opcheck, compile, autocast, modes."""

import fa3.torch
import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch_kit import assert_close, each_device, normal, qkv, some


def arguments(q, k, v, *, lengths=(None,) * 4, longest=(None, None), causal=False,
              window=(None, None), sinks=None, mask=None, top_left=False, scale=None, softcap=0.0,
              deterministic=False, read=(None,) * 4, chunk=0):  # fmt: skip
    others = (None,) * 7  # what finds keys in caches, slopes, ids and a tree
    return (
        q, k, v, *lengths, *others, sinks, mask, *read, *longest, causal, *window, top_left, chunk,
        scale, softcap, 0, 0, False, deterministic,
    )  # fmt: skip


def variants(device):
    """opcheck compares gradients of two runs, on a GPU the same bits only where it is asked for."""
    q, k, v = qkv(some(device), device)
    same = {"deterministic": device == "cuda"}
    yield "plain", arguments(q, k, v, **same)
    yield "causal", arguments(q, k, v, causal=True, scale=0.3, softcap=2.0, deterministic=True)
    yield "chunk", arguments(q, k, v, causal=True, chunk=9, **same)
    yield "window", arguments(q, k, v, window=(3, None), **same)
    sinks = normal(4, device=device, grad=True)
    yield "sinks", arguments(q, k, v, sinks=sinks, causal=True, **same)
    if device == "cpu":
        mask = normal(1, 4, 33, 47, grad=True)
        yield "mask", arguments(q, k, v, mask=mask, causal=True, top_left=True)
        yield "bool mask", arguments(q, k, v, mask=mask.detach() < 1)
    cu = torch.tensor([0, 7, 33], dtype=torch.int32, device=device)
    x = [normal(33, 2, 16, dtype=some(device), device=device, grad=True) for _ in "qkv"]
    yield "varlen", arguments(*x, lengths=(cu, cu, None, None), longest=(26, 26), **same)


@each_device
@pytest.mark.parametrize("name", ["plain", "causal", "window", "varlen", "sinks", "mask",
                                  "bool mask"])  # fmt: skip
def test_opcheck(device, name):
    torch.manual_seed(1)
    common = dict(variants(device)).get(name)
    if common is None:
        pytest.skip("the device has it not")
    forward = torch.ops.fa3.forward.default
    torch.library.opcheck(forward, (*common, "default", 0, 0))
    with torch.no_grad():
        common = tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in common)
        inputs = common[:3]
        out, lse = forward(*inputs, *common[3:], "default", 0, 0)
        dout = torch.randn_like(out)
        other = name == "sinks", name == "mask", False
        for needs in ((True, True, True, *other), (True, False, True, *(False,) * 3)):
            torch.library.opcheck(
                torch.ops.fa3.backward.default,
                (dout, None, *inputs, out, lse, *common[3:], *needs),
            )


@each_device
@pytest.mark.parametrize("block", [0, 32])
def test_opcheck_of_8_bits(device, block):
    torch.manual_seed(1)
    x = qkv(torch.bfloat16, device, heads_kv=4, d=64, d_v=64)
    common = arguments(*x, causal=True, deterministic=True)
    torch.library.opcheck(torch.ops.fa3.forward.default, (*common, "fp8", 0, block))


def loss(q, k, v):
    out, lse = fa3.torch.attention(q * 2, k, v, causal=True, return_lse=True)
    return (out.float() * out.shape[1]).sum() + lse.sum()


@each_device
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_breaks(device, dynamic):
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for rows in (33, 40):
        inputs = qkv(some(device), device, rows=rows, keys=50)
        want = torch.autograd.grad(loss(*inputs), inputs)
        got = torch.autograd.grad(compiled(*inputs), inputs)
        for a, b in zip(got, want, strict=True):
            assert_close(a, b, 1e-2 if device == "cuda" else 1e-5)


@each_device
def test_inductor(device):
    inputs = qkv(some(device), device)
    got = torch.autograd.grad(torch.compile(loss, fullgraph=True)(*inputs), inputs)
    for a, b in zip(got, torch.autograd.grad(loss(*inputs), inputs), strict=True):
        assert_close(a, b, 1e-2 if device == "cuda" else 1e-5)


@each_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(device, dtype):
    q, k, v = qkv(torch.float32, device)
    with torch.autocast(device, dtype):
        out = fa3.torch.attention(q, k, v)
        assert out.dtype == dtype
    got = torch.autograd.grad(out.float().sum(), (q, k, v))
    want = fa3.torch.attention(q.to(dtype), k.to(dtype), v.to(dtype))
    assert torch.equal(out, want)
    assert all(g.dtype == torch.float32 for g in got)
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 5):
        torch.compiler.reset()  # which takes what was compiled for another type of autocast
    with torch.autocast(device, dtype):  # inside a compiled function, too
        compiled = torch.compile(fa3.torch.attention, backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(q, k, v), want)


def test_autocast_leaves_float64_alone():
    q, k, v = (x.detach().double() for x in qkv())
    want = fa3.torch.attention(q, k, v)
    core = fa3.torch.FlashAttention3Core()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(fa3.torch.attention(q, k, v), want)
        got = core(*(x.transpose(1, 2) for x in (q, k, v)))
    assert torch.equal(got.transpose(1, 2), want)


@each_device
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(device, reentrant):
    inputs = qkv(some(device), device)
    want = torch.autograd.grad(loss(*inputs), inputs)
    for x in inputs:
        x.grad = None
    checkpoint(loss, *inputs, use_reentrant=reentrant).backward()
    for x, b in zip(inputs, want, strict=True):
        assert_close(x.grad, b, 1e-2 if device == "cuda" else 0)


@each_device
@pytest.mark.parametrize("compiled", [False, True])
def test_second_derivatives_are_refused(device, compiled):
    q, k, v = qkv(some(device), device)
    take = torch.ops.fa3.forward if compiled else fa3.torch.autograd.attend
    out, _ = take(*arguments(q, k, v), "default", 0, 0)
    (dq,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives are not offered"):
        dq.sum().backward()


def test_forward_mode_is_refused():
    q, k, v = qkv(grad=False)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(k, torch.ones_like(k))
        with pytest.raises(NotImplementedError, match="forward-mode derivatives"):
            fa3.torch.attention(q, dual, v)
        fa3.torch.attention(q, k, v)
        slopes = torch.ones(q.shape[2])
        dual = torch.autograd.forward_ad.make_dual(slopes, slopes)
        with pytest.raises(NotImplementedError, match="forward-mode derivatives"):
            fa3.torch.attention(q, k, v, alibi_slopes=dual)
    with pytest.raises(NotImplementedError, match="forward-mode derivatives"):
        torch.func.jvp(lambda q: fa3.torch.attention(q, k, v), (q,), (q,))


@each_device
def test_transforms(device):
    q, k, v = qkv(some(device), device)
    (want,) = torch.autograd.grad(loss(q, k, v), q)
    got = torch.func.grad(loss)(q.detach(), k.detach(), v.detach())
    assert_close(got, want, 1e-2 if device == "cuda" else 1e-6)
    many = [torch.stack([x.detach(), 2 * x.detach()]) for x in (q, k, v)]
    mapped = torch.vmap(fa3.torch.attention)(*many)
    for i in range(2):
        assert torch.equal(mapped[i], fa3.torch.attention(*(x[i] for x in many)))


@each_device
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_transforms_of_gradients(device):
    from torch.func import grad, jacrev, vmap

    inputs = qkv(some(device), device, grad=False, rows=5, keys=7, d=8, d_v=8)
    bound = 2e-2 if device == "cuda" else 1e-5
    many = [torch.stack([x, x.flip(1), 2 * x]) for x in inputs]
    apart = [grad(loss, argnums=(0, 1, 2))(*(x[i] for x in many)) for i in range(3)]
    together = vmap(grad(loss, argnums=(0, 1, 2)))(*many)
    outside = grad(lambda *x: vmap(loss)(*x).sum(), argnums=(0, 1, 2))(*many)
    for i in range(3):
        for got in (together, outside):
            for a, b in zip(got, apart[i], strict=True):
                assert_close(a[i], b, bound)
    shared = vmap(grad(loss, argnums=1), in_dims=(None, 0, None))(inputs[0], many[1], inputs[2])
    assert_close(shared[1], grad(loss, argnums=1)(inputs[0], many[1][1], inputs[2]), bound)

    def short(v):
        return fa3.torch.attention(*inputs[:2], v)[0, 0, 0]

    leaf = inputs[2].clone().requires_grad_()
    rows = [torch.autograd.grad(x, leaf, retain_graph=True)[0] for x in short(leaf)]
    assert_close(jacrev(short)(inputs[2]), torch.stack(rows), bound)
    one = torch.eye(8, device=device, dtype=leaf.dtype)
    (batched,) = torch.autograd.grad(short(leaf), leaf, one, is_grads_batched=True)
    assert_close(batched, torch.stack(rows), bound)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        grad(lambda q: grad(loss)(q, *inputs[1:]).sum())(inputs[0])


def test_scales_of_numpy():
    """A graph break, not an error."""
    q, k, v = qkv(grad=False)
    scale = np.float32(0.3)
    take = torch.compile(lambda q: fa3.torch.attention(q, k, v, softmax_scale=scale),
                         backend="aot_eager")  # fmt: skip
    assert torch.equal(take(q), fa3.torch.attention(q, k, v, softmax_scale=float(scale)))


@each_device
def test_jit_trace_and_export(device):
    q, k, v = qkv(some(device), device, grad=False)
    want = fa3.torch.attention(q, k, v)
    traced = torch.jit.trace(lambda *x: fa3.torch.attention(*x), (q, k, v))
    assert torch.equal(traced(q, k, v), want)

    class Module(torch.nn.Module):
        def forward(self, q, k, v):
            return fa3.torch.attention(q, k, v)

    program = torch.export.export(Module(), (q, k, v))
    assert torch.equal(program.module()(q, k, v), want)


class Seen(torch.utils._python_dispatch.TorchDispatchMode):
    """The arguments of the operators of fa3 that run below."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "fa3":
            self.calls.append((function.name(), args))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("asked, option", [(True, None), (False, None), (False, True)])
def test_determinism_is_an_argument_of_the_operator(asked, option):
    q, k, v = qkv()
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(asked)
    try:
        with Seen() as seen:
            out = fa3.torch.attention(q, k, v, deterministic=option)
    finally:
        torch.use_deterministic_algorithms(before)
    with seen:
        out.sum().backward()
    (forward, given), (backward, later) = seen.calls
    assert (forward, backward) == ("fa3::forward", "fa3::backward")
    assert given[-4] is later[-7] is (asked or bool(option))


def test_fake_and_meta_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, k, v = qkv(torch.bfloat16, d_v=16)
        out, lse = fa3.torch.attention(q, k, v, return_lse=True)
        assert out.shape == (2, 33, 4, 16) and out.dtype == torch.bfloat16
        assert lse.shape == (2, 4, 33) and lse.dtype == torch.float32
        out.sum().backward()
        assert k.grad.shape == k.shape
    x = torch.empty(2, 8, 4, 32, device="meta")
    assert fa3.torch.attention(x, x, x).shape == x.shape


def test_inside_a_module():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.projections = torch.nn.Linear(32, 96)

        def forward(self, x):
            packed = self.projections(x).unflatten(-1, (3, 4, 8))
            return fa3.torch.attention_qkvpacked(packed, causal=True).flatten(-2)

    torch.manual_seed(2)
    layer, x = Layer(), torch.randn(2, 10, 32)
    want = layer(x)
    assert torch.equal(torch.compile(layer, backend="aot_eager", fullgraph=True)(x), want)
    layer(x).sum().backward()
    assert layer.projections.weight.grad.abs().sum() > 0
    twin = Layer()
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin(x), want)


@each_device
def test_batch_invariant_rows_are_those_of_any_call(device):
    q, k, v = (x.detach() for x in qkv(some(device), device, rows=47))  # as many as keys
    want = fa3.torch.attention(q, k, v, causal=True, batch_invariant=True)
    for row in (0, 7, q.shape[1] - 1):
        one = fa3.torch.attention(
            q[1:, row : row + 1], k[1:, : row + 1], v[1:, : row + 1], causal=True,
            batch_invariant=True,
        )  # fmt: skip
        assert torch.equal(one[0, 0], want[1, row])
    with pytest.raises(ValueError, match="num_splits=2 with batch_invariant"):
        fa3.torch.attention(q, k, v, batch_invariant=True, num_splits=2)
