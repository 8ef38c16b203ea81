#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# transformers_shared_pages.sh — transformers 5.23.0: the keys and the values of its paged cache are
# views of one memory that share elements.
#
# In continuous batching an attention function that takes block tables is given a layer's k_cache
# and v_cache, (pages, page_size, heads, head_dim), and appends to both. They begin a page apart and
# step by one page each: page 1 of the keys is page 0 of the values, and of layers of the same kind
# so is page 2 the next layer's. Tables hold multiples of twice the number of those layers, so no
# page is ever used as both. But a kernel, or an operator with mutated arguments, that wants its
# outputs to share nothing with other arguments has to refuse every such call.
#
# Seen: the cache of a Llama of two layers, pages of 16 tokens.
#   k_cache, v_cache: (103, 16, 2, 8), contiguous: True True
#   v_cache begins behind k_cache by 1 page
#   page 1 of the keys is page 0 of the values: True
#   pages in the table of a request of 40 tokens are multiples of 4: True
. "$(dirname "$0")/kit.sh"
install_torch
cat >see.py <<'END'
import logging

logging.disable(logging.CRITICAL)
import torch
import transformers
from transformers import LlamaConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.generation.continuous_batching.distributed import DistributedHelper
from transformers.generation.continuous_batching.requests import RequestState

assert transformers.__version__ == "5.23.0", transformers.__version__
config = LlamaConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=64, vocab_size=99,
)
batching = ContinuousBatchingConfig(
    page_size=16, num_blocks=24, max_batch_tokens=64, max_requests_per_batch=4,
    max_blocks_per_request=8, max_memory_percent=0.5,
)
alone = DistributedHelper(None, None)
cache = PagedAttentionCache(config, batching, torch.device("cpu"), alone, torch.float32)
allocator = cache.layer_to_allocator[0]
k, v = allocator.get_cache_for_block_table(0)
page = k[0].numel() * k.element_size()
print("k_cache, v_cache:", f"{tuple(k.shape)}, contiguous:", k.is_contiguous(), v.is_contiguous())
print("v_cache begins behind k_cache by", (v.data_ptr() - k.data_ptr()) // page, "page")
print("page 1 of the keys is page 0 of the values:", k[1].data_ptr() == v[0].data_ptr())
state = RequestState(request_id="a", initial_tokens=list(range(40)))
assert cache.can_store_request_tokens(state, 40)
table = torch.full((8,), -1, dtype=torch.int32)
allocator.fill_block_table("a", 0, 40, table)
used = table[table >= 0]
print("pages in the table of a request of 40 tokens are multiples of 4:",
      len(used) == 3 and bool((used % 4 == 0).all()))
END
as_seen "$("$python" -W ignore see.py)"
