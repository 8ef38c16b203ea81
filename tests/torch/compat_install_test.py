# SPDX-License-Identifier: BSD-3-Clause
"""compat_install_test.py — fa3.compat.install: modules, metadata, and what transformers makes of
them."""

import contextlib
import importlib.util
import io
import os
import subprocess
import sys
import traceback
import types

import fa3.compat
import pytest


def run(code):
    """In a child of this process, which has PyTorch loaded."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        text = io.StringIO()
        status = 1
        try:
            with contextlib.redirect_stdout(text):
                exec(code, {})
            status = 0
        except BaseException:
            text.write(traceback.format_exc())
        finally:
            os.write(writer, text.getvalue().encode())
            os._exit(status)
    os.close(writer)
    with open(reader) as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    return types.SimpleNamespace(returncode=status, stdout=text)


def test_install():
    code = """
import fa3.compat
fa3.compat.install()
fa3.compat.install()  # again is no error
import importlib.util, torch, flash_attn, flash_attn_interface
from flash_attn.flash_attn_interface import flash_attn_varlen_func
from flash_attn_interface import flash_attn_func
assert importlib.util.find_spec("flash_attn") and importlib.util.find_spec("flash_attn_interface")
x = torch.randn(1, 4, 2, 8)
assert torch.equal(flash_attn_func(x, x, x), flash_attn.flash_attn_func(x, x, x))
"""
    done = run(code)
    assert done.returncode == 0, done.stdout


def test_install_over_the_original():
    code = """
import sys, types
sys.modules["flash_attn"] = original = types.ModuleType("flash_attn")
import fa3.compat
try:
    fa3.compat.install()
except RuntimeError as error:
    print(error)
assert sys.modules["flash_attn"] is original and "flash_attn_interface" not in sys.modules
fa3.compat.install("flash_attn_interface")
fa3.compat.install(replace=True)
assert sys.modules["flash_attn"] is not original
"""
    done = run(code)
    assert done.returncode == 0, done.stdout
    assert "flash_attn is installed; uninstall it, or say replace=True" in done.stdout


def test_install_what():
    with pytest.raises(ValueError, match='names: "xformers", need one of "flash_attn_interface", '):
        fa3.compat.install("xformers")


def test_modules_of_other_names():
    code = """
import importlib.util
import fa3.compat
fa3.compat.install()
for name in ("flash_attn_3", "flashattn_hopper", "flash_attn.ops"):
    assert importlib.util.find_spec(name) is None
fa3.compat.install("flash_attn_3", "flashattn_hopper")
import flash_attn
from flash_attn_3.flash_attn_interface import _flash_attn_forward, flash_attn_with_kvcache
from flashattn_hopper.flash_attn_interface import _flash_attn_backward
from flash_attn.flash_attn_interface import _flash_attn_forward as two, _flash_attn_varlen_backward
from flash_attn.bert_padding import pad_input, unpad_input
from flash_attn.layers.rotary import RotaryEmbedding
import fa3.compat.flash_attn_interface as ours
assert flash_attn.bert_padding.pad_input is pad_input and hasattr(flash_attn.layers, "rotary")
assert _flash_attn_forward is ours._flash_attn_forward and two is not _flash_attn_forward
assert not hasattr(flash_attn, "_flash_attn_forward")
assert importlib.util.find_spec("flash_attn.bert_padding")
"""
    done = run(code)
    assert done.returncode == 0, done.stdout


def test_metadata():
    code = """
import importlib.metadata
import fa3.compat

def known():
    all = importlib.metadata.packages_distributions()
    return {name: packages for name, packages in all.items() if name.startswith("flash")}

fa3.compat.install()
assert known() == {}
fa3.compat.install(metadata=True)
assert known() == {"flash_attn": ["flash-attn"], "flash_attn_interface": ["flash-attn-3"]}
fa3.compat.install("flash_attn_3", metadata=True)
assert known()["flash_attn_3"] == known()["flash_attn_interface"] == ["flash-attn-3"]
for name in ("flash-attn-3", "flash_attn_3", "Flash.Attn.3"):
    assert importlib.metadata.version(name) == "3.0.0"
