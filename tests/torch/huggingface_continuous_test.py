# SPDX-License-Identifier: BSD-3-Clause
"""huggingface_continuous_test.py — continuous batching of transformers on fa3: requests of several
lengths that come and go, in pages, against generate() of each by itself."""

import copy

import fa3.huggingface
import pytest
import torch
import transformers
from huggingface_test import CONFIGS, models
from torch_kit import each_device
from transformers import ContinuousBatchingConfig, GenerationConfig

initialization = pytest.importorskip(
    "transformers.generation.continuous_batching.initialization"
)  # of transformers 5.23

NEW, PAGE = 12, 16
PROMPTS = [[5, 6, 7], list(range(8, 45)), [3] * 17, [9, 80, 9, 81], list(range(60, 99))]


def generate(model, prompts, **options):
    """Tokens and logarithms of their probabilities, of each request."""
    given = {"num_blocks": 64, "page_size": PAGE, "max_batch_tokens": 48, "return_logprobs": True}
    config = ContinuousBatchingConfig(**given | options, auto_switch_to_flash=False)
    sampling = GenerationConfig(
        max_new_tokens=NEW, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    done = model.generate_batch(
        prompts, generation_config=sampling, continuous_batching_config=config
    )
    assert all(x.error is None for x in done.values())
    by_request = sorted(done.values(), key=lambda x: int(x.request_id.removeprefix("req_")))
    return [(x.generated_tokens, x.logprobs) for x in by_request]


def alone(model, prompt):
    ids = torch.tensor([prompt], device=model.device)
    done = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False,
        eos_token_id=None, return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip
    made = done.sequences[0, len(prompt) :]
    logits = torch.cat(done.logits).float().log_softmax(-1)
    return made.tolist(), logits.gather(1, made[:, None])[:, 0].tolist()


def distance(got, want):
    """Of logarithms while tokens are the same; and whether all are."""
    most, alike = 0.0, True
    for (tokens, of_them), (others, of_others) in zip(got, want, strict=True):
        same = next((i for i, (a, b) in enumerate(zip(tokens, others, strict=True)) if a != b), NEW)
        off = torch.tensor(of_them[: same or 1]) - torch.tensor(of_others[: same or 1])
        most, alike = max(most, off.abs().max().item()), alike and same == NEW
    return most, alike


def assert_alike(eager, got):
    want = [alone(eager, prompt) for prompt in PROMPTS]
    if eager.dtype == torch.float32:
        off, alike = distance(got, want)
        assert alike
        assert off <= 1e-3
    else:  # of two models in BF16 neither is right
        exact = [alone(eager.float(), prompt) for prompt in PROMPTS]
        assert distance(got, exact)[0] <= 1.2 * distance(want, exact)[0] + 1e-2


@each_device
@pytest.mark.parametrize("name", CONFIGS)
def test_requests(device, name):
    """Chunked prompts beside steps, and steps alone; on a GPU those by block tables."""
    config = CONFIGS[name]()
    eager, ours = models(config, device)
    ours.set_attn_implementation("flash_fa3")
    assert_alike(eager, generate(ours, PROMPTS))


@pytest.mark.parametrize("tables", [True, False])
def test_keys_are_read_where_they_lie(monkeypatch, tables):
    """tables: the steps of a GPU, on the CPU; transformers hands out block tables there alone."""
    eager, ours = models(CONFIGS["llama"](), "cpu")
    ours.set_attn_implementation("flash_fa3")
    if tables:
        monkeypatch.setattr(
            initialization, "ensure_decode_fast_path_is_available", lambda *_, **__: None
        )
    calls = []
    attention = fa3.torch.attention

    def seen(*args, **given):
        calls.append(
            "appends" if "k_new" in given else "pages" if "page_table" in given else "rows"
        )
        return attention(*args, **given)

    monkeypatch.setattr("fa3.torch.attention", seen)
    got = generate(ours, PROMPTS, max_blocks_per_request=8 if tables else 0)
    assert set(calls) == {"appends", "pages", "rows"} - (set() if tables else {"appends"})
    assert calls.count("rows") <= 2 * len(ours.model.layers)  # prompts without keys before them
    assert_alike(eager, got)


def test_what_is_refused():
    _, ours = models(CONFIGS["llama"](), "cpu")
    with pytest.raises(ValueError, match="fa3 is not supported for continuous batching"):
        generate(ours, PROMPTS)
    with pytest.raises(NotImplementedError, match="position_bias with cache"):
        x = torch.zeros(1, 2, 3, 16)
        fa3.huggingface.attend(ours, x, x, x, None, position_bias=x, cache=object())


def test_the_second_name_is_the_first():
    """Outside of batches, too: windows and padding are the mask's."""
    config = CONFIGS["mistral"]()
    config._attn_implementation = "fa3"
    torch.manual_seed(3)
    model = transformers.MistralForCausalLM(copy.deepcopy(config)).eval()
    ids = torch.randint(1, 99, (2, 20))
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    out = []
    for name in ("fa3", "flash_fa3"):
        model.set_attn_implementation(name)
        with torch.no_grad():
            out.append(model(input_ids=ids, attention_mask=mask).logits)
    assert torch.equal(*out)
