# SPDX-License-Identifier: BSD-3-Clause
"""fa3 run: the numbers it writes, its options, where it writes."""

import math
import os
import unittest

import tensors
from kit import BAD_INPUT, USAGE, CliTest

LENGTHS_Q, LENGTHS_KV = [3, 0, 4], [5, 2, 4]


def varlen():
    """A varlen problem and, of each sequence that has queries, the dense problem that it is."""
    parts = [
        tensors.dense(1, q, kv, heads_q=2, heads_kv=1, dim=4)
        for q, kv in zip(LENGTHS_Q, LENGTHS_KV)
    ]
    join = lambda name, heads: (
        "F32",
        [sum(p[name][1][1] for p in parts), heads, 4],
        [x for p in parts for x in p[name][2]],
    )
    cu = lambda lengths: (
        "I32",
        [len(lengths) + 1],
        [sum(lengths[:i]) for i in range(len(lengths) + 1)],
    )
    return {
        "q": join("q", 2),
        "k": join("k", 1),
        "v": join("v", 1),
        "cu_seqlens_q": cu(LENGTHS_Q),
        "cu_seqlens_kv": cu(LENGTHS_KV),
    }, [p for p, n in zip(parts, LENGTHS_Q) if n > 0]


def heads_first(tensor):
    """(b, s, h, d) → (b, h, s, d)."""
    dtype, (b, s, h, d), values = tensor
    out = []
    for n in range(b):
        for head in range(h):
            for i in range(s):
                at = ((n * s + i) * h + head) * d
                out += values[at : at + d]
    return (dtype, [b, h, s, d], out)


