# SPDX-License-Identifier: BSD-3-Clause
"""cells.py — the grid that is compared with peers: what a cell is, its name, its arithmetic."""

import dataclasses

OPS = ("fwd", "bwd")
DTYPES = ("f32", "bf16")
HEAD_DIMS = (64, 128)
MASKS = ("full", "causal")
SEQLENS = (512, 2048, 8192)
HEADS = 16
TOKENS = 4096  # batch = max(1, TOKENS / seqlen)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One problem: self-attention with equal head counts and head dims."""

    op: str
    dtype: str
    head_dim: int
    mask: str
    seqlen: int
    batch: int
    heads: int = HEADS

    @property
    def name(self):
        return f"{self.op}_{self.dtype}_d{self.head_dim}_{self.mask}_s{self.seqlen}"

    @property
    def flops(self):
        """Forward 2·b·h·s_q·avg(s_kv)·(d_qk + d_v), backward 2.5×; hidden pairs are free."""
        visible = (self.seqlen + 1) / 2 if self.mask == "causal" else self.seqlen
        forward = 2 * self.batch * self.heads * self.seqlen * visible * 2 * self.head_dim
        return forward * (2.5 if self.op == "bwd" else 1.0)


def grid(seqlens=SEQLENS, tokens=TOKENS, heads=HEADS):
    """All cells, short sequences first, so that a mistake shows early."""
    return [
        Cell(op, dtype, head_dim, mask, seqlen, max(1, tokens // seqlen), heads)
        for seqlen in seqlens
        for op in OPS
        for dtype in DTYPES
        for head_dim in HEAD_DIMS
        for mask in MASKS
    ]


def peak_cells():
    """The cells that are held against the processor's peak: forward, d 128, full, seqlen 4096."""
    return [Cell("fwd", dtype, 128, "full", 4096, 1) for dtype in DTYPES]
