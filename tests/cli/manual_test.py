# SPDX-License-Identifier: BSD-3-Clause
"""fa3 man and fa3 completion: made of the options, for man and for shells."""

import re
import shutil
import subprocess
import unittest

from inspect_test import COMMANDS
from kit import USAGE, CliTest


class Manual(CliTest):
    def options(self, command):
        return re.findall(r"^ +(?:-\w,)?(--[\w-]+)", self.fa3(command, "--help"), re.MULTILINE)

    def test_man(self):
        page = self.fa3("man").replace("\\-", "-")
        for command in COMMANDS:
            part = page.split(f"\n.SS fa3 {command}\n")[1].split("\n.S")[0]
            self.assertTrue(self.options(command))
            for option in self.options(command):
                self.assertIn(f"\\fB{option}", part)
        for variable in self.fa3_json("info")["environment"]:
            self.assertIn(f"\\fB{variable['name']}\\fR", page)
        self.assertIn("\n.SH EXIT STATUS\nExit codes: 0 done", page)

    @unittest.skipUnless(shutil.which("groff"), "no groff")
    def test_man_is_well_formed(self):
        command = ["groff", "-man", "-Tutf8", "-ww", "-z"]
        page = self.fa3("man")
        result = subprocess.run(command, input=page, capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def completions(self, *words):
        """What bash offers for the last word."""
        script = self.fa3("completion", "bash") + (
            'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fa3; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        command = ["bash", "-c", script, "bash", "fa3", *words]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout.split()

    def test_bash(self):
        self.assertEqual(set(COMMANDS) - set(self.completions("")), set())
        self.assertEqual(self.completions("ru"), ["run"])
        self.assertEqual(set(self.options("check")), set(self.completions("check", "--")))
        self.assertEqual(self.completions("check", "--backend", "s"), ["sim"])
        self.assertEqual(self.completions("run", "in", "--layout", ""), ["bshd", "bhsd"])
        self.assertEqual(self.completions("run", "in", "--backward", "--caus"), ["--causal"])
        self.assertEqual(self.completions("run", "-o", ""), [])  # files, by the shell
        self.assertEqual(self.completions("run", ""), self.completions("run", "-"))
        self.assertEqual(self.completions("completion", "z"), ["zsh"])

    def test_other_shells(self):
        self.assertIn("bashcompinit", self.fa3("completion", "zsh"))
        fish = self.fa3("completion", "fish")
        for command in COMMANDS:
            self.assertIn(f"complete -c fa3 -n __fish_use_subcommand -f -a {command} -d '", fish)
            for option in self.options(command):
                line = f"'__fish_seen_subcommand_from {command}' -l {option[2:]} "
                self.assertIn(line, fish)
        self.assertIn("-l backend -x -a 'auto cpu reference sim cuda' -d '", fish)
        for line in fish.splitlines():
            self.assertEqual(len(re.findall(r"(?<!\\)'", line)) % 2, 0, line)
        self.assert_fails(USAGE, "completion", "csh", says=["csh", "bash, zsh, fish"])
        self.assert_fails(USAGE, "completion", says="shell")


if __name__ == "__main__":
    unittest.main()
