# SPDX-License-Identifier: BSD-3-Clause
"""module_test.py — fa3.torch.FlashAttention3 and what goes with it, against plain PyTorch."""

import copy
import json
import pathlib
import pickle
import runpy
import sys
import warnings

import fa3
import fa3.torch
import pytest
import torch
from fa3.torch import FlashAttention3, FlashAttention3Core, TransformerLayer
from torch.utils.checkpoint import checkpoint
from torch_kit import BOUND, assert_close, each_device, normal, some

pytestmark = pytest.mark.filterwarnings("ignore:FlashAttention3")
SMALL = {"embed_dim": 96, "num_heads": 3}


def made(config, device="cpu", dtype=None, kind=FlashAttention3):
    torch.manual_seed(1)
    return kind(config, device=device, dtype=dtype or some(device))


def eager(module, x, causal=False, mask=None):
    """The module in FP64, with gradients to its own parameters."""

    def linear(of, x):
        bias = None if of.bias is None else of.bias.double()
        return torch.nn.functional.linear(x, of.weight.double(), bias)

    x = x.double()
    q, k, v = (
        linear(of, x).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for of in (module.q_proj, module.k_proj, module.v_proj)
    )
    s = q @ k.mT * q.shape[-1] ** -0.5
    if mask is not None and mask.dtype is not torch.bool:
        s = s + mask
    seen = torch.ones_like(s, dtype=torch.bool)
    if causal:
        seen = seen.tril()
    if mask is not None and mask.dtype is torch.bool:
        seen = seen & mask
    p = torch.softmax(s.masked_fill(~seen, -torch.inf), -1)
    return linear(module.out_proj, (p @ v).transpose(1, 2).flatten(2))


def relative(got, want):
    return ((got.double() - want).norm() / want.norm()).item()


def gradients(out, module, x):
    return torch.autograd.grad(out.float().square().sum(), (x, *module.parameters()))


@each_device
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_is_eager_attention(device, causal, bias):
    module = made({**SMALL, "bias": bias}, device)
    x = normal(2, 37, 96, dtype=some(device), device=device, grad=True)
    got, want = module(x, causal=causal), eager(module, x, causal)
    bound = BOUND[some(device)]
    assert got.dtype == x.dtype and got.shape == x.shape
    assert_close(got, want, bound)
    for a, b in zip(gradients(got, module, x), gradients(want, module, x), strict=True):
        assert_close(a, b.double(), 10 * bound)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ["bool", "float32", "bfloat16", "padding"])
def test_masks(name, causal):
    module = made(SMALL)
    x = normal(2, 21, 96, grad=True)
    mask = normal(21, 21)
    if name == "bool":
        mask = mask < 1
        mask.fill_diagonal_(True)
    elif name == "padding":
        mask = (torch.arange(21) < torch.tensor([[21], [9]]))[:, None, None]
    else:
        mask = mask.to(getattr(torch, name)).requires_grad_()
    got, want = module(x, causal=causal, attn_mask=mask), eager(module, x, causal, mask)
    assert_close(got, want, BOUND[torch.float32])
    inputs = [x, *module.parameters(), *([mask] if mask.requires_grad else [])]
    got, want = (torch.autograd.grad(y.sum(), inputs) for y in (got, want))
    for a, b in zip(got, want, strict=True):
        assert_close(a, b.double(), 2e-2 if name == "bfloat16" else 3e-5)


# ---- 8 bits -------------------------------------------------------------------------------------


@each_device
def test_fp8_errs_less_in_smaller_blocks(device):
    """E4M3 has steps of 2⁻⁴ to 2⁻³: a few percent of V. A block's largest value has no error, so
    the more blocks, the less. On a GPU P is rounded, too, with the scales of V's tokens: the same
    few percent, whatever the block."""
    config = {"embed_dim": 256, "num_heads": 2}
    exact = made(config, device)
    x = normal(2, 200, 256, dtype=some(device), device=device)
    want = eager(exact, x, causal=True)
    errors = []
    for block in (128, 64, 32):
        module = made({**config, "use_fp8": True, "fp8_block_size": block}, device)
        assert module.flash_attn.block_of(128) == (0 if block == 128 else block)
        errors.append(relative(module(x, causal=True), want))
    if device == "cpu":
        assert errors[0] > errors[1] > errors[2], errors
    assert 0.005 < min(errors) and max(errors) < 0.06, errors
    assert relative(exact(x, causal=True), want) < min(errors) / 3


