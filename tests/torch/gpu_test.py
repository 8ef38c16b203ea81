# SPDX-License-Identifier: BSD-3-Clause
"""gpu_test.py — what only a GPU has: streams, graphs, PyTorch's allocator. Skipped without one."""

import fa3
import fa3.compat.flash_attn_interface as three
import fa3.torch
import pytest
import torch
from torch_kit import BOUND, assert_close, attend, normal, qkv

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
BF16 = torch.bfloat16


def test_the_current_stream_is_used():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        inputs = qkv(BF16, "cuda", grad=False, rows=2000, keys=2000)
        fa3.torch.attention(*inputs)  # finds or compiles the kernel
        inputs[0].mul_(1)  # PyTorch's kernel is loaded, which waits
        # Inputs change after this; work on another stream would miss it.
        torch.cuda._sleep(50_000_000)
        inputs[0].mul_(2)
        out = fa3.torch.attention(*inputs)
        assert not stream.query()  # the call did not wait
    stream.synchronize()
    assert_close(out, attend(*inputs)[0], BOUND[BF16])


def test_stream_by_its_pointer():
    inputs = qkv(BF16, "cuda", grad=False)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    out = fa3.attention(*inputs, stream=stream.cuda_stream)
    stream.synchronize()
    assert_close(out, attend(*inputs)[0], BOUND[BF16])


