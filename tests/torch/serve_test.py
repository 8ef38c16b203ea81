# SPDX-License-Identifier: BSD-3-Clause
"""serve_test.py — examples/python/serve.py on a CPU: its server's answers are those of forwards of
whole sequences, whatever shares a step with them."""

import json
import pathlib
import runpy
import sys
import types

import pytest
import torch
import torch.nn.functional as F

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import serve

    return serve


def answer(model, angles, request):
    """Greedy, without a cache: every token from a forward of all before it."""
    shape, tokens = model.shape, list(request.prompt)

    def rotated(x):
        a, b = x.chunk(2, -1)
        cos, sin = (t[: len(x), None] for t in angles)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def attend(layer, q, k, v, batch):
        q, k, v = (x.transpose(0, 1)[None] for x in (rotated(q), rotated(k), v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out[0].transpose(0, 1)

    for _ in range(request.wanted):
        last = torch.tensor([len(tokens) - 1])
        batch = types.SimpleNamespace(ids=torch.tensor(tokens), last=last)
        tokens.append(int(model(batch, attend)))
    assert len(tokens) <= shape.longest
    return tokens[len(request.prompt) :]


@pytest.mark.parametrize("name", ["fa3", "sdpa"])
@torch.inference_mode()
def test_answers(serve, name):
    options = types.SimpleNamespace(
        requests=9, prompt=20, answer=6, budget=32, concurrent=4, page=16, rate=1e6, layers=2
    )
    shape = serve.shape_of(options, "cpu")
    model = serve.Model(shape)
    server = serve.Server(model, serve.CONTENDERS[name](shape), options)
    requests = serve.requests(options, shape)
    server.run(requests)
    assert server.counts["prompts"] > 3  # in chunks, some beside steps
    angles = server.attend.cos, server.attend.sin
    for request in requests:
        assert request.made == answer(model, angles, request)
        assert request.times == sorted(request.times)


def test_program(serve, monkeypatch, tmp_path, capsys):
    result = tmp_path / "result.jsonl"
    words = ["serve", "--with", "sdpa", "--device", "cpu", "--rate", "1000", "--commit", "x"]
    monkeypatch.setattr(sys, "argv", [*words, "--json", str(result)])
    runpy.run_path(str(FOLDER / "serve.py"), run_name="__main__")
    meta, *cells = map(json.loads, result.read_text().splitlines())
    assert meta["suite"] == "serve"
    assert [cell["cell"] for cell in cells] == ["fa3", "sdpa"]
    assert all(cell["alike_before"] == 1 for cell in cells)
    assert "8 requests" in capsys.readouterr().out