assert importlib.metadata.version("flash-attn") == fa3.compat.flash_attn.__version__
assert importlib.metadata.metadata("flash-attn")["Name"] == "flash-attn"
assert importlib.metadata.version("numpy")
try:
    importlib.metadata.version("flash-attn-4")
except importlib.metadata.PackageNotFoundError:
    print("as it should")
"""
    done = run(code)
    assert done.returncode == 0, done.stdout
    assert "as it should" in done.stdout


def test_metadata_beside_that_of_the_original(tmp_path):
    """A package whose modules cannot be found counts as installed, too."""
    folder = tmp_path / "flash_attn_3-3.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: flash_attn_3\nVersion: 3.1\n")
    code = f"""
import sys
sys.path.append({str(tmp_path)!r})
import importlib.metadata
import fa3.compat
fa3.compat.install()
try:
    fa3.compat.install(metadata=True)
except RuntimeError as error:
    print(error)
assert importlib.metadata.version("flash-attn-3") == "3.1"
fa3.compat.install(metadata=True, replace=True)
assert importlib.metadata.version("flash-attn-3") == "3.0.0"
"""
    done = run(code)
    assert done.returncode == 0, done.stdout
    assert "flash_attn_interface is installed; uninstall it" in done.stdout


# transformers offers these implementations where PyTorch has a GPU; without one it is told so, and
# the model computes on the CPU all the same.
MODELS = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.cuda.is_available = lambda: True
torch.cuda.get_device_capability = lambda *device: (9, 0)
import fa3.compat
fa3.compat.install(metadata=True)
from transformers import GptOssConfig, LlamaConfig, LlamaForCausalLM
from transformers.models.gpt_oss import modeling_gpt_oss as gpt_oss
small = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=64, vocab_size=99, max_position_embeddings=64, pad_token_id=0)
tokens = torch.randint(3, 98, (2, 12), device=device)
mask = torch.ones_like(tokens)
mask[1, :4] = 0

def results(name, dtype, of=(LlamaForCausalLM, LlamaConfig)):
    torch.manual_seed(0)
    model = of[0]._from_config(of[1](**small), attn_implementation=name)
    model = model.eval().to(device, dtype)
    logits = model(tokens, attention_mask=mask).logits[mask.bool()]
    gradient, = torch.autograd.grad(logits.square().sum(), model.model.embed_tokens.weight)
    text = model.generate(tokens, attention_mask=mask, max_new_tokens=4, do_sample=False)
    return logits.float(), gradient.float(), text

def errors(found):
    return [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(found[:2], exact)]

dtype = torch.bfloat16 if device == "cuda" else torch.float32
exact = results("eager", torch.float32)
bounds = [max(1e-5, 2 * error) for error in errors(results("eager", dtype))]
for name in ("flash_attention_2", "flash_attention_3"):
    found = results(name, dtype)
    assert all(e <= bound for e, bound in zip(errors(found), bounds)), (name, errors(found), bounds)
    assert device == "cuda" or torch.equal(found[2], exact[2])
# A list of implementations keeps this model from getting here; others with sinks may have none.
# Without s_aux in the signature transformers would drop them and not say so.
gpt_oss.GptOssPreTrainedModel._compatible_flash_implementations = None
small |= dict(num_local_experts=4, num_experts_per_tok=2, head_dim=16, initializer_range=0.3)
of = gpt_oss.GptOssForCausalLM, GptOssConfig
exact = results("eager", torch.float32, of)
bounds = [max(1e-4, 2 * error) for error in errors(results("eager", dtype, of))]
for name in ("flash_attention_2", "flash_attention_3"):
    found = results(name, dtype, of)
    assert all(e <= bound for e, bound in zip(errors(found), bounds)), (name, errors(found), bounds)
    print("sinks")
"""


def test_transformers():
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    done = subprocess.run(
        [sys.executable, "-c", MODELS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sinks") == 2
