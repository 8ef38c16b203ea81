# SPDX-License-Identifier: BSD-3-Clause
"""fa3 run on input that is wrong: one clear line, the right exit code, nothing written."""

import json
import os
import struct
import unittest

import tensors
from kit import BAD_INPUT, FAILED, UNSUPPORTED, CliTest


def raw(header, data=b"", size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def entry(begin, end, dtype="F32", shape=None):
    return {
        "dtype": dtype,
        "shape": [(end - begin) // 4] if shape is None else shape,
        "data_offsets": [begin, end],
    }


FILES = {
    "empty": b"",
    "short": b"\x01\x02",
    "no header": struct.pack("<Q", 100),
    "truncated header": raw(b'{"q": {"dtype"', size=1000),
    "oversized header": raw(b"{}", size=2**62),
    "not JSON": raw(b"not json at all "),
    "not an object": raw([1, 2]),
    "wrong dtype": raw({"q": entry(0, 4, dtype="F33")}, bytes(4)),
    "beyond the end": raw({"q": entry(0, 8)}, bytes(4)),
    "backwards": raw({"q": entry(4, 0)}, bytes(4)),
    "negative": raw({"q": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, bytes(4)),
    "overflow": raw(
        {"q": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}, bytes(4)
    ),
    "wrong size": raw({"q": entry(0, 4, shape=[3])}, bytes(4)),
    "overlap": raw({"q": entry(0, 8), "k": entry(4, 12)}, bytes(12)),
    "hole": raw({"q": entry(0, 4), "k": entry(8, 12)}, bytes(12)),
    "duplicate": raw(
        b'{"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        b'"q":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
        bytes(8),
    ),
    "truncated data": raw({"q": entry(0, 400)}, bytes(40)),
}


class BadFiles(CliTest):
    def assert_run_fails(self, path, *args, code=BAD_INPUT, says=()):
        return self.assert_fails(
            code, "run", path, "-o", self.path("out.safetensors"), *args, says=says
        )

    def test_malformed_files(self):
        path = self.path("bad.safetensors")
        for name, content in FILES.items():
            with open(path, "wb") as file:
                file.write(content)
            with self.subTest(name):
                for command in [["run", path, "-o", self.path("out.safetensors")], ["check", path]]:
                    self.assert_fails(BAD_INPUT, *command, says="bad.safetensors")
                self.assert_run_fails(path, "--mmap", "--json", says="bad.safetensors")

    def test_files_that_are_none(self):
        self.assert_run_fails(self.path("none.safetensors"), says="none.safetensors")
        self.assert_run_fails(str(self.folder), says=str(self.folder))
        self.assert_run_fails("/dev/zero", says="/dev/zero")
        os.mkfifo(self.path("pipe"))
        self.assert_run_fails(self.path("pipe"), says="pipe")

    def test_the_output_is_not_touched_by_a_bad_input(self):
        path = self.path("both.safetensors")
        with open(path, "wb") as file:
            file.write(FILES["overlap"])
        self.assert_fails(BAD_INPUT, "run", path, "-o", path)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), FILES["overlap"])


class BadTensors(CliTest):
    def assert_run_fails(self, problem, *args, code=BAD_INPUT, says=()):
        path = self.path("in.safetensors")
        tensors.write(path, problem)
        return self.assert_fails(
            code, "run", path, "-o", self.path("out.safetensors"), *args, says=says
        )

    def changed(self, **tensor):
        return {
            **tensors.dense(batch=2, seqlen_q=4, seqlen_kv=6, heads_q=4, heads_kv=2, dim=8),
            **tensor,
        }

    def test_missing_tensors(self):
        for name in ["q", "k", "v"]:
            problem = self.changed()
            del problem[name]
            self.assert_run_fails(problem, says=["no tensor named", f'"{name}"'])
        problem = self.changed()
        del problem["do"]
        self.assert_run_fails(problem, "--backward", says="do")
        self.assert_run_fails(self.changed(), "--q-name", "query", says="query")
        self.assert_run_fails(self.changed(), "--seqused-q-name", "used", says="used")

    def test_types(self):
        mixed = self.changed(q=tensors.draw((2, 4, 4, 8), 1, "F16"))
        self.assert_run_fails(mixed, code=UNSUPPORTED, says=["f16", "f32"])
        double = tensors.draw((2, 4, 4, 8), 1, "F64")
        self.assert_run_fails(self.changed(q=double), says=["F64", "--dtype"])
        integer = ("I64", [2, 4, 4, 8], [0] * 256)
        self.assert_run_fails(self.changed(q=integer), says="I64")
        self.assert_run_fails(self.changed(q=("I32", *integer[1:])), says="i32")
        self.assert_run_fails(
            self.changed(do=tensors.draw((2, 4, 4, 8), 1, "F16")), "--backward", says="dout"
        )
        for dtype in ["F32", "F64"]:
            used = (dtype, [2], [1.0, 2.0])
            says = [f"seqused_kv: element type {dtype}, need I32 or I64"]
            self.assert_run_fails(self.changed(seqused_kv=used), says=says)
            self.assert_run_fails(self.changed(seqused_kv=used), "--dtype", "f32", says=says)

    def test_shapes_that_disagree(self):
        for name, shape in [
            ("q", (2, 4, 8)),
            ("q", (4, 8)),
            ("q", (1, 2, 4, 4, 8)),
            ("q", (3, 4, 4, 8)),
            ("q", (2, 4, 4, 7)),
            ("k", (2, 5, 2, 8)),
            ("k", (2, 6, 1, 8)),
            ("v", (2, 6, 3, 8)),
            ("v", (1, 6, 2, 8)),
            ("v", ()),
        ]:
            self.assert_run_fails(self.changed(**{name: tensors.draw(shape, 1)}))
        self.assert_run_fails(
            self.changed(do=tensors.draw((2, 4, 4, 7), 1)), "--backward", says="dout"
        )
        self.assert_run_fails(
            self.changed(dlse=tensors.draw((2, 4, 5), 1)), "--backward", says="dlse"
        )
        self.assert_run_fails(self.changed(seqused_q=("I32", [3], [1, 1, 1])), says="seqused_q")
        self.assert_run_fails(
            self.changed(alibi_slopes=("F32", [3], [1.0] * 3)), says=["alibi_slopes", "heads_q=4"]
        )
        self.assert_run_fails(
            self.changed(attn_mask=("BOOL", [3, 1], [True] * 3)),
            says=["attn_mask.shape[2]=3", "seqlen_q"],
        )
        for name, shape in [("sinks", "(heads_q)"), ("alibi_slopes", "(heads_q)")]:
            scalar = self.changed(**{name: ("F32", [], [3.0])})
            says = [f"{name}: a scalar, need {shape}", f'--{name.replace("_", "-")}-name ""']
            for options in ([], ["--backward"]):
                self.assert_run_fails(scalar, *options, says=says)
        ids = ("I32", [2, 5], [1] * 10)
        self.assert_run_fails(
            self.changed(sequence_ids_q=ids), says=["sequence_ids_kv is absent", "both or neither"]
        )

    def test_heads_and_dims(self):
        self.assert_run_fails(tensors.dense(heads_q=3, heads_kv=2), says=["heads", "3", "2"])
        self.assert_run_fails(tensors.dense(dim=0, dim_v=4), says="head_dim")
        self.assert_run_fails(
            tensors.dense(dim=513, dim_v=4), code=self.code_of_513(), says=["513", "512"]
        )
        self.assert_run_fails(
            tensors.dense(dim=4, dim_v=513), code=self.code_of_513(), says=["513", "512"]
        )

    def code_of_513(self):
        """Beyond the documented range: the library decides how it declines; the command follows."""
        return self.run_fa3("explain", "--head-dim", 513).returncode

    def test_code_of_513_is_a_refusal(self):
        self.assertIn(self.code_of_513(), [BAD_INPUT, UNSUPPORTED])

    def test_scalars_and_masks(self):
        for option, value, word in [
            ("--softcap", "-1", "softcap"),
            ("--softcap", "inf", "softcap"),
            ("--softmax-scale", "nan", "softmax_scale"),
            ("--softmax-scale", "-inf", "softmax_scale"),
            ("--window", "-2,3", "-2"),
        ]:
            self.assert_run_fails(self.changed(), f"{option}={value}", says=word)

    def varlen(self, cu_q=(0, 3, 7), cu_kv=(0, 4, 8), **more):
        problem = {
            "q": tensors.draw((7, 2, 4), 1),
            "k": tensors.draw((8, 1, 4), 2),
            "v": tensors.draw((8, 1, 4), 3),
            "cu_seqlens_q": ("I32", [len(cu_q)], list(cu_q)),
            "cu_seqlens_kv": ("I32", [len(cu_kv)], list(cu_kv)),
            **more,
        }
        return {name: tensor for name, tensor in problem.items() if tensor is not None}

    def test_varlen_lengths(self):
        self.assert_run_fails(self.varlen(cu_q=(0, 5, 3)), says="cu_seqlens_q")
        self.assert_run_fails(self.varlen(cu_q=(1, 3, 7)), says="cu_seqlens_q")
        self.assert_run_fails(self.varlen(cu_kv=(0, 4, 9)), says="cu_seqlens_kv")
        self.assert_run_fails(self.varlen(cu_kv=(0, 4)), says="cu_seqlens")
        self.assert_run_fails(self.varlen(cu_q=()), says="cu_seqlens_q")
        self.assert_run_fails(self.varlen(cu_seqlens_q=None), says="cu_seqlens_q")
        self.assert_run_fails(self.varlen(seqused_kv=("I32", [2], [4, 5])), says="seqused_kv")
        self.assert_run_fails(self.varlen(seqused_q=("I32", [2], [-1, 2])), says="seqused_q")
        self.assert_run_fails(self.varlen(), "--max-seqlen-q", 3, says="max_seqlen_q")
        dense = self.changed(cu_seqlens_q=("I32", [3], [0, 2, 4]))
        self.assert_run_fails(dense, says="cu_seqlens_q")

    def test_backends(self):
        for backend in ["cuda", "sim"]:
            self.assert_run_fails(
                self.changed(), "--backend", backend, code=UNSUPPORTED, says=backend
            )


class BadOutputs(CliTest):
    def setUp(self):
        super().setUp()
        tensors.write(self.path("in.safetensors"), tensors.dense())

    def assert_run_fails(self, output, *args, says=()):
        return self.assert_fails(
            FAILED, "run", self.path("in.safetensors"), "-o", output, *args, says=says
        )

    def test_places_that_cannot_be_written(self):
        self.assert_run_fails(self.path("no/out.safetensors"), says="no/out.safetensors")
        self.assert_run_fails(str(self.folder), says=str(self.folder))
        self.assert_run_fails("/dev/full", says="/dev/full")
        self.assert_run_fails("/proc/out.safetensors", says="/proc/out.safetensors")

    def test_picture_that_cannot_be_written_keeps_the_output_away(self):
        self.assert_run_fails(
            self.path("out.safetensors"), "--map", self.path("no/map.png"), says="--map"
        )
        self.assert_run_fails(self.path("out.safetensors"), "--map", str(self.folder), says="--map")

    def test_full_disk(self):
        import resource

        problem = tensors.dense(1, 64, 64, 4, 4, 32)
        tensors.write(self.path("in.safetensors"), problem)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        before = self.names()
        result = self.run_fa3(
            "run", self.path("in.safetensors"), "-o", self.path("out.safetensors"), preexec_fn=limit
        )
        self.assertEqual((result.returncode, result.stdout), (FAILED, ""))
        self.assertIn("out.safetensors", result.stderr)
        self.assertEqual(self.names(), before)


if __name__ == "__main__":
    unittest.main()
