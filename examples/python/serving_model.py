# SPDX-License-Identifier: BSD-3-Clause
"""serving_model.py — a Llama-like model on a paged cache, for serve.py: the batch of a step, the
model, and attention by fa3, by the original FlashAttention-3 and by PyTorch's SDPA."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

import fa3.torch


@dataclasses.dataclass
class Shape:
    layers: int
    hidden: int
    heads: int
    heads_kv: int
    head_dim: int
    ffn: int
    vocab: int
    page: int  # rows of one
    pages: int  # of all sequences
    longest: int  # tokens of a sequence
    device: str
    dtype: torch.dtype

    @property
    def pages_each(self):
        return -(-self.longest // self.page)


class Batch:
    """What a step computes: tokens of its sequences one after the other, and where their keys are.
    The tensors stay where they are, so that a CUDA graph reads the next step's values."""

    def __init__(self, shape: Shape, tokens: int, sequences: int, one_each: bool, nobody: int):
        self.tokens, self.sequences, self.nobody = tokens, sequences, nobody
        self.one_each = one_each  # a step of generation alone

        def ints(*size):
            pinned = shape.device != "cpu"
            return torch.zeros(*size, dtype=torch.int32, pin_memory=pinned)

        self.host = {
            "ids": ints(tokens),
            "cu": ints(sequences + 1),  # where each sequence's tokens begin
            "used": ints(sequences),  # keys that it has in the cache
            "last": ints(sequences),  # its last token
            "table": ints(sequences, shape.pages_each),  # its pages
        }
        self.on_device = {name: x.to(shape.device) for name, x in self.host.items()}

    def __getattr__(self, name: str) -> Tensor:
        return self.__dict__["on_device"][name]

    def fill(self, sequences):
        """sequences: of each its new tokens, the number of its keys, and its pages. What remains is
        nobody's, and so is the page that stands there."""
        host = self.host
        host["table"].fill_(self.nobody)
        host["used"].zero_()
        host["ids"].zero_()
        cu = [0]
        for row, (new, keys, pages) in enumerate(sequences):
            host["ids"][cu[-1] : cu[-1] + len(new)] = torch.tensor(new, dtype=torch.int32)
            cu.append(cu[-1] + len(new))
            host["used"][row] = keys
            host["table"][row, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
        end = self.tokens if self.one_each else cu[-1]
        rest = range(cu[-1] + 1, end + 1) if self.one_each else [end] * (self.sequences + 1)
        host["cu"][:] = torch.tensor([*cu, *rest][: self.sequences + 1], dtype=torch.int32)
        host["last"][:] = (host["cu"][1:] - 1).clamp(min=0)
        for name, x in host.items():
            self.on_device[name].copy_(x, non_blocking=True)


# ---- Attention ----------------------------------------------------------------------------------


class Cache:
    """Pages of all layers, and angles of all positions."""

    captures_prompts = True  # in a CUDA graph

    def __init__(self, shape: Shape):
        self.nobody = shape.pages - 1  # a page that is spare, for what is written for nobody
        size = (shape.layers, shape.pages, shape.page, shape.heads_kv, shape.head_dim)
        self.k, self.v = (torch.zeros(size, device=shape.device, dtype=shape.dtype) for _ in "kv")
        half = shape.head_dim // 2
        angles = torch.arange(shape.longest)[:, None] * 1e4 ** (-torch.arange(half) / half)
        self.cos, self.sin = (x.to(shape.device, shape.dtype) for x in (angles.cos(), angles.sin()))


class Fa3(Cache):
    """One call a layer: it rotates q and k, writes k and v to their pages, and attends."""

    def __init__(self, shape: Shape):
        super().__init__(shape)
        self.nobody = -1  # no page, and so nothing is written

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, batch: Batch) -> Tensor:
        given = {
            "causal": True, "seqused_kv": batch.used, "page_table": batch.table,
            "rotary": (self.cos, self.sin),
        }  # fmt: skip
        if batch.one_each:
            q, k, v = (x[:, None] for x in (q, k, v))
        else:
            given |= {"cu_seqlens_q": batch.cu, "cu_seqlens_new": batch.cu,
                      "max_seqlen_q": batch.tokens}  # fmt: skip
        out = fa3.torch.attention(q, self.k[layer], self.v[layer], k_new=k, v_new=v, **given)
        return out[:, 0] if batch.one_each else out


