# SPDX-License-Identifier: BSD-3-Clause
"""fa3.torch.FlashAttention3: multi-head self-attention as a torch.nn.Module, from a dictionary."""

import functools
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import fa3

from .function import attention

# Keys of a config and what stands for those that are absent.
DEFAULTS = {
    "embed_dim": 512,
    "num_heads": 8,
    "dropout": 0.0,
    "bias": True,
    "use_fp8": False,
    "fp8_block_size": 128,
    "use_async": True,
}


def is_flash_attention_3_available() -> bool:
    """Whether there is a GPU here, PyTorch's current one, on which fa3's Hopper kernels run."""
    if not torch.cuda.is_available():
        return False
    some = fa3.Spec((1, 128, 1, 128), "bfloat16", device=f"cuda:{torch.cuda.current_device()}")
    return bool(fa3.supported(fa3.attention, some, some, some))


class FlashAttention3Core(nn.Module):
    """Attention of q, k and v by the fastest way that their device has, without parameters.

    On a Hopper GPU and on the CPU that is fa3. Where fa3 declines what is asked (another GPU,
    float32 on a GPU) PyTorch's scaled_dot_product_attention stands in; a warning says so, once.

    use_fp8: 8 bits in the forward; gradients are those of the 16-bit backward. float32 is rounded
      to bfloat16 first.
    fp8_block_size: columns of a head that share a scale with those of no other token. From head_dim
      on: the scales of fa3.torch.attention's precision "fp8", which is faster.
    use_async: False is accepted and has no effect: fa3's kernels always overlap.

    The attribute `precision` may be set to another name of fa3.torch.attention's.
    """

    __module__ = "fa3.torch"

    def __init__(self, use_fp8: bool = False, fp8_block_size: int = 128, use_async: bool = True):
        super().__init__()
        config = {"use_fp8": use_fp8, "fp8_block_size": fp8_block_size, "use_async": use_async}
        for key, value in config.items():
            _check(key, value)
        self.use_fp8, self.fp8_block_size, self.use_async = use_fp8, fp8_block_size, use_async
        self.precision = "fp8" if use_fp8 else "default"
        if not use_async:
            _say("use_async: False has no effect: fa3's kernels always overlap loads and GEMMs")

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        causal: bool = False,
        attn_mask: Tensor | None = None,
    ) -> Tensor:
        """softmax(q·kᵀ / √head_dim + mask) · v.

        q: (batch, heads, N, head_dim); k, v: (batch, heads_kv, N_kv, head_dim), where heads is a
          multiple of heads_kv. Any strides with a contiguous last dimension: nothing is copied.
        causal: query i sees keys up to i + (N_kv − N).
        attn_mask: what broadcasts to (batch, heads, N, N_kv): bool, where False hides a key, or
          numbers that are added to the scores. And causal.

        Returns (batch, heads, N, head_dim), a view of (batch, N, heads, head_dim).
        """
        for name, x in (("q", q), ("k", k), ("v", v)):
            if x.dim() != 4:
                raise ValueError(
                    f"{name}: {x.dim()} dimensions, need 4, (batch, heads, N, head_dim)"
                )
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        dtype = kept = q.dtype
        kind = q.device.type
        if kind != "meta" and torch.is_autocast_enabled(kind) and dtype != torch.float64:
            dtype = kept = torch.get_autocast_dtype(kind)
        if self.precision != "default" and dtype in (torch.float32, torch.float64):
            dtype = torch.bfloat16
        if q.dtype is not dtype:
            q, k, v = (x.to(dtype) for x in (q, k, v))
        mask = recorded = of_mask = None
        if attn_mask is not None:
            mask, of_mask = attn_mask.dtype, attn_mask.requires_grad
        if torch.is_grad_enabled():
            recorded = q.requires_grad or k.requires_grad or v.requires_grad or of_mask
        precision, block = _way(
            kind, q.device.index, dtype, q.shape[-1], causal, mask,
            bool(recorded), bool(recorded and of_mask), self.precision, self.block_of(q.shape[-1]),
        )  # fmt: skip
        if precision is None:
            out = _by_pytorch(q, k, v, causal, attn_mask)
        else:
            out = attention(
                q, k, v, causal=causal, attn_mask=attn_mask, precision=precision, fp8_block=block
            )
        return out.to(kept).transpose(1, 2)

    def block_of(self, head_dim: int) -> int:
        """fp8_block of fa3.torch.attention for this head_dim; 0 where a block is the whole head."""
        if self.precision != "fp8" or _whole_head(self.fp8_block_size, head_dim):
            return 0
        return self.fp8_block_size

    def extra_repr(self) -> str:
        return (
            f"use_fp8={self.use_fp8}, fp8_block_size={self.fp8_block_size}, "
            f"use_async={self.use_async}"
        )