class Run(CliTest):
    def run_problem(self, problem, *args):
        tensors.write(self.path("in.safetensors"), problem)
        self.fa3("run", self.path("in.safetensors"), "-o", self.path("out.safetensors"), *args)
        return tensors.read(self.path("out.safetensors"))

    def test_output_is_attention(self):
        problem = tensors.dense(
            batch=2, seqlen_q=5, seqlen_kv=7, heads_q=4, heads_kv=2, dim=8, dim_v=3
        )
        o, lse = tensors.attention(problem["q"], problem["k"], problem["v"])
        for backend in ["auto", "cpu", "reference"]:
            out = self.run_problem(problem, "--backend", backend)
            self.assertEqual(sorted(out), ["lse", "o"])
            self.assertEqual(out["o"][:2], ("F32", [2, 5, 4, 3]))
            self.assertEqual(out["lse"][:2], ("F32", [2, 4, 5]))
            self.assert_near(out["o"][2], o, 1e-5)
            self.assert_near(out["lse"][2], lse, 1e-5)

    def test_causal_rows_without_keys_are_empty(self):
        problem = tensors.dense(batch=1, seqlen_q=6, seqlen_kv=4)
        o, lse = tensors.attention(problem["q"], problem["k"], problem["v"], causal=True)
        self.assertEqual(lse.count(-math.inf), 4)
        out = self.run_problem(problem, "--causal")
        self.assert_near(out["o"][2], o, 1e-5)
        self.assert_near(out["lse"][2], lse, 1e-5)
        window = self.run_problem(problem, "--window", "-1,0")
        self.assertEqual(window, out)

    def test_varlen_sequences_are_separate(self):
        problem, parts = varlen()
        out = self.run_problem(problem)
        self.assertEqual(out["o"][1], [7, 2, 4])
        self.assertEqual(out["lse"][1], [2, 7])
        o, lse = [], [[], []]
        for part in parts:
            part_o, part_lse = tensors.attention(part["q"], part["k"], part["v"])
            rows = part["q"][1][1]
            o += part_o
            for head in range(2):
                lse[head] += part_lse[head * rows : (head + 1) * rows]
        self.assert_near(out["o"][2], o, 1e-5)
        self.assert_near(out["lse"][2], lse[0] + lse[1], 1e-5)

    def test_names_can_be_chosen(self):
        problem, _ = varlen()
        plain = self.run_problem(problem)
        renamed = {f"my.{name}": tensor for name, tensor in problem.items()}
        names = []
        for name in problem:
            names += [f"--{name.replace('_', '-')}-name", f"my.{name}"]
        self.assertEqual(self.run_problem(renamed, *names), plain)

    def test_seqused_hides_the_rest(self):
        problem = tensors.dense(batch=1, seqlen_q=4, seqlen_kv=6)
        short = {name: tensors.draw(problem[name][1], 0) for name in ["k", "v"]}
        for name in ["k", "v"]:
            short[name] = ("F32", [1, 3, 1, 4], problem[name][2][: 3 * 4])
        o, _ = tensors.attention(problem["q"], short["k"], short["v"])
        problem["seqused_kv"] = ("I32", [1], [3])
        self.assert_near(self.run_problem(problem)["o"][2], o, 1e-5)
        ignored = self.run_problem(problem, "--seqused-kv-name", "")
        o, _ = tensors.attention(problem["q"], problem["k"], problem["v"])
        self.assert_near(ignored["o"][2], o, 1e-5)

    def test_alibi_slopes_and_sequence_ids(self):
        plain = tensors.dense(batch=2, seqlen_q=4, seqlen_kv=6, heads_q=2)
        slopes, ids = [0.5, -0.25], ([1, 1, 2, 9] * 2, [2, 1, 1, 2, 1, 2] * 2)
        problem = {
            **plain,
            "alibi_slopes": ("F32", [2], slopes),
            "sequence_ids_q": ("I64", [2, 4], ids[0]),
            "sequence_ids_kv": ("I32", [2, 6], ids[1]),
        }
        q, k, v = plain["q"], plain["k"], plain["v"]
        for flag in [(), ("--causal",)]:
            out = self.run_problem(problem, *flag)
            o, lse = tensors.attention(q, k, v, bool(flag), slopes=slopes, ids=ids)
            self.assert_near(out["o"][2], o, 1e-5)
            finite = [i for i, x in enumerate(lse) if x > -math.inf]
            self.assert_near([out["lse"][2][i] for i in finite], [lse[i] for i in finite], 1e-5)
            self.assertEqual(sum(x == -math.inf for x in out["lse"][2]), 16 - len(finite))
        without_ids = ["--sequence-ids-q-name", "", "--sequence-ids-kv-name", ""]
        o, _ = tensors.attention(q, k, v, slopes=slopes)
        self.assert_near(self.run_problem(problem, *without_ids)["o"][2], o, 1e-5)
        o, _ = tensors.attention(q, k, v)
        out = self.run_problem(problem, *without_ids, "--alibi-slopes-name", "")
        self.assert_near(out["o"][2], o, 1e-5)
        self.fa3("check", self.path("in.safetensors"), "--backward", "--causal")

    def test_attn_mask(self):
        plain = tensors.dense(batch=2, seqlen_q=5, seqlen_kv=5, heads_q=2)
        causal = self.run_problem(plain, "--causal")
        shown = [[j <= i for j in range(5)] for i in range(5)]
        flat = [x for row in shown for x in row]
        added = [0.0 if x else -math.inf for x in flat]
        for mask in [
            ("BOOL", [5, 5], flat),
            ("F16", [1, 1, 5, 5], added),
            ("F32", [5, 5], added),
            ("F64", [5, 5], added),
        ]:
            out = self.run_problem({**plain, "attn_mask": mask})
            self.assert_near(out["o"][2], causal["o"][2], 1e-6)
            self.assert_near(out["lse"][2], causal["lse"][2], 1e-6)
            self.fa3("check", self.path("in.safetensors"), "--backward")
        without = self.run_problem({**plain, "attn_mask": mask}, "--attn-mask-name", "")
        self.assert_near(without["o"][2], self.run_problem(plain)["o"][2], 0)
        path = self.path("in.safetensors")
        tensors.write(path, {**plain, "attn_mask": ("I64", [5, 5], [int(x) for x in flat])})
        says = ["attn_mask: element type I64", "BOOL"]
        self.assert_fails(BAD_INPUT, "run", path, "-o", self.path("out"), says=says)

    def test_top_left(self):
        longer = tensors.dense(batch=1, seqlen_q=3, seqlen_kv=7, heads_q=2, heads_kv=2)
        size = 3 * 2 * longer["k"][1][3]
        cut = {
            name: (t, [1, 3, 2, shape[3]], values[: 3 * 2 * shape[3]])
            for name, (t, shape, values) in longer.items()
            if name in ("q", "k", "v")
        }
        self.assertEqual(len(cut["k"][2]), size)
        want = self.run_problem(cut, "--causal")
        out = self.run_problem(longer, "--causal", "--top-left")
        self.assert_near(out["o"][2], want["o"][2], 1e-6)

    def test_layout_bhsd_reads_and_writes_heads_first(self):
        problem = tensors.dense(batch=2, seqlen_q=3, seqlen_kv=5, heads_q=4, heads_kv=2)
        plain = self.run_problem(problem, "--backward")
        swapped = self.run_problem(
            {name: heads_first(tensor) for name, tensor in problem.items()},
            "--backward",
            "--deterministic",
            "--layout",
            "bhsd",
        )
        self.assertEqual(swapped["lse"], plain["lse"])
        for name in ["o", "dq", "dk", "dv"]:
            self.assertEqual(swapped[name], heads_first(plain[name]), name)

    def test_dtype_casts_on_load(self):
        double = tensors.dense(dtype="F64")
        o, _ = tensors.attention(double["q"], double["k"], double["v"])
        for dtype, name, tolerance in [
            ("f32", "F32", 1e-5),
            ("f16", "F16", 4e-3),
            ("bf16", "BF16", 3e-2),
        ]:
            out = self.run_problem(double, "--dtype", dtype)
            self.assertEqual(out["o"][0], name)
            self.assertEqual(out["lse"][0], "F32")
            self.assert_near(out["o"][2], o, tolerance)
            out = self.run_problem(
                double, "--dtype", dtype, "--out-dtype", "f32", "--backward", "--grad-dtype", "f32"
            )
            self.assertEqual({t[0] for t in out.values()}, {"F32"})

    def test_cast_rounds_to_nearest_even(self):
        # With one key O is that key's value. 1 + 2^-8 is halfway between two BF16 numbers, and
        # so is 1 + 3·2^-8.
        values = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8]
        problem = {
            "q": ("F64", [1, 1, 1, 4], [0.0] * 4),
            "k": ("F64", [1, 1, 1, 4], [0.0] * 4),
            "v": ("F64", [1, 1, 1, 4], values),
        }
        out = self.run_problem(problem, "--dtype", "bf16")
        self.assertEqual(out["o"][2], [1.0, 1 + 2**-6, 1 + 2**-7, -1.0])

    def test_backward_is_the_derivative(self):
        problem = tensors.dense(batch=1, seqlen_q=2, seqlen_kv=3, heads_q=2, heads_kv=1, dim=3)
        problem["dlse"] = tensors.draw((1, 2, 2), 7)
        problem["attn_mask"] = tensors.draw((2, 3), 8)
        out = self.run_problem(problem, "--backward", "--dattn-mask")
        self.assertEqual(sorted(out), ["dattn_mask", "dk", "dq", "dv", "lse", "o"])
        without = self.run_problem(problem, "--backward")
        self.assertEqual(without, {name: t for name, t in out.items() if name != "dattn_mask"})

        def loss(changed):
            inputs = [changed[name] for name in ["q", "k", "v"]]
            o, lse = tensors.attention(*inputs, mask=changed["attn_mask"])
            return sum(x * y for x, y in zip(o, problem["do"][2])) + sum(
                x * y for x, y in zip(lse, problem["dlse"][2])
            )

        for name in ["q", "k", "v", "attn_mask"]:
            dtype, shape, values = problem[name]
            self.assertEqual(out["d" + name][:2], (dtype, shape))
            slopes = []
            for i in range(len(values)):
                sides = []
                for step in [1e-5, -1e-5]:
                    moved = values[:i] + [values[i] + step] + values[i + 1 :]
                    sides.append(loss({**problem, name: (dtype, shape, moved)}))
                slopes.append((sides[0] - sides[1]) / 2e-5)
            self.assert_near(out["d" + name][2], slopes, 1e-4)

    def test_gradient_of_the_mask(self):
        # One for all heads is the sum of those of each; with --layout, --grad-dtype, and refused.
        plain = tensors.dense(batch=2, seqlen_q=2, seqlen_kv=3, heads_q=2, heads_kv=2, dtype="BF16")
        shared = tensors.draw((3,), 8, "BF16")  # of each key
        of_each = ("BF16", [2, 2, 2, 3], shared[2] * 8)
        grad = ["--backward", "--dattn-mask"]
        each = self.run_problem({**plain, "attn_mask": of_each}, *grad, "--grad-dtype", "f32")
        each = each["dattn_mask"]
        self.assertEqual(each[:2], ("F32", [2, 2, 2, 3]))
        total = self.run_problem({**plain, "m": shared}, *grad, "--attn-mask-name", "m")
        self.assertEqual(total["dattn_mask"][:2], ("BF16", [3]))
        sums = [sum(each[2][key::3]) for key in range(3)]
        self.assert_near(total["dattn_mask"][2], sums, 0.01 * max(map(abs, sums)))
        swapped = {name: heads_first(tensor) for name, tensor in plain.items()}
        swapped = self.run_problem({**swapped, "attn_mask": shared}, *grad, "--layout", "bhsd")
        self.assertEqual(swapped["dattn_mask"], total["dattn_mask"])
        path = self.path("in.safetensors")
        checked = self.fa3_json("check", path, *grad, "--layout", "bhsd")
        self.assertEqual((checked["ok"], "dattn_mask" in checked["outputs"]), (True, True))
        into = ["run", path, "-o", self.path("new"), "--dattn-mask"]
        for command in [into, ["check", path, "--dattn-mask"]]:
            self.assert_fails(USAGE, *command, says=["--dattn-mask", "add --backward"])
        tensors.write(path, {**plain, "attn_mask": shared})
        says = ["--dattn-mask", "--attn-mask-name"]
        self.assert_fails(BAD_INPUT, *into, "--backward", "--attn-mask-name", "", says=says)
        tensors.write(path, {**plain, "attn_mask": ("BOOL", [3], [True] * 3)})
        says = ["--dattn-mask", "attn_mask", "BOOL", "F32"]
        self.assert_fails(BAD_INPUT, *into, "--backward", says=says)

    def test_options_without_effect_are_refused(self):
        for option, remedy in [
            (["--grad-dtype", "f32"], "--backward"),
            (["--do-name", "x"], "--backward"),
            (["--dlse-name", "x"], "--backward"),
            (["--head", "1"], "--map"),
            (["--batch", "1"], "--map"),
        ]:
            command = ["run", self.path("in"), "-o", self.path("out"), *option]
            self.assert_fails(USAGE, *command, says=[option[0], f"add {remedy}"])

    def test_scalars_are_passed_on(self):
        problem = tensors.dense()
        o, lse = tensors.attention(problem["q"], problem["k"], problem["v"], scale=0.25)
        out = self.run_problem(problem, "--softmax-scale", "0.25")
        self.assert_near(out["o"][2], o, 1e-5)
        self.assert_near(out["lse"][2], lse, 1e-5)
        capped = self.run_problem(
            problem, "--softcap", "1e-3"
        )  # all scores ≈ 0: O is the mean of V
        dim, keys = 4, 7
        mean = [sum(problem["v"][2][c::dim]) / keys for c in range(dim)]
        self.assert_near(capped["o"][2], mean * (len(capped["o"][2]) // dim), 2e-3)

    def test_mmap_and_threads_change_nothing(self):
        problem = tensors.dense(batch=2, seqlen_q=40, seqlen_kv=50, heads_q=4, heads_kv=2, dim=16)
        plain = self.run_problem(problem)
        self.assertEqual(self.run_problem(problem, "--mmap"), plain)
        self.assertEqual(self.run_problem(problem, "--threads", 1), plain)
        self.assertEqual(self.run_problem(problem, "--threads", 3), plain)

    def test_output_may_be_the_input(self):
        problem = tensors.dense()
        path = self.path("both.safetensors")
        for mmap in [[], ["--mmap"]]:
            tensors.write(path, problem)
            self.fa3("run", path, "-o", path, *mmap)
            out = tensors.read(path)
            self.assertEqual(sorted(out), ["lse", "o"])
            o, _ = tensors.attention(problem["q"], problem["k"], problem["v"])
            self.assert_near(out["o"][2], o, 1e-5)
            self.assertEqual(self.names(), ["both.safetensors"])

    def test_zero_sizes_succeed(self):
        for sizes in [{"batch": 0}, {"seqlen_q": 0}, {"heads_q": 0, "heads_kv": 0}]:
            out = self.run_problem(tensors.dense(**sizes), "--backward")
            self.assertEqual(out["o"][2], [], sizes)
        out = self.run_problem(tensors.dense(seqlen_kv=0), "--backward")
        self.assertEqual(set(out["o"][2]), {0.0})
        self.assertEqual(set(out["lse"][2]), {-math.inf})
        self.assertEqual(set(out["dq"][2]), {0.0})
        self.assertEqual(out["dk"][2], [])

    def test_report(self):
        tensors.write(self.path("in.safetensors"), tensors.dense(batch=2, heads_q=4, heads_kv=2))
        args = [
            "run",
            self.path("in.safetensors"),
            "-o",
            self.path("out.safetensors"),
            "--causal",
            "--backward",
        ]
        text = self.fa3(*args)
        for part in [
            "(2, 5, 4, 4) f32",
            "causal",
            "cpu",
            "GFLOP/s",
            "one run",
            "out.safetensors",
            "lse (2, 4, 5)",
        ]:
            self.assertIn(part, text)
        self.assertEqual(self.fa3(*args, "--quiet"), "")
        report = self.fa3_json(*args)
        self.assertEqual(report["backend"], "cpu")
        self.assertEqual(report["inputs"]["q"], {"shape": [2, 5, 4, 4], "dtype": "f32"})
        self.assertEqual(sorted(report["outputs"]), ["dk", "dq", "dv", "lse", "o"])
        # Causal, 5 queries on 7 keys: 3 + 4 + 5 + 6 + 7 visible pairs.
        self.assertEqual(report["forward"]["flops"], 2 * 25 * 2 * 4 * (4 + 4))
        self.assertEqual(report["backward"]["flops"], 2.5 * report["forward"]["flops"])
        seconds = report["forward"]["seconds"]
        self.assertGreater(seconds, 0)
        self.assertAlmostEqual(
            report["forward"]["gflops"], report["forward"]["flops"] / seconds / 1e9
        )

    def test_existing_output_is_replaced_only_on_success(self):
        out = self.path("out.safetensors")
        tensors.write(out, {"old": ("F32", [1], [1.0])})
        tensors.write(self.path("bad.safetensors"), tensors.dense(heads_q=3, heads_kv=2))
        self.assert_fails(BAD_INPUT, "run", self.path("bad.safetensors"), "-o", out)
        self.assertEqual(list(tensors.read(out)), ["old"])
        tensors.write(self.path("good.safetensors"), tensors.dense())
        self.fa3("run", self.path("good.safetensors"), "-o", out)
        self.assertEqual(sorted(tensors.read(out)), ["lse", "o"])
        self.assertEqual(os.stat(out).st_mode & 0o111, 0)


if __name__ == "__main__":
    unittest.main()
