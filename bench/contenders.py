# SPDX-License-Identifier: BSD-3-Clause
"""contenders.py — fa3 and PyTorch on the same tensors of one cell, and the check that they agree.

A contender is a function that allocates its outputs, computes, and returns them (ours: filled
first on request). PyTorch reads the tensors as (batch, heads, seqlen, head_dim) views, fa3 as
(batch, seqlen, heads, head_dim) views of the same memory.
"""

import collections.abc
import dataclasses
import math

import torch

import fa3_ctypes

TORCH_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
aten = torch.ops.aten


class Disagreement(Exception):
    """An output that is not what it should be."""


@dataclasses.dataclass
class Tensors:
    """Inputs of a cell as PyTorch sees them, (batch, heads, seqlen, head_dim), and their layout."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor
    layout: str  # bshd or bhsd

    @classmethod
    def random(cls, cell, layout, seed=1):
        generator = torch.Generator().manual_seed(seed)
        dtype = TORCH_DTYPES[cell.dtype]

        def tensor():
            shape = (cell.batch, cell.heads, cell.seqlen, cell.head_dim)
            out = new_tensor(shape, dtype, layout)
            return out.copy_(torch.randn(shape, generator=generator))

        return cls(tensor(), tensor(), tensor(), tensor(), layout)


def new_tensor(shape, dtype, layout):
    """Uninitialised (b, h, s, d) tensor whose memory is ordered as `layout`."""
    b, h, s, d = shape
    if layout == "bhsd":
        return torch.empty((b, h, s, d), dtype=dtype)
    return torch.empty((b, s, h, d), dtype=dtype).transpose(1, 2)


def bshd(tensor):
    """A (b, h, s, d) tensor as fa3 describes it."""
    return tensor.transpose(1, 2)


# ---- fa3 -----------------------------------------------------------------------------------------


def ours_forward(context, cell, x):
    """fa3_forward: plan and run with the context's workspace. Returns (o, lse)."""
    args = fa3_ctypes.forward_args(cell.mask, q=bshd(x.q), k=bshd(x.k), v=bshd(x.v))

    def run(fill=None):
        o = new_tensor(x.q.shape, x.q.dtype, x.layout)
        lse = torch.empty(x.q.shape[:3], dtype=torch.float32)
        if fill is not None:
            o.fill_(fill), lse.fill_(fill)
        args.o = fa3_ctypes.Tensor.of(bshd(o))
        args.lse = fa3_ctypes.Tensor.of(lse)
        context.forward(args)
        return o, lse

    return run


def ours_backward(context, cell, x, o, lse):
    """fa3_backward. Returns (dq, dk, dv)."""
    args = fa3_ctypes.backward_args(
        cell.mask, q=bshd(x.q), k=bshd(x.k), v=bshd(x.v), o=bshd(o), lse=lse, dout=bshd(x.dout)
    )

    def run(fill=None):
        grads = [new_tensor(x.q.shape, x.q.dtype, x.layout) for _ in range(3)]
        for grad in grads if fill is not None else ():
            grad.fill_(fill)
        args.dq, args.dk, args.dv = (fa3_ctypes.Tensor.of(bshd(grad)) for grad in grads)
        context.backward(args)
        return tuple(grads)

    return run


# ---- PyTorch -------------------------------------------------------------------------------------


def peer_forward(cell, x):
    """scaled_dot_product_attention, as a user calls it. Returns (o,), but makes LSE as well."""
    causal = cell.mask == "causal"
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return lambda: (sdpa(x.q, x.k, x.v, is_causal=causal),)


def peer_forward_with_lse(cell, x):
    """The operator behind scaled_dot_product_attention on the CPU. Returns (o, lse)."""
    causal = cell.mask == "causal"
    op = aten._scaled_dot_product_flash_attention_for_cpu
    return lambda: tuple(op(x.q, x.k, x.v, 0.0, causal))