def test_a_block_has_a_scale_of_its_own():
    """Columns of V that are 10⁵ times smaller than others are lost below the others' scale."""
    torch.manual_seed(1)
    q, k, v = (normal(1, 1, 50, 64, dtype=torch.bfloat16) for _ in "qkv")
    v[..., 32:] *= 1e-6
    want = FlashAttention3Core()(q, k, v).double()
    whole = FlashAttention3Core(True, 64)(q, k, v)
    parts = FlashAttention3Core(True, 32)(q, k, v)
    assert relative(whole[..., 32:], want[..., 32:]) > 0.9
    assert relative(parts[..., 32:], want[..., 32:]) < 0.05


@each_device
@pytest.mark.parametrize("block", [128, 64])
def test_fp8_trains(device, block):
    """The errors of q_proj and k_proj are the largest: of O's error what dO·O makes of it is added
    to each dP, and here dO is parallel to O. On a GPU P is rounded, too."""
    config = {"embed_dim": 256, "num_heads": 2}
    module = made({**config, "use_fp8": True, "fp8_block_size": block}, device)
    x = normal(2, 70, 256, dtype=some(device), device=device, grad=True)
    out = module(x, causal=True)
    assert out.dtype == x.dtype
    want = eager(module, x, causal=True)
    for a, b in zip(gradients(out, module, x), gradients(want, module, x), strict=True):
        if b.norm() > 1e-3:  # not k_proj's bias, which has none
            assert relative(a, b.double()) < (0.1 if device == "cpu" else 0.25)


@pytest.mark.parametrize("block", [32, 16])
def test_gradients_of_fp8_are_those_of_16_bits(block):
    """By the backward's formulas on q, k and v before rounding, with out and lse of 8 bits."""
    core = FlashAttention3Core(use_fp8=True, fp8_block_size=block)
    q, k, v = (normal(2, 3, 40, 32, dtype=torch.bfloat16, grad=True) for _ in "qkv")
    dout = normal(2, 3, 40, 32, dtype=torch.bfloat16)
    got = torch.autograd.grad(core(q, k, v, causal=True), (q, k, v), dout)
    q, k, v, dout = (x.detach().transpose(1, 2) for x in (q, k, v, dout))
    out, lse = fa3.torch.attention(
        q, k, v, causal=True, precision="fp8", fp8_block=block % 32, return_lse=True
    )
    want = fa3.attention_backward(dout, q, k, v, out, lse, causal=True)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a.transpose(1, 2), b)


def test_fp8_with_a_mask():
    module = made({"embed_dim": 64, "num_heads": 1, "use_fp8": True, "fp8_block_size": 32})
    x, mask = normal(2, 33, 64), normal(33, 33)
    want = eager(module, x, True, mask)
    for given in (mask, mask.bfloat16()):
        assert relative(module(x, causal=True, attn_mask=given), want) < 0.06


@pytest.mark.parametrize(
    ("arguments", "kind", "match"),
    [
        ({"fp8_block": 8}, ValueError, 'fp8_block: 8 with precision "default", need "fp8"'),
        ({"fp8_block": 5, "precision": "fp8"}, ValueError, "need a divisor of q's 32 columns"),
        ({"fp8_block": -8, "precision": "fp8"}, ValueError, "fp8_block: -8"),
    ],
)
def test_bad_blocks_of_attention(arguments, kind, match):
    q, k, v = (normal(1, 5, 2, 32, dtype=torch.bfloat16) for _ in "qkv")
    with pytest.raises(kind, match=match):
        fa3.torch.attention(q, k, v, **arguments)
    cu = torch.tensor([0, 5], dtype=torch.int32)
    with pytest.raises(NotImplementedError, match="need 4 dimensions"):
        fa3.torch.attention(q[0], k[0], v[0], precision="fp8", fp8_block=8, cu_seqlens_q=cu)


# ---- Configs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FlashAttention3, TransformerLayer])
@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"embed_size": 512}, "key 'embed_size', need one of embed_dim, num_heads"),
        ({"embed_dim": 100}, "embed_dim: 100, need a multiple of num_heads, 8; take 104"),
        ({"embed_dim": 512.0}, "embed_dim: 512.0, need a whole number"),
        ({"num_heads": 0}, "num_heads: 0, need a whole number ≥ 1"),
        ({"dropout": 1.0}, "dropout: 1.0, need a number ≥ 0 and < 1"),
        ({"dropout": float("nan")}, "dropout: nan"),
        ({"bias": None}, "bias: None, need True or False"),
        ({"use_fp8": 1}, "use_fp8: 1, need True or False"),
        ({"fp8_block_size": 100}, "fp8_block_size: 100, need a divisor of head_dim, 64.*; take 64"),
        ({"fp8_block_size": 24}, "fp8_block_size: 24, .*; take 16 or 64"),
        ({"fp8_block_size": 0}, "fp8_block_size: 0, need a whole number ≥ 1"),
    ],
)
def test_impossible_configs(kind, config, match):
    with pytest.raises(ValueError, match=match):
        kind(config)


