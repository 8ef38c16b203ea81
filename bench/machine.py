# SPDX-License-Identifier: BSD-3-Clause
"""machine.py — what a result says about where it was measured: processor and commit, no host."""

import pathlib
import subprocess

_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "hygon"}


def device_slug(instruction_set, cpuinfo="/proc/cpuinfo"):
    """Folder name of a processor: vendor, family, model, SIMD in use; cpu-intel-6-207-avx3_bf16."""
    fields = {}
    if pathlib.Path(cpuinfo).exists():
        for line in pathlib.Path(cpuinfo).read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    if "vendor_id" in fields:
        vendor = _VENDORS.get(fields["vendor_id"], "x86")
        parts = [vendor, fields.get("cpu family", "0"), fields.get("model", "0")]
    elif "CPU part" in fields:
        parts = ["arm", fields.get("CPU implementer", "0"), fields["CPU part"]]
    else:
        parts = ["unknown"]
    return "-".join(["cpu", *parts, instruction_set])


def commit(root):
    """Short commit of the tree at root, -dirty when tracked files differ; unknown without git."""

    def git(*arguments):
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
