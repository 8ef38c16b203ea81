# SPDX-License-Identifier: BSD-3-Clause
"""torch_kit.py — attention in plain PyTorch, in FP64, and what results are held against."""

import pytest
import torch

# Of a result near 1 in magnitude, as in tests/python/kit.py.
BOUND = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def dtypes(device):
    return [torch.float16, torch.bfloat16] if device == "cuda" else list(BOUND)


each_device = pytest.mark.parametrize("device", DEVICES)
each_type = pytest.mark.parametrize(
    "device, dtype", [(device, dtype) for device in DEVICES for dtype in dtypes(device)]
)


def some(device):
    """A type that the device takes."""
    return torch.bfloat16 if device == "cuda" else torch.float32


def normal(*shape, dtype=torch.float32, device="cpu", grad=False):
    x = torch.randn(shape, dtype=torch.float32).to(device=device, dtype=dtype)
    return x.requires_grad_(grad)


def qkv(dtype=torch.float32, device="cpu", grad=True, batch=2, rows=33, keys=47, heads=4,
        heads_kv=2, d=32, d_v=32):  # fmt: skip
    return (
        normal(batch, rows, heads, d, dtype=dtype, device=device, grad=grad),
        normal(batch, keys, heads_kv, d, dtype=dtype, device=device, grad=grad),
        normal(batch, keys, heads_kv, d_v, dtype=dtype, device=device, grad=grad),
    )


def attend(q, k, v, *, causal=False, window=None, scale=None, softcap=0.0, sinks=None):
    """(out, lse) in FP64, with autograd; bottom-right aligned."""
    q, k, v = (x.double() for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, 2) for x in (k, v))
    s = torch.einsum("bihd,bjhd->bhij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    position = torch.arange(q.shape[1], device=q.device)[:, None] + k.shape[1] - q.shape[1]
    key = torch.arange(k.shape[1], device=q.device)[None]
    seen = torch.ones_like(key <= position)
    left, right = window or (None, None)
    if causal:
        seen = seen & (key <= position)
    if left is not None:
        seen = seen & (key >= position - left)
    if right is not None:
        seen = seen & (key <= position + right)
    s = s.masked_fill(~seen, -torch.inf)
    lse = torch.logsumexp(s, -1)
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks.double()[:, None])
    p = torch.exp(s - torch.where(lse.isfinite(), lse, 0)[..., None])
    return torch.einsum("bhij,bjhd->bihd", p, v), lse


def gradients(out, inputs, dout):
    return torch.autograd.grad(out, inputs, dout.to(out.dtype))


def assert_close(got, want, bound):
    assert got.shape == want.shape
    error = (got.double() - want.double()).abs().max().item() if got.numel() else 0
    size = max(1, want.abs().max().item() if want.numel() else 0)
    assert error <= bound * size, f"error {error / size:.3g}, need at most {bound:.3g}"