def test_blocks_that_are_the_whole_head():
    for config, block in (
        ({}, 64),
        ({"fp8_block_size": 256}, 64),
        ({"embed_dim": 768, "fp8_block_size": 128}, 96),
        ({"embed_dim": 1536}, 192),
        ({"embed_dim": 2048}, 128),
        ({"embed_dim": 1024, "fp8_block_size": 64}, 64),
    ):
        module = FlashAttention3({**config, "use_fp8": True}, device="meta")
        assert module.config["fp8_block_size"] == block
    q = normal(1, 1, 4, 192)
    assert FlashAttention3Core()(q, q, q).shape == q.shape  # no block is asked for
    with pytest.raises(ValueError, match="fp8_block_size: 128, need a divisor .*; take 96 or"):
        FlashAttention3Core(use_fp8=True)(q, q, q)
    with pytest.raises(TypeError, match="config: list, need a dictionary"):
        FlashAttention3([512, 8])


def test_dropout_is_refused_in_training():
    module = made({**SMALL, "dropout": 0.1})
    x = normal(1, 5, 96)
    with pytest.raises(NotImplementedError, match=r"dropout: 0.1 in training.*torch.nn.Dropout"):
        module(x)
    assert_close(module.eval()(x), eager(module, x), BOUND[torch.float32])


def test_wrong_inputs():
    module = made(SMALL)
    with pytest.raises(ValueError, match=r"x: shape \(5, 96\), need \(batch, N, 96\)"):
        module(normal(5, 96))
    with pytest.raises(ValueError, match=r"q: 3 dimensions, need 4, \(batch, heads, N"):
        module.flash_attn(*(normal(3, 5, 32) for _ in "qkv"))


# ---- In PyTorch's machinery ---------------------------------------------------------------------


def test_state_is_that_of_four_linears():
    module = made(SMALL)
    names = [f"{of}.{part}" for of in ("q_proj", "k_proj", "v_proj", "out_proj")
             for part in ("weight", "bias")]  # fmt: skip
    assert list(module.state_dict()) == names
    other = FlashAttention3({**SMALL, "use_fp8": True})
    other.load_state_dict(module.state_dict())
    x = normal(2, 9, 96)
    want = module(x, causal=True)
    for same in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(same(x, causal=True), want)
    for kind in (FlashAttention3, FlashAttention3Core, TransformerLayer):
        assert kind.__module__ == "fa3.torch"  # what a pickle names


@each_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(device, dtype):
    module = made(SMALL, device, torch.float32)
    x = normal(2, 20, 96, device=device, grad=True)
    with torch.autocast(device, dtype=dtype):
        out = module(x, causal=True)
        direct = module.flash_attn(*(normal(1, 3, 8, 32, device=device) for _ in "qkv"))
    assert out.dtype is direct.dtype is dtype
    want = eager(module, x, causal=True)
    assert_close(out, want, BOUND[dtype])
    for a, b in zip(gradients(out, module, x), gradients(want, module, x), strict=True):
        assert a.dtype is torch.float32
        assert_close(a, b.double(), 4 * BOUND[dtype])


@each_device
@pytest.mark.parametrize("block", [None, 16])
def test_compile_without_breaks(device, block):
    config = SMALL if block is None else {**SMALL, "use_fp8": True, "fp8_block_size": block}
    module = made(config, device, kind=TransformerLayer)
    x = normal(2, 24, 96, dtype=some(device), device=device, grad=True)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    got, want = compiled(x, causal=True), module(x, causal=True)
    bound = 4 * BOUND[some(device)]
    assert_close(got, want, bound)
    for a, b in zip(gradients(got, module, x), gradients(want, module, x), strict=True):
        assert_close(a, b, 4 * bound)


@pytest.mark.skipif(
    torch.__version__.startswith("2.4."), reason="2.4 has no constants of a trace of any length"
)
def test_compile_with_a_mask_and_any_length():
    module = made(SMALL)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (24, 31):
        x, mask = normal(2, rows, 96, grad=True), normal(rows, rows, grad=True)
        got, want = compiled(x, attn_mask=mask), module(x, attn_mask=mask)
        assert_close(got, want, BOUND[torch.float32])
        got, want = (torch.autograd.grad(y.sum(), (x, mask)) for y in (got, want))
        for a, b in zip(got, want, strict=True):
            assert_close(a, b, 1e-5)


@each_device
def test_checkpointing(device):
    module = made(SMALL, device)
    x = normal(2, 24, 96, dtype=some(device), device=device, grad=True)
    want = gradients(module(x), module, x)
    got = gradients(checkpoint(module, x, use_reentrant=False), module, x)
    for a, b in zip(got, want, strict=True):
        assert_close(a, b, 2e-2 if device == "cuda" else 0)


