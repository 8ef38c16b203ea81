#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""ctypes_test.py — bench/fa3_ctypes.py on the library, with tensors that look like PyTorch's."""

import argparse
import array
import gc
import os
import pathlib
import subprocess
import sys
import unittest
import weakref

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import fa3_ctypes  # noqa: E402

OPTIONS = argparse.Namespace()
SHAPE = (2, 3, 1, 4)  # batch, tokens, heads, head_dim
DENSE = (12, 4, 4, 1)


class FakeTensor:
    """Numbers with a shape and strides, by the methods that PyTorch's tensors have."""

    dtype = "torch.float32"

    def __init__(self, values, shape=SHAPE, stride=DENSE):
        self.values, self.shape, self.strides = array.array("f", values), shape, stride

    def dim(self):
        return len(self.shape)

    def stride(self):
        return self.strides

    def data_ptr(self):
        return self.values.buffer_info()[0]


def numbers(factor=1.0):
    return FakeTensor([factor * i for i in range(24)])


class Unloading(unittest.TestCase):
    def test_library_may_be_closed_after_a_run(self):
        """oneTBB's threads live on: they must not lose their code when a host unloads a plug-in."""
        script = (
            "import _ctypes, ctypes, sys, time; sys.path.insert(0, sys.argv[2]);"
            "import fa3_ctypes as f, ctypes_test as t;"
            "library = f.Library(sys.argv[1]); context = f.Context(library, num_threads=4);"
            "args = f.forward_args(q=t.numbers(), k=t.numbers(), v=t.numbers(), o=t.numbers());"
            "context.forward(args); context.close();"
            "_ctypes.dlclose(library.c._handle); time.sleep(0.3)"
        )
        folder = pathlib.Path(__file__).parent
        paths = [str(folder.parents[1] / "bench"), str(folder)]
        command = [sys.executable, "-c", script, OPTIONS.lib, paths[0]]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        subprocess.run(command, check=True, timeout=60, env=environment)


class RelativePath(unittest.TestCase):
    def test_library_finds_its_own_beside_it_from_another_folder(self):
        library = pathlib.Path(OPTIONS.lib)
        if not (library.parent / "libfa3_sim.so").exists():
            self.skipTest("the build has no simulator")
        script = (
            "import ctypes, os, sys; import fa3_ctypes as f;"
            "library = f.Library(sys.argv[1]); os.chdir('/');"
            "f.Context(library, backend='sim').close()"
        )
        command = [sys.executable, "-c", script, f"./{library.name}"]
        environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(fa3_ctypes.__file__).parent)}
        environment.pop("LD_LIBRARY_PATH", None)
        subprocess.run(command, check=True, timeout=60, env=environment, cwd=library.parent)


class Ctypes(unittest.TestCase):
    def setUp(self):
        self.context = fa3_ctypes.Context(fa3_ctypes.Library(OPTIONS.lib))
        self.addCleanup(self.context.close)

    def test_arguments_keep_what_they_view(self):
        q, o = numbers(0.1), numbers()
        seen = weakref.ref(q)
        args = fa3_ctypes.forward_args(q=q, k=numbers(0.1), v=numbers(), o=o)
        del q
        gc.collect()
        self.assertIsNotNone(seen(), "only the arguments have it")
        self.context.forward(args)
        self.assertTrue(0 <= min(o.values) and max(o.values) <= 23)
        args.q = fa3_ctypes.Tensor.of(numbers())
        gc.collect()
        self.assertIsNone(seen(), "replaced")

    def test_strides_are_those_of_the_tensor(self):
        def gradients(dout):
            dv = numbers()
            o, lse = numbers(), FakeTensor([0.0] * 6, (2, 1, 3), (3, 3, 1))
            inputs = {"q": numbers(0.1), "k": numbers(0.1), "v": numbers()}
            self.context.forward(fa3_ctypes.forward_args(**inputs, o=o, lse=lse))
            args = fa3_ctypes.backward_args(**inputs, o=o, lse=lse, dout=dout, dv=dv)
            self.context.backward(args)
            return list(dv.values)

        rows = FakeTensor([1.0] * 4, SHAPE, (0, 0, 0, 1))
        self.assertEqual(gradients(rows), gradients(FakeTensor([1.0] * 24)))
        with self.assertRaisesRegex(fa3_ctypes.Fa3Error, "dout .*fa3_dense"):
            gradients(FakeTensor([1.0], SHAPE, (0, 0, 0, 0)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lib", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
