#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""wheel.py WHEEL — a wheel of the Python package in a fresh virtual environment.

It is imported there without NumPy, PyTorch, a GPU or a toolkit; its libraries are its own; then the
tests of this folder run on it. Exit status 1 with what is wrong.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_BYTES = 5_000_000
CARRIED = ("libfa3.so.0", "libtbb.so.12", "libfmt.so", "libhwy.so.1")
# Of the system, like libc's. The loader lists itself by its path.
SYSTEM = (
    "libc.so",
    "libm.so",
    "libstdc++.so",
    "libgcc_s.so",
    "linux-vdso",
    "/lib64/ld-linux",
    "/lib/ld-linux",
)


def run(*command, **environment):
    keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")}
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        cwd=tempfile.gettempdir(),
        env=keep | environment,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"wheel: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_content(wheel):
    if wheel.stat().st_size > LIMIT_BYTES:
        sys.exit(f"wheel: {wheel.name} has {wheel.stat().st_size} bytes, need ≤ {LIMIT_BYTES}")
    names = zipfile.ZipFile(wheel).namelist()
    for part in ("fa3/py.typed", "fa3/_fa3.pyi", "fa3/lib/LICENCES.txt", *CARRIED):
        if not any(part in name for name in names):
            sys.exit(f"wheel: {wheel.name} lacks {part}; it has {names}")


def check_libraries(package):
    module = next(package.glob("_fa3*.so"))
    for line in run("ldd", module).splitlines():
        words = line.split()
        if words[0].startswith(SYSTEM):
            continue
        if len(words) < 3 or not words[2].startswith(str(package)):
            sys.exit(f"wheel: {module.name} finds a library elsewhere: {line.strip()}")


def main():
    wheel = pathlib.Path(sys.argv[1]).resolve()
    check_content(wheel)
    with tempfile.TemporaryDirectory() as folder:
        venv = pathlib.Path(folder) / "venv"
        run(sys.executable, "-m", "venv", venv)
        python = venv / "bin" / "python"
        pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        run(*pip, "--no-deps", wheel)
        where = run(python, "-c", "import fa3; print(fa3.__path__[0])").strip()
        package = pathlib.Path(where).resolve()
        if not package.is_relative_to(venv.resolve()):
            sys.exit(f"wheel: imported from {package}, need the environment's own")
        check_libraries(package)
        run(*pip, "--require-hashes", "-r", ROOT / "scripts" / "python.txt")
        tests = ROOT / "tests" / "python"
        print(run(python, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", ROOT, tests,
                  PYTHONDONTWRITEBYTECODE="1"))  # fmt: skip
    print(f"wheel: {wheel.name}, {wheel.stat().st_size} bytes: ok")


if __name__ == "__main__":
    main()
