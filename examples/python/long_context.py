#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""long_context.py — one attention module on longer and longer sequences: time, memory, tokens/s.

    examples/python/long_context.py                  # on a Hopper GPU up to 131,072 tokens
    examples/python/long_context.py --max-tokens 32768

Batch 1, embed_dim 2048, 16 heads, causal; in BF16, and with 8 bits (use_fp8, block 128). Time is
the mean ± standard deviation of 10 forwards of FlashAttention3, projections included, after 3;
memory is the peak of what PyTorch has allocated, weights, input and output included: it grows in
proportion to the length.
"""

import argparse

import measuring
import torch

from fa3.torch import FlashAttention3


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    measuring.add_options(parser)
    parser.add_argument("--max-tokens", type=int, help="the longest sequence (131072; CPU: 1024)")
    options = parser.parse_args()
    device = measuring.device_of(options)
    shortest, longest, width, heads = (256, 1024, 256, 4) if device == "cpu" else (
        4096, 131072, 2048, 16)  # fmt: skip
    longest = options.max_tokens or longest

    torch.manual_seed(1)
    config = {"embed_dim": width, "num_heads": heads}
    made = {"device": device, "dtype": torch.bfloat16}
    modules = {"BF16": FlashAttention3(config, **made)}
    modules["FP8"] = FlashAttention3({**config, "use_fp8": True}, **made)
    modules["FP8"].load_state_dict(modules["BF16"].state_dict())
    cells, rows, tokens = [], [], shortest
    while tokens <= longest:
        for name, module in modules.items():
            x = torch.randn(1, tokens, width, **made)
            module(x, causal=True)  # kernels are compiled, buffers of cuBLAS made
            peak = None
            if device != "cpu":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                module(x, causal=True)
                peak = torch.cuda.max_memory_allocated() / 1e9
            mean, deviation = measuring.milliseconds(lambda: module(x, causal=True), device)
            speed = tokens / mean * 1e3
            cell = {"cell": f"{name}, {tokens}", "ms": round(mean, 4)}
            cell |= {"ms_deviation": round(deviation, 4), "tokens_per_s": round(speed)}
            cells.append(cell if peak is None else {**cell, "peak_gb": round(peak, 3)})
            row = [f"{tokens:,}", name, f"{mean:.2f} ± {deviation:.2f}"]
            rows.append([*row, "–" if peak is None else f"{peak:.2f}", f"{speed:,.0f}"])
        tokens *= 2
    print(f"batch 1, embed_dim {width}, {heads} heads, causal, {device}\n")
    measuring.print_table(["tokens", "", "ms", "peak, GB", "tokens/s"], rows)
    measuring.write(options, "module-long-context", device, cells, batch=1, embed_dim=width,
                    num_heads=heads, causal=True)  # fmt: skip


if __name__ == "__main__":
    main()