def peer_backward(cell, x, o, lse):
    """The operator that autograd calls, so that the kernel alone is timed. Returns (dq, dk, dv)."""
    causal = cell.mask == "causal"
    op = aten._scaled_dot_product_flash_attention_for_cpu_backward
    return lambda: tuple(op(x.dout, x.q, x.k, x.v, o, lse, 0.0, causal))


# ---- both ----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Contenders:
    """What is timed, and what gives all of the peer's outputs for the comparison."""

    ours: collections.abc.Callable
    peer: collections.abc.Callable
    peer_outputs: collections.abc.Callable


def contenders(context, cell, x):
    """The Contenders of a cell. Make and call them under torch.no_grad()."""
    ours, peer = ours_forward(context, cell, x), peer_forward_with_lse(cell, x)
    if cell.op == "fwd":
        return Contenders(ours, peer_forward(cell, x), peer)
    ours, peer = ours_backward(context, cell, x, *ours()), peer_backward(cell, x, *peer())
    return Contenders(ours, peer, peer)


def exact_head(cell, x, b, h, rows=1024):
    """One head in FP64 by the formulas, `rows` queries at a time: {o, lse} or {dq, dk, dv}."""
    q, k, v, dout = (t[b, h].double() for t in (x.q, x.k, x.v, x.dout))
    scale = 1.0 / math.sqrt(cell.head_dim)
    keys = torch.arange(cell.seqlen)
    o, lse, dq = (
        torch.empty_like(v),
        torch.empty(cell.seqlen, dtype=torch.float64),
        torch.empty_like(q),
    )
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    for begin in range(0, cell.seqlen, rows):
        r = slice(begin, begin + rows)
        scores = scale * (q[r] @ k.T)
        if cell.mask == "causal":
            scores.masked_fill_(keys[None, :] > keys[r, None], -math.inf)
        lse[r] = torch.logsumexp(scores, dim=1)
        p = torch.exp(scores.sub_(lse[r, None]))
        o[r] = p @ v
        if cell.op == "bwd":
            delta = (dout[r] * o[r]).sum(dim=1, keepdim=True)
            ds = p * (dout[r] @ v.T - delta)
            dv += p.T @ dout[r]
            dk += scale * (ds.T @ q[r])
            dq[r] = scale * (ds @ k)
    return {"o": o, "lse": lse} if cell.op == "fwd" else {"dq": dq, "dk": dk, "dv": dv}


def verify(cell, x, mine, theirs):
    """Raises Disagreement unless fa3 is right; returns the errors, {output: {ours, peer, bound}}.

    One head is computed in FP64: fa3's error there must stay within twice PyTorch's plus one unit
    in the last place of the greatest value (LSE: plus 1e-5, since both approximate exponentials).
    Everywhere, the two must lie within four times their errors of that head, plus four times that
    allowance. NaN fails every comparison.
    """
    b, h = cell.batch - 1, cell.heads - 1
    errors = {}
    for (name, exact), a, c in zip(exact_head(cell, x, b, h).items(), mine, theirs):
        unit = torch.finfo(a.dtype).eps * exact.abs().max().item()
        allowance = 1e-5 if name == "lse" else unit
        ours_error, peer_error = ((t[b, h].double() - exact).abs().max().item() for t in (a, c))
        bound = 2 * peer_error + allowance
        if not ours_error <= bound:
            raise Disagreement(
                f"{cell.name}: {name} of batch {b}, head {h} is off by "
                f"{ours_error:.3g} from FP64, need ≤ {bound:.3g} (PyTorch: "
                f"{peer_error:.3g}); run `fa3 check` on this shape"
            )
        apart = (a - c).abs().max().item()
        if not apart <= 4 * (ours_error + peer_error + allowance):
            raise Disagreement(
                f"{cell.name}: {name} of fa3 and of PyTorch are {apart:.3g} apart somewhere, "
                f"though within {max(ours_error, peer_error):.3g} of FP64 in batch {b}, head {h}; "
                "run `fa3 check` on this shape"
            )
        errors[name] = {"ours": ours_error, "peer": peer_error, "bound": bound}
    return errors
