#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""precisions.py — one attention module in 16 and in 8 bits: time, and error against FP64.

    examples/python/precisions.py                    # on a Hopper GPU as below, else small
    examples/python/precisions.py --tokens 16384

Batch 2, 4096 tokens, embed_dim 2048, 16 heads, causal, BF16 weights. `module` is the time of
FlashAttention3 with its four projections, `attention` that of its flash_attn alone, quantising
included. Mean ± standard deviation of 10 runs after 3. The error is the mean of |out − exact| over
that of |exact|, where `exact` is computed in FP64 of the same weights and inputs.
"""

import argparse

import measuring
import torch
from torch.nn.functional import scaled_dot_product_attention

from fa3.torch import FlashAttention3


class PyTorchCore(torch.nn.Module):
    def forward(self, q, k, v, causal=False, attn_mask=None):
        return scaled_dot_product_attention(q, k, v, is_causal=causal)


def contenders(config, head_dim):
    """Names, and modules that differ in how they attend."""
    eighth, half = {**config, "use_fp8": True}, head_dim // 2
    found = {"BF16, PyTorch": FlashAttention3(config), "BF16": FlashAttention3(config)}
    found["BF16, PyTorch"].flash_attn = PyTorchCore()
    for block in (128, half):
        found[f"FP8, block {block}"] = FlashAttention3({**eighth, "fp8_block_size": block})
    for precision in ("eight_bit", "eight_bit_accurate"):
        found[precision] = FlashAttention3(config)
        found[precision].flash_attn.precision = precision
    return found


def projected(module, x):
    """q, k and v as (batch, heads, N, head_dim)."""
    heads = (module.num_heads, module.head_dim)
    projections = (module.q_proj, module.k_proj, module.v_proj)
    return [of(x).unflatten(-1, heads).transpose(1, 2) for of in projections]


def exact(module, x):
    """What the module computes, causal, in FP64."""

    def linear(of, x):
        return torch.nn.functional.linear(x, of.weight.double(), of.bias.double())

    x = x.double()
    q, k, v = (
        linear(of, x).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for of in (module.q_proj, module.k_proj, module.v_proj)
    )
    hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
    for batch, head in torch.cartesian_prod(*map(torch.arange, q.shape[:2])).tolist():
        at = (batch, head)
        s = (q[at] @ k[at].T * module.head_dim**-0.5).masked_fill_(hidden, -torch.inf)
        q[at] = torch.softmax(s, -1) @ v[at]
    return linear(module.out_proj, q.transpose(1, 2).flatten(2))


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    measuring.add_options(parser)
    for name in ("batch", "tokens", "embed-dim", "num-heads"):
        parser.add_argument(f"--{name}", type=int)
    options = parser.parse_args()
    device = measuring.device_of(options)
    usual = (1, 256, 256, 4) if device == "cpu" else (2, 4096, 2048, 16)
    given = (options.batch, options.tokens, options.embed_dim, options.num_heads)
    batch, tokens, width, heads = (a or b for a, b in zip(given, usual, strict=True))

    torch.manual_seed(1)
    modules = contenders({"embed_dim": width, "num_heads": heads}, width // heads)
    first = modules["BF16"].to(device, torch.bfloat16)
    x = torch.randn(batch, tokens, width, dtype=torch.bfloat16, device=device)
    want = exact(first, x)
    qkv = projected(first, x)
    cells = []
    for name, module in modules.items():
        module.to(device, torch.bfloat16).load_state_dict(first.state_dict())
        out, core = module(x, causal=True), module.flash_attn
        error = ((out.double() - want).abs().mean() / want.abs().mean()).item()
        cell = {"cell": name, "mean_relative_error": round(error, 6)}
        for part, call in (
            ("module", lambda: module(x, causal=True)),
            ("attention", lambda: core(*qkv, causal=True)),
        ):
            mean, deviation = measuring.milliseconds(call, device)
            cell |= {f"{part}_ms": round(mean, 4), f"{part}_ms_deviation": round(deviation, 4)}
        cells.append(cell)

    base = next(cell for cell in cells if cell["cell"] == "BF16")
    rows = []
    for cell in cells:
        row = [cell["cell"]]
        for part in ("module", "attention"):
            mean, deviation = cell[f"{part}_ms"], cell[f"{part}_ms_deviation"]
            row += [f"{mean:.3f} ± {deviation:.3f}", f"{base[f'{part}_ms'] / mean:.2f}×"]
        rows.append([*row, f"{cell['mean_relative_error']:.2%}"])
    print(f"batch {batch}, {tokens} tokens, embed_dim {width}, {heads} heads, causal, {device}\n")
    measuring.print_table(["", "module, ms", "", "attention, ms", "", "mean error"], rows)
    measuring.write(options, "module-precisions", device, cells, batch=batch, tokens=tokens,
                    embed_dim=width, num_heads=heads, causal=True)  # fmt: skip


if __name__ == "__main__":
    main()
