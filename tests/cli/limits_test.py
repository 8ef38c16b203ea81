# SPDX-License-Identifier: BSD-3-Clause
"""Memory, threads and processes that run out: status 5 and what to do, not a failed check."""

import os
import resource
import unittest
from pathlib import Path

import tensors
from kit import DONE, FA3, FAILED, CliTest, built_fake

NOBODY = 65534


def no_processes():
    """From here on neither threads nor children. The limit does not bind root."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def memory(megabytes):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


class Limits(CliTest):
    def test_memory(self):
        # The tensors fit into the machine's memory, but not into the process's limit.
        sizes = ["--batch", 8, "--heads-q", 16, "--seqlen-q", 3000]
        message = self.assert_fails(
            *[FAILED, "check", "--threads", 1, *sizes],
            preexec_fn=memory(400),
            says=["memory", "smaller problem"],
        )
        self.assertNotIn("report it", message)

    def test_batch_of_billions(self):
        """Of empty sequences: neither memory nor time in proportion to their number."""
        nothing = ("F32", [2_000_000_000, 0, 1, 4], [])
        tensors.write(self.path("in.safetensors"), {"q": nothing, "k": nothing, "v": nothing})
        args = ["run", self.path("in.safetensors"), "-o", self.path("out.safetensors")]
        self.fa3(*args, "--threads", 1, "--quiet", preexec_fn=memory(400))

    def test_allocation_that_fails(self):
        """Whichever it is: one line and status 5, or the command can do without it."""
        preloaded = {**os.environ, "LD_PRELOAD": built_fake("malloc")}
        for goes_on in [{}, {"FA3_TEST_FAILS_ON": "1"}]:
            at, reached = 1, True
            while reached:
                place = {"FA3_TEST_FAILS_AT": str(at), **goes_on}
                result = self.run_fa3("explain", "--batch", 1, env={**preloaded, **place})
                reached = "not reached" not in result.stderr
                with self.subTest(place):
                    self.assertIn(result.returncode, [DONE, FAILED], result.stderr)
                    if result.returncode == FAILED:
                        self.assertRegex(result.stderr, r"\Afa3[^\n]*: [^\n]*memory[^\n]*\n\Z")
                at += 251

    def test_allocation_that_fails_leaves_no_file(self):
        source = self.path("in.safetensors")
        tensors.write(source, tensors.dense())
        for i in range(3000):  # where each takes memory, most allocations are of this folder
            open(self.path(f"neighbour {i:06}"), "w").close()
        outputs = ["-o", self.path("out.safetensors"), "--map", self.path("map.png")]
        before, at, reached = self.names(), 1, True
        while reached:
            preloaded = {"LD_PRELOAD": built_fake("malloc"), "FA3_TEST_FAILS_AT": str(at)}
            args = ["run", source, *outputs, "--threads", 1]
            result = self.run_fa3(*args, env={**os.environ, **preloaded})
            reached = "not reached" not in result.stderr
            if result.returncode != DONE:
                self.assertEqual((result.returncode, self.names()), (FAILED, before), at)
            for path in outputs[1::2]:
                Path(path).unlink(missing_ok=True)
            at += 379

    def skip_if_out_of_reach(self):
        if os.geteuid() == 0 and self.run_fa3("--version", preexec_fn=no_processes).returncode:
            self.skipTest(f"{FA3} is out of reach for others than root")

    def run_fa3(self, *args, **options):
        try:
            return super().run_fa3(*args, **options)
        except PermissionError:
            return self.skipTest(f"{FA3} is out of reach for others than root")

    def test_children(self):
        self.skip_if_out_of_reach()
        message = self.assert_fails(
            *[FAILED, "selftest", "--backend", "sim"],
            preexec_fn=no_processes,
            says=["child process", "ulimit"],
        )
        self.assertNotIn("report it", message)

    def test_threads(self):
        self.skip_if_out_of_reach()
        for backend in [[], ["--dtype", "bf16", "--backend", "sim"]]:
            args = ["check", "--threads", 1, "--seqlen-q", 70, *backend]
            self.fa3(*args, preexec_fn=no_processes)


if __name__ == "__main__":
    unittest.main()