class Original(Cache):
    """The same by the original's flash_attn_with_kvcache (tokenspeed-fa3)."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, batch: Batch) -> Tensor:
        from flash_attn_interface import flash_attn_with_kvcache

        given = {}
        if batch.one_each:
            q, k, v = (x[:, None] for x in (q, k, v))
        else:
            given = {"cu_seqlens_q": batch.cu, "cu_seqlens_k_new": batch.cu,
                     "max_seqlen_q": batch.tokens}  # fmt: skip
        out = flash_attn_with_kvcache(
            q, self.k[layer], self.v[layer], k, v, rotary_cos=self.cos, rotary_sin=self.sin,
            rotary_interleaved=False, cache_seqlens=batch.used, page_table=batch.table, causal=True,
            **given,
        )  # fmt: skip
        return out[:, 0] if batch.one_each else out


class Sdpa(Cache):
    """In plain PyTorch: k and v are written by index; then each token of a step, or each
    sequence of a prompt, attends to its pages gathered into rows."""

    captures_prompts = False

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, batch: Batch) -> Tensor:
        row = torch.arange(q.shape[0], device=q.device, dtype=torch.int32)
        at = torch.searchsorted(batch.cu[1:], row, right=True).clamp(max=batch.sequences - 1)
        position = batch.used[at] + row - batch.cu[at]
        position = position.clamp(max=self.cos.shape[0] - 1).long()
        q, k = (_rotated(x, self.cos[position][:, None], self.sin[position][:, None])
                for x in (q, k))  # fmt: skip
        page = self.k.shape[2]
        places = batch.table[at, position // page].long() * page + position % page
        places = torch.where(row >= batch.cu[-1], self.nobody * page, places)
        for cache, new in ((self.k, k), (self.v, v)):
            cache[layer].view(-1, *new.shape[1:]).index_copy_(0, places, new)
        attend = self._tokens if batch.one_each else self._prompts
        return attend(self.k[layer], self.v[layer], q, batch)

    def _tokens(self, k: Tensor, v: Tensor, q: Tensor, batch: Batch) -> Tensor:
        keys = k.shape[1] * batch.table.shape[1]
        seen = torch.arange(keys, device=q.device) <= batch.used[:, None]
        k, v = (x[batch.table].flatten(1, 2).transpose(1, 2) for x in (k, v))
        out = F.scaled_dot_product_attention(
            q[:, :, None], k, v, attn_mask=seen[:, None, None], enable_gqa=True
        )
        return out[:, :, 0]

    def _prompts(self, k: Tensor, v: Tensor, q: Tensor, batch: Batch) -> Tensor:
        out = torch.zeros_like(q)
        cu, used = batch.host["cu"].tolist(), batch.host["used"].tolist()
        for row, (begin, end) in enumerate(zip(cu, cu[1:], strict=False)):
            if begin == end:
                continue
            keys = used[row] + end - begin
            pages = batch.table[row, : -(-keys // k.shape[1])].long()
            mine = (x[pages].flatten(0, 1)[None, :keys].transpose(1, 2) for x in (k, v))
            bias = causal_lower_right(end - begin, keys)
            out[begin:end] = F.scaled_dot_product_attention(
                q[None, begin:end].transpose(1, 2), *mine, attn_mask=bias, enable_gqa=True
            )[0].transpose(0, 1)
        return out


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


# ---- The model ----------------------------------------------------------------------------------


class Model:
    """Random weights; greedy. Calling it computes the next token of each sequence of a batch."""

    def __init__(self, shape: Shape, seed: int = 0):
        generator = torch.Generator(shape.device).manual_seed(seed)

        def weights(rows, columns):
            x = torch.randn(rows, columns, generator=generator, device=shape.device)
            return (x * columns**-0.5).to(shape.dtype)

        self.shape = shape
        self.embedding = weights(shape.vocab, shape.hidden) * shape.hidden**0.5
        self.head = weights(shape.vocab, shape.hidden)
        heads = shape.heads + 2 * shape.heads_kv
        self.layers = [
            (
                weights(heads * shape.head_dim, shape.hidden),
                weights(shape.hidden, shape.heads * shape.head_dim),
                weights(2 * shape.ffn, shape.hidden),
                weights(shape.hidden, shape.ffn),
            )
            for _ in range(shape.layers)
        ]

    def __call__(self, batch: Batch, attend) -> Tensor:
        shape = self.shape
        x = self.embedding[batch.ids]
        for layer, (qkv, out, up, down) in enumerate(self.layers):
            heads = F.linear(_normed(x), qkv).view(len(x), -1, shape.head_dim)
            q, k, v = heads.split([shape.heads, shape.heads_kv, shape.heads_kv], dim=1)
            x = x + F.linear(attend(layer, q, k, v, batch).reshape(len(x), -1), out)
            gate, value = F.linear(_normed(x), up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * value, down)
        return F.linear(_normed(x[batch.last]), self.head).argmax(-1)


def _normed(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:])
