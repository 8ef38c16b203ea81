# SPDX-License-Identifier: BSD-3-Clause
"""fa3.huggingface: attn_implementation="fa3" in the package transformers.

    import fa3.huggingface
    fa3.huggingface.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="fa3")

Registers an attention function and a mask function. What a query sees is decided by what the model
asks the mask function for, as in transformers' eager attention, never by the attention module's
is_causal: kind, window and sequence ids travel with the mask (_mask.py). Padding on either side,
packed sequences, windows, chunks, grouped heads, dynamic and static caches, training. Of these fa3
needs lengths or sequence ids, never a mask of length × length; other masks are tensors of that
size, those of one's own and those that are passed in with four dimensions, and biases of positions.
What fa3 lacks raises NotImplementedError and names a remedy that works; so do models that compute
attention themselves. transformers 5.

Continuous batching (model.generate_batch; transformers 5.23) takes implementations with "flash" in
their names alone: load the model with attn_implementation="flash_fa3", which is the same.
"""

from ._attend import attend
from ._build import build_mask
from ._continuous import admit
from ._models import guard

__all__ = ["attend", "build_mask", "register"]


def register(name: str = "fa3") -> None:
    """Makes `name` an attn_implementation, and "flash_" + name, too. May be called again."""
    from transformers import AttentionInterface, AttentionMaskInterface

    admit(f"flash_{name}")
    for each in (name, f"flash_{name}"):
        AttentionInterface.register(each, attend)
        AttentionMaskInterface.register(each, build_mask)
        guard(each)
