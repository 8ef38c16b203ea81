#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# transformers_dropped_arguments.sh — transformers 5.23.0: what a flash attention function has no
# parameter for is left out without a word, a sliding window among it.
#
# transformers looks at the signature of the function that it is to call, and hands it what it has
# parameters for. Softcap raises where there is none. Sinks (s_aux), a sliding window and dropout
# change the result as much, and are dropped: a kernel for inference without a window attends to all
# keys of a model that was trained with one.
#
# Seen, a function of q, k, v, softmax_scale and causal, 4 queries and 40 keys:
#   s_aux: called with causal, softmax_scale
#   sliding_window of 8: called with causal, softmax_scale
#   dropout of 0.1: called with causal, softmax_scale
#   softcap of 20: ValueError
. "$(dirname "$0")/kit.sh"
install_torch
cat >see.py <<'END'
import torch
import transformers
from transformers.modeling_flash_attention_utils import _lazy_define_process_function

assert transformers.__version__ == "5.23.0", transformers.__version__


def kernel(q, k, v, softmax_scale=None, causal=False):
    pass


process = _lazy_define_process_function(kernel)


def see(what, **arguments):
    try:
        taken = process(query_length=4, key_length=40, is_causal=True, **arguments)
        print(f"{what}: called with {', '.join(sorted(taken))}")
    except Exception as error:
        print(f"{what}: {type(error).__name__}")


see("s_aux", s_aux=torch.ones(2))
see("sliding_window of 8", sliding_window=8)
see("dropout of 0.1", dropout=0.1)
see("softcap of 20", softcap=20.0)
END
as_seen "$("$python" -W ignore see.py)"