def captured(function):
    """Runs it once to warm up, captures it, returns the graph and what it returned."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return graph, result


@pytest.mark.parametrize("planned", [False, True])
def test_graph_of_a_forward(planned):
    inputs = qkv(BF16, "cuda", grad=False, rows=300, keys=300)
    plan = fa3.Plan(fa3.attention, *inputs, causal=True)
    take = plan.run if planned else lambda *x: fa3.torch.attention(*x, causal=True)
    graph, out = captured(lambda: take(*inputs))
    for _ in range(3):
        for x in inputs:
            x.normal_()
        graph.replay()
        assert_close(out, attend(*inputs, causal=True)[0], BOUND[BF16])


def test_graph_of_a_training_step():
    inputs = qkv(BF16, "cuda", rows=300, keys=300)
    dout = normal(2, 300, 4, 32, dtype=BF16, device="cuda")

    def step():
        out = fa3.torch.attention(*inputs, causal=True, deterministic=True)
        return torch.autograd.grad(out, inputs, dout)

    graph, gradients = captured(step)
    before = None
    for _ in range(10):
        graph.replay()
        again = [g.clone() for g in gradients]
        assert before is None or all(torch.equal(a, b) for a, b in zip(before, again, strict=True))
        before = again
    want = torch.autograd.grad(attend(*inputs, causal=True)[0], inputs, dout.double())
    for a, b in zip(before, want, strict=True):
        assert_close(a, b, 4 * BOUND[BF16])


def test_workspace_is_pytorchs():
    inputs = qkv(BF16, "cuda", rows=4096, keys=4096, d=128, d_v=128)
    out = fa3.torch.attention(*inputs)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.autograd.grad(out.sum(), inputs)
    sums = inputs[0].numel() * 4  # dQ in FP32
    assert torch.cuda.max_memory_allocated() - before > sums


def test_unaligned_tensors_are_copied():
    base = torch.randn(2 * 33 * 4 * 32 + 1, device="cuda").to(BF16)
    q = base[1:].view(2, 33, 4, 32)
    assert q.data_ptr() % 16 != 0
    assert_close(fa3.torch.attention(q, q, q), attend(q, q, q)[0], BOUND[BF16])
    with pytest.raises(NotImplementedError, match="16"):
        fa3.attention(q, q, q)


# ---- 8 bits: a workspace for images of V from 4096 keys on, and more with means ------------------


def codes_of(rows=4096, heads=4):
    """E4M3 codes and a scale for each head of a sequence."""
    x = [normal(2, rows, heads, 128, device="cuda").to(torch.float8_e4m3fn) for _ in "qkv"]
    return x, {f"{name}_descale": torch.rand(2, heads, device="cuda") + 0.5 for name in "qkv"}


def needs_a_workspace(x, how):
    plan = fa3.Plan(fa3.attention, *x, causal=True, return_lse=True,
                    **{name.replace("descale", "scale"): s for name, s in how.items()})  # fmt: skip
    return plan.workspace_bytes > 0


def test_heads_before_rows_with_lengths():
    """As transformers has them: the kernels want rows as far apart as those of results."""
    lengths = torch.tensor([70, 33], dtype=torch.int32, device="cuda")
    given = {"seqused_kv": lengths, "causal": True}
    made = []
    sizes = ((4, 33), (2, 70), (2, 70))
    q, k, v = (normal(2, h, n, 64, dtype=BF16, device="cuda") for h, n in sizes)
    for turn in (lambda x: x.transpose(1, 2), lambda x: x.transpose(1, 2).contiguous()):
        inputs = [turn(x.detach()).requires_grad_() for x in (q, k, v)]
        out = fa3.torch.attention(*inputs, **given)
        made.append((out, *torch.autograd.grad(out, inputs, torch.ones_like(out))))
    for got, want in zip(*made, strict=True):
        assert torch.equal(got, want)


def test_graph_of_8_bits():
    x, how = codes_of()
    assert needs_a_workspace(x, how)
    graph, out = captured(lambda: three.flash_attn_func(*x, causal=True, **how))
    for _ in range(3):
        for t in x:
            t.copy_(normal(*t.shape, device="cuda").to(t.dtype))
        for s in how.values():
            s.uniform_(0.5, 1.5)
        graph.replay()
        torch.cuda.synchronize()
        want = three.flash_attn_func(*(t.clone() for t in x), causal=True, **how)
        assert torch.equal(out, want)


def test_graph_of_a_cache_in_8_bits():
    x, how = codes_of()
    q, used = x[0][:, :1].contiguous(), torch.full((2,), 9, dtype=torch.int32, device="cuda")

    def step():
        return three.flash_attn_with_kvcache(q, *x[1:], cache_seqlens=used, **how)

    graph, out = captured(step)
    for length in (4096, 700):
        used.fill_(length)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, step())


def test_8_bits_on_a_side_stream():
    x, how = codes_of()
    want = three.flash_attn_func(*x, causal=True, **how)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        half = [(t.float() / 2).to(t.dtype) for t in x]  # exact
        three.flash_attn_func(*half, causal=True, **how)
        torch.cuda._sleep(50_000_000)
        for a, b in zip(half, x, strict=True):
            a.copy_(b)
        out = three.flash_attn_func(*half, causal=True, **how)
        assert not stream.query()
    stream.synchronize()
    assert torch.equal(out, want)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_8_bits_compiled(backend):
    x, how = codes_of(rows=300)
    compiled = torch.compile(
        lambda q, k, v: three.flash_attn_func(q, k, v, causal=True, **how),
        backend=backend, fullgraph=True,
    )  # fmt: skip
    assert torch.equal(compiled(*x), three.flash_attn_func(*x, causal=True, **how))
    with torch._subclasses.fake_tensor.FakeTensorMode() as mode:
        fakes = [mode.from_tensor(t) for t in x]
        assert fa3.torch.attention_on_codes(*fakes).shape == x[0].shape
        wide = torch.empty(1, 300, 4, 264, dtype=torch.float8_e4m3fn, device="cuda")
        with pytest.raises(NotImplementedError, match="up to 256"):  # the GPU's limit
            fa3.torch.attention_on_codes(wide, wide, wide)


def test_workspaces_of_fa3_are_pytorchs():
    """Of tensors of PyTorch, codes or not, whatever the call: so that a graph may capture it."""
    x, how = codes_of()
    how = {name.replace("descale", "scale"): s for name, s in how.items()}
    wide = [normal(2, 4096, 4, 128, dtype=BF16, device="cuda") for _ in "qkv"]
    out, lse = fa3.attention(*wide, return_lse=True)
    calls = (
        lambda: fa3.attention(*x, causal=True, **how),
        lambda: fa3.attention(*wide, precision="eight_bit"),
        lambda: fa3.quantize(wide[1], offset=True),
        lambda: fa3.attention_backward(out, *wide, out, lse, deterministic=True),
    )
    for call in calls:
        graph, result = captured(call)
        graph.replay()
        torch.cuda.synchronize()
        again = call()
        pairs = zip(result, again) if isinstance(result, tuple) else [(result, again)]
        for a, b in pairs:
            if isinstance(a, torch.Tensor):
                assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def test_workspace_on_a_stream_by_its_pointer():
    """Two calls at once, on two streams, have two workspaces."""
    wide = [normal(2, 4096, 4, 128, dtype=BF16, device="cuda") for _ in "qkv"]
    want = fa3.attention(*wide, precision="eight_bit")
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    outs = []
    for _ in range(4):
        for s in streams:
            outs.append(fa3.attention(*wide, precision="eight_bit", stream=s.cuda_stream))
    torch.cuda.synchronize()
    assert all(torch.equal(out, want) for out in outs)


# ---- Scales -------------------------------------------------------------------------------------


def test_fake_tensors_are_held_against_the_gpu():
    with torch._subclasses.fake_tensor.FakeTensorMode():
        x = torch.empty(2, 300, 4, 64, device="cuda")
        with pytest.raises(NotImplementedError, match="f32"):
            fa3.torch.attention(x, x, x)
        x = torch.empty(2, 300, 4, 20, dtype=BF16, device="cuda")  # padded
        assert fa3.torch.attention(x, x, x).shape == x.shape
        with pytest.raises(ValueError, match="k: on cpu, need cuda:0 as q"):
            fa3.torch.attention(x, torch.empty(2, 300, 4, 20, dtype=BF16), x)


def test_graph_with_a_scale_on_the_cpu():
    """Read while capturing; one on the GPU is refused by name."""
    inputs = qkv(BF16, "cuda", rows=300, keys=300, grad=False)
    scale = torch.tensor(0.2)
    graph, out = captured(lambda: fa3.torch.attention(*inputs, softmax_scale=scale))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, fa3.torch.attention(*inputs, softmax_scale=scale.item()))
    on_gpu = scale.cuda()
    with pytest.raises(RuntimeError, match="softmax_scale: a tensor on cuda:0.*on the CPU"):
        captured(lambda: fa3.torch.attention(*inputs, softmax_scale=on_gpu))


@pytest.mark.filterwarnings("ignore:FlashAttention3")
def test_module_where_the_library_declines(monkeypatch):
    """float32, and blocks of columns that no kernel has: right by what stands in."""
    x = torch.randn(2, 40, 128, device="cuda")
    module = fa3.torch.FlashAttention3({"embed_dim": 128, "num_heads": 2}).cuda()
    q, k, v = (
        of(x).unflatten(-1, (2, 64)) for of in (module.q_proj, module.k_proj, module.v_proj)
    )
    want, _ = attend(q, k, v, causal=True)
    out_proj = [p.double() for p in module.out_proj.parameters()]
    want = torch.nn.functional.linear(want.flatten(2), *out_proj)
    assert_close(module(x, causal=True), want, 1e-2)  # GEMMs in TF32 where PyTorch is set to
    odd = fa3.torch.FlashAttention3Core(use_fp8=True, fp8_block_size=16)
    q, k, v = (x.bfloat16().transpose(1, 2) for x in (q, k, v))
    got = odd(q, k, v, causal=True)
    assert torch.equal(got, fa3.torch.FlashAttention3Core()(q, k, v, causal=True))


@pytest.mark.parametrize("block", [None, 64, 32])
def test_module_in_a_graph(block):
    fp8 = {} if block is None else {"use_fp8": True, "fp8_block_size": block}
    config = {"embed_dim": 128, "num_heads": 2, **fp8}
    module = fa3.torch.FlashAttention3(config, device="cuda", dtype=BF16)
    x = normal(2, 300, 128, dtype=BF16, device="cuda")
    with torch.inference_mode():
        graph, out = captured(lambda: module(x, causal=True))
        x.copy_(normal(2, 300, 128, dtype=BF16, device="cuda"))
        graph.replay()
        assert torch.equal(out, module(x, causal=True))


def test_graph_of_a_step_with_a_static_cache():
    """Mask and attention as transformers asks for them: where the step stands is on the GPU."""
    import fa3.huggingface

    q = normal(2, 4, 1, 64, dtype=BF16, device="cuda")
    k, v = (normal(2, 2, 64, 64, dtype=BF16, device="cuda") for _ in range(2))
    offset = torch.tensor(40, device="cuda")
    padding = torch.ones(2, 64, dtype=torch.bool, device="cuda")
    padding[1, :9] = False
    module = torch.nn.Module()

    def step():
        mask = fa3.huggingface.build_mask(2, 1, 64, offset, attention_mask=padding, device="cuda")
        return fa3.huggingface.attend(module, q, k, v, mask)[0]

    graph, out = captured(step)
    for at in (40, 41, 63):
        offset.fill_(at)
        graph.replay()
        seen = padding & (torch.arange(64, device="cuda") <= at)
        want = torch.nn.functional.scaled_dot_product_attention(
            *(x.float() for x in (q, k, v)), attn_mask=seen[:, None, None], enable_gqa=True
        )
        assert_close(out.float(), want.transpose(1, 2), BOUND[BF16])
