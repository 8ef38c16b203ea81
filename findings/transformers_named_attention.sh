#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# transformers_named_attention.sh — transformers 5.23.0: an attention function that is registered
# under a name of its own sees no padding.
#
# AttentionInterface.register("mine", f) is all that from_config and from_pretrained ask for. But a
# model's mask is made by what AttentionMaskInterface has under the same name. Where it has nothing,
# attention_mask is dropped without a word: f is given None, and rows of padding are attended to as
# tokens. The function behind "sdpa" itself, under another name, gives other logits for a padded
# row; a batch without padding is right, and so are most tests. The cure is a second registration,
# AttentionMaskInterface.register("mine", sdpa_mask).
#
# Seen: a small Llama, one row of two padded on the left. Do the logits of that row's real tokens
# depend on what its padding holds?
#   eager: no
#   sdpa: no
#   sdpa's function as "mine": yes
#   and its mask function, too: no
. "$(dirname "$0")/kit.sh"
install_torch
cat >see.py <<'END'
import copy

import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

assert transformers.__version__ == "5.23.0", transformers.__version__
config = LlamaConfig(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=64, vocab_size=99, pad_token_id=0,
)
shown = torch.ones(2, 8, dtype=torch.long)
shown[1, :3] = 0
tokens = torch.arange(16).reshape(2, 8) + 3
others = tokens.where(shown == 1, 50)


def depends(name):
    torch.manual_seed(0)
    model = LlamaForCausalLM._from_config(copy.deepcopy(config), attn_implementation=name).eval()
    for p in model.parameters():
        if p.dim() > 1:
            p.data.normal_(std=0.1)
    with torch.no_grad():
        one, other = (model(x, attention_mask=shown).logits for x in (tokens, others))
    return "yes" if (one - other)[1, 3:].abs().max() > 1e-4 else "no"


print("eager:", depends("eager"))
print("sdpa:", depends("sdpa"))
AttentionInterface.register("mine", sdpa_attention_forward)
print('sdpa\'s function as "mine":', depends("mine"))
AttentionMaskInterface.register("mine", sdpa_mask)
print("and its mask function, too:", depends("mine"))
END
as_seen "$("$python" -W ignore see.py)"