def test_nothing_is_copied(monkeypatch):
    """What attention gets are the projections' outputs themselves."""
    seen = []
    attention = fa3.torch.attention
    monkeypatch.setattr(
        fa3.torch.module, "attention", lambda *x, **how: seen.extend(x) or attention(*x, **how)
    )
    module = made(SMALL)
    outputs = []
    for of in (module.q_proj, module.k_proj, module.v_proj):
        of.register_forward_hook(lambda of, given, out: outputs.append(out))
    module(normal(2, 9, 96))
    assert [x.data_ptr() for x in seen] == [x.data_ptr() for x in outputs]
    assert all(x.shape == (2, 9, 3, 32) and x.is_contiguous() for x in seen)


@each_device
def test_transformer_layer_learns(device):
    layer = made({**SMALL, "dropout": 0.1}, device, torch.float32, TransformerLayer)
    x = normal(2, 16, 96, device=device)
    target = x.roll(1, 1)
    optimizer = torch.optim.Adam(layer.parameters(), 5e-3)
    losses = []
    for _ in range(15):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = (layer(x, causal=True) - target).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    layer.eval()
    h = x + layer.attention(layer.norm1(x), causal=True)
    want = h + layer.ffn[2](torch.nn.functional.gelu(layer.ffn[0](layer.norm2(h))))
    assert_close(layer(x, causal=True), want.double(), 1e-6)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("precisions", "--batch 1 --tokens 32 --embed-dim 64 --num-heads 2"),
        ("long_context", "--max-tokens 256"),
    ],
)
def test_examples(monkeypatch, tmp_path, capsys, name, arguments):
    folder = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
    result = tmp_path / "result.jsonl"
    words = [name, *arguments.split(), "--device", "cpu", "--commit", "x", "--json", str(result)]
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "argv", words)
    import measuring

    monkeypatch.setattr(measuring, "WARM_S", 0)
    runpy.run_path(str(folder / f"{name}.py"), run_name="__main__")
    meta, *cells = map(json.loads, result.read_text().splitlines())
    assert meta["suite"].startswith("module-") and meta["fa3_commit"] == "x"
    printed = capsys.readouterr().out
    assert len(cells) > 1 and f"written to {result}" in printed
    assert all(cell["cell"].split(", ")[0] in printed for cell in cells)


# ---- Where fa3 does not compute -----------------------------------------------------------------


@pytest.fixture
def anew():
    """As in a process that has used no module yet."""
    said = set(fa3.torch.module._said)
    fa3.torch.module._said.clear()
    fa3.torch.module._decide.cache_clear()
    yield
    fa3.torch.module._said.clear()
    fa3.torch.module._said.update(said)
    fa3.torch.module._decide.cache_clear()


def test_says_once_where_it_computes(anew):
    module, x = made(SMALL), normal(1, 5, 96)
    with pytest.warns(UserWarning, match="FlashAttention3: computed on the CPU.*Hopper GPU"):
        module(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(SMALL)(x, causal=True)
        module(x.bfloat16().float())
    with pytest.warns(UserWarning, match="use_async: False has no effect"):
        FlashAttention3({**SMALL, "use_async": False})
    assert fa3.torch.is_flash_attention_3_available() == (
        torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
    )


@pytest.mark.parametrize("terms", ["plain", "causal", "bool", "float", "both"])
def test_pytorch_stands_in(anew, monkeypatch, terms):
    declined = fa3.Support(False, "no such kernel")
    monkeypatch.setattr(fa3, "supported", lambda *problem, **terms: declined)
    monkeypatch.setattr(fa3.torch.module, "attention", None)
    module = made({**SMALL, "use_fp8": True})
    x, mask = normal(2, 12, 96, grad=True), normal(12, 12)
    mask = {"bool": mask < 1.5, "float": mask, "both": mask}.get(terms)
    causal = terms in ("causal", "both")
    module.flash_attn.precision = "default"
    with pytest.warns(UserWarning, match="scaled_dot_product_attention.*declines: no such kernel"):
        got = module(x, causal=causal, attn_mask=mask)
    want = eager(module, x, causal, mask)
    assert_close(got, want, BOUND[torch.float32])
    for a, b in zip(gradients(got, module, x), gradients(want, module, x), strict=True):
        assert_close(a, b.double(), 1e-4)


def test_16_bits_stand_in(anew, monkeypatch):
    real = fa3.supported

    def supported(*problem, precision="default", **terms):
        declined = fa3.Support(False, "no 8 bits")
        return declined if precision != "default" else real(*problem, **terms)

    monkeypatch.setattr(fa3, "supported", supported)
    module = made({**SMALL, "use_fp8": True})
    x = normal(2, 12, 96)
    with pytest.warns(UserWarning, match="in 16 bits, not in 8: no 8 bits"):
        got = module(x)
    assert relative(got, eager(module, x)) < 0.01