class FlashAttention3(nn.Module):
    """Multi-head self-attention: projections q_proj, k_proj, v_proj and out_proj around
    FlashAttention3Core, `flash_attn`.

        attention = FlashAttention3({"embed_dim": 2048, "num_heads": 16}).to("cuda", torch.bfloat16)
        y = attention(x, causal=True)          # (batch, N, embed_dim)

    config, all optional:
      embed_dim (512), num_heads (8): head_dim is their quotient.
      dropout (0.0): of attention weights. In training others than 0 are refused: not offered.
      bias (True): of the projections.
      use_fp8 (False), fp8_block_size (128), use_async (True): as of FlashAttention3Core. A block is
        a divisor of head_dim, or the whole head.
    device, dtype: of the parameters, as torch.nn.Linear takes them.

    Raises ValueError for a config with a key that is none, or with an impossible value.
    """

    __module__ = "fa3.torch"

    def __init__(self, config: Mapping[str, Any] | None = None, *, device=None, dtype=None):
        super().__init__()
        self.config = config = _checked(config)
        width, bias = config["embed_dim"], config["bias"]
        self.embed_dim, self.num_heads = width, config["num_heads"]
        self.head_dim = width // self.num_heads
        self.dropout = config["dropout"]
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(width, width, bias, device=device, dtype=dtype))
        self.flash_attn = FlashAttention3Core(
            config["use_fp8"], config["fp8_block_size"], config["use_async"]
        )

    def forward(self, x: Tensor, causal: bool = False, attn_mask: Tensor | None = None) -> Tensor:
        """x: (batch, N, embed_dim). causal, attn_mask: as of FlashAttention3Core; padding is a mask
        of (batch, 1, 1, N). Returns (batch, N, embed_dim)."""
        if x.dim() != 3 or x.shape[-1] != self.embed_dim:
            raise ValueError(
                f"x: shape {tuple(x.shape)}, need (batch, N, {self.embed_dim}), whose last extent "
                "is embed_dim"
            )
        if self.dropout > 0 and self.training:
            raise NotImplementedError(
                f"dropout: {self.dropout} in training: that of attention weights is not offered; "
                "take 'dropout': 0.0 and a torch.nn.Dropout on what this returns, or eval()"
            )
        heads = (*x.shape[:2], self.num_heads, self.head_dim)
        # Views of what the GEMMs have written, not copies; not kept while out_proj runs.
        out = self.flash_attn(
            *(of(x).view(heads).transpose(1, 2) for of in (self.q_proj, self.k_proj, self.v_proj)),
            causal=causal,
            attn_mask=attn_mask,
        )
        return self.out_proj(out.transpose(1, 2).reshape(x.shape))

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, dropout={self.dropout}"


class TransformerLayer(nn.Module):
    """A pre-norm layer: x + attention(norm1(x)), then x + ffn(norm2(x)), where ffn is Linear to 4 ·
    embed_dim, GELU, Linear back, Dropout.

    config: as of FlashAttention3; `dropout` is that of ffn, so it is taken in training, too.
    """

    __module__ = "fa3.torch"

    def __init__(self, config: Mapping[str, Any] | None = None, *, device=None, dtype=None):
        super().__init__()
        self.config = config = _checked(config)
        width, made = config["embed_dim"], {"device": device, "dtype": dtype}
        self.norm1 = nn.LayerNorm(width, **made)
        self.attention = FlashAttention3({**config, "dropout": 0.0}, **made)
        self.norm2 = nn.LayerNorm(width, **made)
        self.ffn = nn.Sequential(
            nn.Linear(width, 4 * width, **made),
            nn.GELU(),
            nn.Linear(4 * width, width, **made),
            nn.Dropout(config["dropout"]),
        )

    def forward(self, x: Tensor, causal: bool = False, attn_mask: Tensor | None = None) -> Tensor:
        """As of FlashAttention3."""
        x = x + self.attention(self.norm1(x), causal=causal, attn_mask=attn_mask)
        return x + self.ffn(self.norm2(x))


# ---- What computes ------------------------------------------------------------------------------


def _way(*asked: Any) -> tuple[str | None, int]:
    return _decide(*asked)


# What torch.compiler.assume_constant_result does, which would import the compiler: a second.
_way._dynamo_marked_constant = True


