#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# torch_hidden_rows.sh — PyTorch 2.15.0 on a CPU: dV of a row whose keys are all hidden by a large
# finite number in attn_mask, -1e9 or torch.finfo().min, as models add to rows of padding.
#
# The output of such a row is right: the mean of V, with weights that add up to 1. A loss shows
# nothing. The backward of the default kernel (flash) computes the weights again from the row's
# log-sum-exp. At -1e9 the next float is 64 away, so log(64 keys) is lost from it and each weight
# is 1: dV of the row is 64 times what it should be, and at -1e8 a fiftieth of it. With
# SDPBackend.MATH the weights add up to 1. Nothing warns.
#
# Seen: sums over 64 keys of the row's weights in dV, FP32.
#   mask              math  default
#   -1000             1.00     1.00
#   -1e+08            1.00     0.02
#   -1e+09            1.00    64.00
#   -3.4028235e+38    1.00    64.00
#   -inf              0.00     0.00
. "$(dirname "$0")/kit.sh"
install_torch
cat >see.py <<'END'
import contextlib

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

assert torch.__version__.split("+")[0] == "2.15.0", torch.__version__
torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 1, 64, 16)


def weights(value, kernel):
    """Sum over keys of dV where dO is 1 in row 3, whose keys are all hidden by `value`."""
    mask = torch.zeros(64, 64)
    mask[3] = value
    values = v.clone().requires_grad_()
    with kernel:
        out = torch.nn.functional.scaled_dot_product_attention(q, k, values, attn_mask=mask)
    out[0, 0, 3].sum().backward()
    return values.grad[0, 0, :, 0].sum().item()


print("mask              math  default")
for value in (-1e3, -1e8, -1e9, torch.finfo(torch.float32).min, float("-inf")):
    math = weights(value, sdpa_kernel(SDPBackend.MATH))
    default = weights(value, contextlib.nullcontext())
    print(f"{torch.tensor(value).item():<15.8g} {math:6.2f}  {default:7.2f}")
END
as_seen "$("$python" -W ignore see.py)"
