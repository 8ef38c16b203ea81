#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""serve.py — a server's day in seconds: requests of log-normal lengths arrive in time at a
Llama-like model, prompts are read in chunks beside steps of generation, keys lie in pages.

    examples/python/serve.py                     # on a Hopper GPU: 64 requests, 8 layers of 8B's
    examples/python/serve.py --with sdpa --with original

A step takes one token of each request that generates, and of waiting prompts what is left of
--budget tokens; a layer's attention is one call. Steps are CUDA graphs, one for each number of
tokens that is a power of two. --with: the same loop on PyTorch's SDPA, whose prompts cannot be
captured, and on the original FlashAttention-3, if its wheel (tokenspeed-fa3) can be imported.
Tokens/s: prompts and generated ones, of the time from the first arrival to the last token. TTFT:
from a request's arrival to its first token. The tokens of contenders are compared.
"""

import argparse
import dataclasses
import random
import statistics
import time

import measuring
import torch
from serving_model import Batch, Fa3, Model, Original, Sdpa, Shape

CONTENDERS = {"fa3": Fa3, "original": Original, "sdpa": Sdpa}


@dataclasses.dataclass
class Request:
    arrives: float  # seconds from the first
    prompt: list[int]
    wanted: int  # tokens to generate
    made: list[int] = dataclasses.field(default_factory=list)
    times: list[float] = dataclasses.field(default_factory=list)  # of each of these
    keys: int = 0  # in the cache
    pages: list[int] = dataclasses.field(default_factory=list)

    @property
    def length(self):
        return len(self.prompt) + self.wanted


def requests(options, shape, seed=0):
    """Log-normal lengths, as chats have them, and exponential times between arrivals."""
    rng, made, now = random.Random(seed), [], 0.0
    for _ in range(options.requests):
        prompt = int(min(max(rng.lognormvariate(0, 1) * options.prompt, 1), 16 * options.prompt))
        wanted = int(min(max(rng.lognormvariate(0, 0.7) * options.answer, 1), 8 * options.answer))
        wanted = min(wanted, shape.longest - prompt)
        made.append(Request(now, [rng.randrange(shape.vocab) for _ in range(prompt)], wanted))
        now += rng.expovariate(options.rate)
    return made


class Server:
    """The loop: which requests take part in a step, their pages, and graphs of the steps."""

    def __init__(self, model, attend, options):
        self.model, self.attend, self.options = model, attend, options
        self.steps = {}  # by tokens, sequences and kind: batch, graph, next tokens
        self.counts = {"prompts": 0, "tokens": 0}  # steps

    def step(self, sequences):
        """Next tokens of `sequences`: their new tokens, keys and pages."""
        tokens = sum(len(new) for new, _, _ in sequences)
        one_each = tokens == len(sequences)
        self.counts["tokens" if one_each else "prompts"] += 1
        if self.model.shape.device == "cpu" or not (one_each or self.attend.captures_prompts):
            batch = Batch(self.model.shape, tokens, len(sequences), one_each, self.attend.nobody)
            batch.fill(sequences)
            return self.model(batch, self.attend).tolist()
        size = 1 << (tokens - 1).bit_length()
        sequence_count = size if one_each else self.options.concurrent
        key = (max(size, 1 if one_each else 16), sequence_count, one_each)
        if key not in self.steps:
            self.steps[key] = self._captured(*key)
        batch, graph, out = self.steps[key]
        batch.fill(sequences)
        graph.replay()
        return out.tolist()

    def _captured(self, tokens, sequences, one_each):
        batch = Batch(self.model.shape, tokens, sequences, one_each, self.attend.nobody)
        batch.fill([])
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.model(batch, self.attend)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self.model(batch, self.attend)
        return batch, graph, out

    def warm_up(self):
        """Makes all graphs, which compiles kernels: steps of page 0, of nobody yet."""
        size = 1
        while size <= self.options.budget and self.model.shape.device != "cpu":
            if size <= self.options.concurrent:
                self.step([([0], 0, [0])] + [([0], 0, [])] * (size - 1))
            if size >= 16:
                pages = list(range(-(-size // self.model.shape.page)))
                self.step([([0] * size, 0, pages)])
            size *= 2
        self.counts = dict.fromkeys(self.counts, 0)

    def run(self, all_requests):
        """Serves the requests as they arrive; returns the seconds from the first to the end."""
        options, shape = self.options, self.model.shape
        free = list(range(shape.pages - 1))  # the last is spare
        waiting, active, begin = list(all_requests), [], time.perf_counter()
        while waiting or active:
            now = time.perf_counter() - begin
            while waiting and waiting[0].arrives <= now and len(active) < options.concurrent:
                need = -(-waiting[0].length // shape.page)
                if need > len(free):
                    break
                request = waiting.pop(0)
                request.pages = [free.pop() for _ in range(need)]
                active.append(request)
            if not active:
                time.sleep(max(0, waiting[0].arrives - now))
                continue
            chosen = self._chosen(active)
            sequences = [(new, request.keys, request.pages) for request, new in chosen]
            following = self.step(sequences)
            now = time.perf_counter() - begin
            for (request, new), token in zip(chosen, following, strict=False):
                request.keys += len(new)
                if request.keys < len(request.prompt):
                    continue
                request.made.append(token)
                request.times.append(now)
                if len(request.made) == request.wanted:
                    free += request.pages
                    active.remove(request)
        return time.perf_counter() - begin

    def _chosen(self, active):
        """Requests of the next step with their new tokens: those that generate, then prompts."""
        chosen = [(r, r.made[-1:]) for r in active if r.made]
        left = self.options.budget - len(chosen)
        for request in active:
            if not request.made and left > 0:
                chunk = request.prompt[request.keys : request.keys + left]
                chosen.append((request, chunk))
                left -= len(chunk)
        return chosen


def measured(server, all_requests):
    """Of one run: what a table shows."""
    taken = server.run(all_requests)
    first = [r.times[0] - r.arrives for r in all_requests]
    between = [b - a for r in all_requests for a, b in zip(r.times, r.times[1:], strict=False)]
    tokens = sum(r.length for r in all_requests)
    quantile = lambda values, at: sorted(values)[int(at * (len(values) - 1))] * 1e3  # noqa: E731
    return {
        "seconds": taken, "tokens_per_s": tokens / taken,
        "generated_per_s": sum(r.wanted for r in all_requests) / taken,
        "ttft_ms": statistics.mean(first) * 1e3, "ttft_p99_ms": quantile(first, 0.99),
        "token_ms": quantile(between, 0.5), "token_p99_ms": quantile(between, 0.99),
        "steps_with_prompts": server.counts["prompts"], "steps": sum(server.counts.values()),
    }  # fmt: skip


def agreement(ours, theirs):
    """Of the requests, the share whose first tokens are the same, and of all tokens up to where
    two answers part: with random weights one other token is another text."""
    same = [a.made[0] == b.made[0] for a, b in zip(ours, theirs, strict=True)]
    before = sum(
        next((i for i, (a, b) in enumerate(zip(x.made, y.made, strict=True)) if a != b), x.wanted)
        for x, y in zip(ours, theirs, strict=True)
    )
    return statistics.mean(same), before / sum(x.wanted for x in ours)


def shape_of(options, device):
    longest = 16 * options.prompt + 8 * options.answer
    pages = 1 + options.concurrent * -(-longest // options.page) // 2
    common = {"page": options.page, "pages": pages, "longest": longest, "device": device}
    if device == "cpu":
        return Shape(2, 64, 4, 2, 16, 128, 100, dtype=torch.float32, **common)
    return Shape(options.layers, 4096, 32, 8, 128, 14336, 32000, dtype=torch.bfloat16, **common)


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    measuring.add_options(parser)
    add = parser.add_argument
    add("--with", action="append", default=[], choices=["original", "sdpa"], dest="others")
    add("--requests", type=int, help="[64; CPU: 8]")
    add("--rate", type=float, default=40, help="requests a second that arrive [40]")
    add("--prompt", type=int, help="median tokens of a prompt [1024; CPU: 12]")
    add("--answer", type=int, help="median tokens of an answer [128; CPU: 6]")
    add("--budget", type=int, help="tokens of a step [1024; CPU: 32]")
    add("--concurrent", type=int, help="requests at a time [64; CPU: 4]")
    add("--page", type=int, default=16, help="rows of a page [16]")
    add("--layers", type=int, default=8, help="on a GPU [8]")
    add("--repeat", type=int, default=1, help="runs of each, in turns; medians [1]")
    options = parser.parse_args()
    device = measuring.device_of(options)
    defaults = (8, 12, 6, 32, 4) if device == "cpu" else (64, 1024, 128, 1024, 64)
    for name, value in zip(
        ("requests", "prompt", "answer", "budget", "concurrent"), defaults, strict=True
    ):
        setattr(options, name, getattr(options, name) or value)

    shape = shape_of(options, device)
    model, servers = Model(shape), {}
    for name in ("fa3", *options.others):
        servers[name] = Server(model, CONTENDERS[name](shape), options)
        servers[name].warm_up()
    runs, served = {name: [] for name in servers}, {}
    for _ in range(options.repeat):
        for name, server in servers.items():
            served[name] = requests(options, shape)
            server.counts = dict.fromkeys(server.counts, 0)
            runs[name].append(measured(server, served[name]))
    cells, rows = [], []
    for name, each in runs.items():
        cell = {key: statistics.median(run[key] for run in each) for key in each[0]}
        first, before = agreement(served["fa3"], served[name])
        cell = {key: round(value, 4) for key, value in cell.items()}
        cells.append({"cell": name, **cell, "first_alike": first, "alike_before": before})
        rows.append([
            name, f"{cell['tokens_per_s']:,.0f}", f"{cell['generated_per_s']:,.0f}",
            f"{cell['ttft_ms']:.1f}", f"{cell['ttft_p99_ms']:.1f}", f"{cell['token_ms']:.2f}",
            f"{cell['token_p99_ms']:.2f}", f"{cell['steps']:.0f}", f"{first:.2f}",
        ])  # fmt: skip
    tokens = sum(r.length for r in served["fa3"])
    print(f"{options.requests} requests, {tokens:,} tokens, {shape.layers} layers, {device}\n")
    head = ["", "tokens/s", "generated", "TTFT, ms", "p99", "a token, ms", "p99", "steps",
            "first tokens alike"]  # fmt: skip
    measuring.print_table(head, rows)
    asked = {name: x for name, x in vars(options).items() if name not in ("json", "device")}
    asked |= {"warm_ups": 1, "runs": options.repeat}  # each step once, when it is captured
    measuring.write(options, "serve", device, cells, **asked)


if __name__ == "__main__":
    main()
