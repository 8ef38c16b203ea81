#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# torch_nan_becomes_zero.sh — PyTorch 2.15.0, CPU: scaled_dot_product_attention makes 0 of a NaN.
#
# What the default backend gives for a query that holds a NaN is a row of zeros, and zeros are the
# whole result where scale is NaN. The backend MATH gives NaN in both. A broken activation is thus
# gone after the first attention layer, and the loss that is computed of it looks healthy.
#
# Seen, head dim 8, 4 queries and keys in float32:
#   query 1 is NaN, row 1: default 0, math NaN
#   query 1 is NaN, row 2: default numbers, math numbers
#   scale is NaN, row 1: default 0, math NaN
#   scale is NaN, row 2: default 0, math NaN
. "$(dirname "$0")/kit.sh"
install_torch
cat >see.py <<'END'
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

assert torch.__version__.startswith("2.15.0"), torch.__version__
torch.manual_seed(0)
q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))
q[0, 0, 1] = torch.nan


def what(x):
    return "NaN" if x.isnan().all() else "0" if (x == 0).all() else "numbers"


def both(name, **arguments):
    default = sdpa(q, k, v, **arguments)[0, 0]
    with sdpa_kernel(SDPBackend.MATH):
        math = sdpa(q, k, v, **arguments)[0, 0]
    for row in (1, 2):
        print(f"{name}, row {row}: default {what(default[row])}, math {what(math[row])}")


both("query 1 is NaN")
both("scale is NaN", scale=float("nan"))
END
as_seen "$("$python" -W ignore see.py)"
