# SPDX-License-Identifier: BSD-3-Clause
"""Memory, threads and processes that run out: status 5 and what to do, not a failed check."""

import os
import resource
import unittest

from kit import FA3, FAILED, CliTest

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