@functools.lru_cache(maxsize=None)
def _decide(
    kind: str,
    index: int | None,
    dtype: torch.dtype,
    head_dim: int,
    causal: bool,
    mask: torch.dtype | None,
    recorded: bool,
    of_mask: bool,
    precision: str,
    block: int,
) -> tuple[str | None, int]:
    """precision and fp8_block for fa3.torch.attention, or (None, 0) for PyTorch; what is not as it
    was asked for is said. By the library's answer about a problem of this kind."""
    if kind == "cpu":
        _say(
            "computed on the CPU, by fa3's CPU backend: tensors are there; the kernels of "
            "FlashAttention-3 need a Hopper GPU"
        )
    if kind not in ("cpu", "cuda") or (kind == "cpu" and dtype is torch.float64):
        return precision, block  # meta; by fa3's reference backend; or refused by attention
    device = kind if index is None else f"{kind}:{index}"
    columns = -(-head_dim // 8) * 8 if kind == "cuda" else head_dim  # as attention pads
    rows = 128
    some, lse = _spec((1, rows, 1, columns), dtype, device), _spec((1, 1, rows), None, device)
    terms: dict[str, Any] = {"causal": causal}
    if mask is not None:
        if mask not in (torch.bool, torch.float32, dtype):
            mask = torch.float32
        terms["attn_mask"] = _spec((1, 1, rows, rows), mask, device)
    if recorded:
        wanted = {**terms, "return_dattn_mask": True} if of_mask else terms
        answer = fa3.supported(fa3.attention_backward, *(some,) * 5, lse, **wanted)
        if not answer:
            return _stand_in(answer.reason)
    if precision != "default":
        if block:
            codes = _spec((1, rows, 1, columns), torch.float8_e4m3fn, device)
            scale = _spec((1, 1, rows, -(-columns // block)), None, device)
            coded: dict[str, Any] = {"out": some, **terms}
            if mask is not None and mask.is_floating_point:
                coded["attn_mask"] = _spec((1, 1, rows, rows), torch.float32, device)
            for name in "qkv":
                coded |= {f"{name}_scale": scale, f"{name}_block": (1, block)}
            answer = fa3.supported(fa3.attention, codes, codes, codes, **coded)
        else:
            answer = fa3.supported(fa3.attention, some, some, some, precision=precision, **terms)
        if answer:
            return precision, block
        _say(f"computed in 16 bits, not in 8: {answer.reason}")
    answer = fa3.supported(fa3.attention, some, some, some, **terms)
    return ("default", 0) if answer else _stand_in(answer.reason)


def _spec(shape: tuple[int, ...], dtype: torch.dtype | None, device: str) -> fa3.Spec:
    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    return fa3.Spec(shape, name, device=device)


def _stand_in(reason: str) -> tuple[None, int]:
    _say(
        "computed by PyTorch's scaled_dot_product_attention, not by FlashAttention-3, since fa3 "
        f"declines: {reason}"
    )
    return None, 0


_said: set[str] = set()


def _say(what: str) -> None:
    """Warns, once in a process."""
    if what not in _said:
        _said.add(what)
        warnings.warn(f"FlashAttention3: {what}", stacklevel=2)


def _by_pytorch(q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Tensor | None) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    rows, keys = q.shape[2], k.shape[2]
    top_left = causal and mask is None and rows == keys
    if causal and not top_left:
        seen = torch.ones(rows, keys, dtype=torch.bool, device=q.device).tril(keys - rows)
        if mask is None or mask.dtype is torch.bool:
            mask = seen if mask is None else mask & seen
        else:
            mask = mask.masked_fill(~seen, -torch.inf)
    if mask is not None and mask.dtype is not torch.bool:
        mask = mask.to(q.dtype)
    grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    out = nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=top_left, **grouped
    )
    return out.transpose(1, 2)


# ---- Configs ------------------------------------------------------------------------------------


def _checked(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """A config with every key; refuses what is impossible."""
    config = {} if config is None else config
    if not isinstance(config, Mapping):
        raise TypeError(f"config: {type(config).__name__}, need a dictionary, as {DEFAULTS}")
    for key in config:
        if key not in DEFAULTS:
            raise ValueError(f"config: key {key!r}, need one of {', '.join(DEFAULTS)}; take it out")
    full = {**DEFAULTS, **config}
    for key, value in full.items():
        _check(key, value)
    width, heads, block = full["embed_dim"], full["num_heads"], full["fp8_block_size"]
    if width % heads != 0:
        raise ValueError(
            f"embed_dim: {width}, need a multiple of num_heads, {heads}; take "
            f"{-(-width // heads) * heads}, or another num_heads"
        )
    head_dim = width // heads
    default = "fp8_block_size" not in config and head_dim % block != 0
    if default or _whole_head(block, head_dim):
        full["fp8_block_size"] = head_dim
    return full


def _check(key: str, value: Any) -> None:
    """Refuses a value that no other key could make possible."""
    if key in ("bias", "use_fp8", "use_async"):
        if not isinstance(value, bool):
            raise ValueError(f"{key}: {value!r}, need True or False")
    elif key == "dropout":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
            raise ValueError(f"dropout: {value!r}, need a number ≥ 0 and < 1")
    elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{key}: {value!r}, need a whole number ≥ 1")


def _whole_head(block: int, head_dim: int) -> bool:
    """Whether a block of so many columns is the whole head. Refuses one that does not fit it; above
    head_dim those fit that a head may have: its multiples and powers of two."""
    if head_dim % block == 0:
        return block == head_dim
    if block > head_dim and (block % head_dim == 0 or block & (block - 1) == 0):
        return True
    fits = max(n for n in range(1, min(block, head_dim) + 1) if head_dim % n == 0)
    raise ValueError(
        f"fp8_block_size: {block}, need a divisor of head_dim, {head_dim}, or the whole head; take "
        + (f"{fits}" if fits == head_dim else f"{fits} or {head_dim}")
    )
