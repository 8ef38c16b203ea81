#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""bundle.py — gathers what gpu-check.sh runs into one folder and a .tar.gz of it, to be carried to
a machine that has a Hopper GPU and its driver, and neither this tree nor what it is built from.

bundle.py [--build build/release] [--out build/gpu-check] [--no-kernels]

Programs and libfa3.so, the shared libraries that the loader finds for them here (but glibc, which
has to be the machine's own), compiled kernels for machines without NVRTC, scripts.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROGRAMS = ("fa3", "fa3_gpu_tests", "fa3_gpu_forward_tests", "fa3_launch", "fa3_tune_fwd")
PROGRAMS += ("example_gpu", "example_decode")  # examples/gpu.cpp, decode.c
LIBRARIES = {"libfa3.so*": "fa3", "libfa3_conformance.so": "fa3_conformance"}
LIBRARIES |= {"libfa3_sim.so": "fa3_sim"}  # with the targets that build them
FILES = {  # to their places in the bundle
    "bench/gpu_check/gpu-check.sh": "gpu-check.sh",
    "bench/gpu_check/shapes.txt": "cases/shapes.txt",
    "bench/gpu_check/shapes8.txt": "cases/shapes8.txt",
    "bench/gpu_check/shapes_bwd.txt": "cases/shapes_bwd.txt",
    "bench/gpu_check/shapes_mask.txt": "cases/shapes_mask.txt",
    "bench/gpu_check/shapes_cache.txt": "cases/shapes_cache.txt",
    "bench/gpu_check/ablation.txt": "cases/ablation.txt",
    "bench/gpu_check/functors.json": "cases/functors.json",
    "bench/gpu_check/training.json": "cases/training.json",
    "bench/fa3_ctypes.py": "bench/fa3_ctypes.py",
    "bench/machine.py": "bench/machine.py",
    "bench/gpu_run.py": "bench/gpu_run.py",
    "bench/peers_gpu.py": "bench/peers_gpu.py",
    "bench/fwd8_gpu.py": "bench/fwd8_gpu.py",
    "bench/bwd_gpu.py": "bench/bwd_gpu.py",
    "bench/decode_gpu.py": "bench/decode_gpu.py",
    "bench/gpu_check/engines.py": "bench/engines.py",
    "bench/bwd_outliers_gpu.py": "bench/bwd_outliers_gpu.py",
    "bench/cudnn_fp8.py": "bench/cudnn_fp8.py",
    "bench/quantize_gpu.py": "bench/quantize_gpu.py",
    "bench/scales_gpu.py": "bench/scales_gpu.py",
    "bench/gpt.py": "bench/gpt.py",
    "bench/mask_gpu.py": "bench/mask_gpu.py",
    "bench/grid_table.py": "bench/grid_table.py",
    "bench/plot_grid.py": "bench/plot_grid.py",
    "data/minilm.safetensors": "data/minilm.safetensors",
    "data/NOTICE.md": "data/NOTICE.md",
    "data/LICENSE.Apache-2.0": "data/LICENSE.Apache-2.0",
    "LICENSE": "LICENSE",
}
# The package of Python, to be compiled there, and its tests.
FOLDERS = {"python/fa3": "*.py", "python/src": "*.*", "include/fa3": "*.h", "tests/torch": "*.py"}
FOLDERS |= {"examples/python": "*.py"}
# Names the commit to gpu-check.sh and machine.py; only a folder that has it is replaced.
MARK = "VERSION"
GLIBC = re.compile(r"(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|resolv)\.so)")
RUNTIME = re.compile(r"lib(stdc\+\+|gcc_s)\.so")
MAX_BYTES = 64 << 20  # of the archive
# Of shapes.txt and of the grid of peers_gpu.py, as `fa3 jit` names them: all of the table, then
# other head dims, softcaps, functors.
KERNELS = ["fwd", "fwd/d16/bf16/full", "fwd/d32/bf16/full/ragged", "fwd/d80/bf16/full"]
KERNELS += ["fwd/d48-80/bf16/full", "fwd/d64/bf16/causal/dense/softcap"]
KERNELS += ["fwd/d144/bf16/full/dense", "fwd/d144/bf16/causal/dense"]
KERNELS += ["fwd/d192-80/f16/full/dense", "fwd/d208/bf16/causal/dense"]
KERNELS += ["fwd/d256-160/bf16/full/dense"]
KERNELS += ["fwd/d128/bf16/full/dense/softcap"]
KERNELS += ["fwd/d64/bf16/full/dense/alibi", "fwd/d64/bf16/causal/dense/alibi/sequence_ids"]
KERNELS += ["fwd/d64/bf16/full/dense/sequence_ids", "fwd/d96/f16/full/dense/softcap/sequence_ids"]
KERNELS += ["fwd/d128/bf16/causal/dense/sequence_ids"]
KERNELS += ["fwd/d128/bf16/full/alibi/sequence_ids", "fwd/d128/f16/causal/dense/softcap/alibi"]
KERNELS += ["fwd/d192-128/bf16/causal/dense/sequence_ids"]
KERNELS += ["fwd/d256/bf16/causal/dense/alibi/sequence_ids", "fwd/d256/bf16/full/alibi"]
KERNELS += ["fwd/d64/bf16/chunk/dense", "fwd/d128/bf16/chunk/dense", "fwd/d96/f16/chunk/ragged"]
KERNELS += ["fwd/d128/bf16/causal/dense/max_logit", "fwd/d256/f16/window/dense/softcap/max_logit"]
KERNELS += ["decode/d64/rows8/bf16/plain", "combine/d64/rows8/bf16"]
KERNELS += ["decode/d128/rows64/bf16/plain", "combine/d128/rows64/bf16"]


class BundleError(Exception):
    """What is missing and what to do."""


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise BundleError(f"{command[0]} failed ({done.returncode}): {done.stderr.strip()}")
    return done.stdout


def needed(binary):
    """Paths of the shared libraries that the loader takes for a binary."""
    found = []
    for line in run("ldd", binary).splitlines():
        name, _, place = line.strip().partition(" => ")
        if place.startswith("not found"):
            raise BundleError(f"{binary} needs {name}, which is not here; install it")
        if place and not GLIBC.match(name):
            found.append(pathlib.Path(place.rsplit(" (", 1)[0]))
    return found


def copy_binaries(build, out):
    """lib: what libfa3.so needs, also for Python; lib/programs: what else the programs need, with
    the C++ runtime, which a Python of the machine's own must not be given."""
    (out / "bin").mkdir()
    (out / "lib" / "programs").mkdir(parents=True)
    own = []
    for program in PROGRAMS:
        if not (build / "bin" / program).is_file():
            raise BundleError(f"{build}/bin/{program} is missing; build the target {program}")
        shutil.copy2(build / "bin" / program, out / "bin" / program)
    for pattern, target in LIBRARIES.items():
        found = sorted((build / "lib").glob(pattern))
        if not found:
            raise BundleError(f"{build}/lib/{pattern} is missing; build the target {target}")
        for library in found:
            shutil.copy2(library, out / "lib" / library.name, follow_symlinks=False)
        own += found
    places = {}
    for library in own:
        for path in needed(library):
            places[path.name] = (path, "lib/programs" if RUNTIME.match(path.name) else "lib")
    for program in PROGRAMS:
        for path in needed(build / "bin" / program):
            places.setdefault(path.name, (path, "lib/programs"))
    for name, (path, folder) in places.items():
        if not (out / "lib" / name).exists():
            shutil.copy2(path, out / folder / name)


def pack_kernels(fa3, path):
    """Compiles the kernels and counts them."""
    run(fa3, "jit", "--pack", path, "--programs", ",".join(KERNELS))
    environment = {**os.environ, "FA3_KERNEL_PACK": str(path)}
    return json.loads(run(fa3, "jit", "--list", "--json", env=environment))["pack"]["kernels"]


def needed_glibc(out):
    """The newest version of glibc that a file of the bundle asks for."""
    versions = set()
    for file in out.rglob("*"):
        if file.is_file() and file.parent.name in ("bin", "lib", "programs"):
            versions |= set(re.findall(rb"GLIBC_(\d+)\.(\d+)\0", file.read_bytes()))
    return ".".join(map(str, max((int(a), int(b)) for a, b in versions)))


def make_folder(out):
    """An empty one; an old bundle there goes."""
    if out.exists():
        if not (out / MARK).is_file() or not (out / "gpu-check.sh").is_file():
            raise BundleError(f"--out {out}: exists and is no bundle; remove it or name another")
        shutil.rmtree(out)
    out.mkdir(parents=True)


def main():
    parser = argparse.ArgumentParser(description="Makes what gpu-check.sh needs on a GPU's machine")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "gpu-check")
    parser.add_argument("--no-kernels", action="store_true", help="without compiled kernels")
    options = parser.parse_args()
    build, out = options.build.absolute(), options.out.absolute()
    make_folder(out)
    (out / MARK).touch()  # an attempt that fails may be repeated
    for source, place in FILES.items():
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / source, out / place)
    for folder, pattern in FOLDERS.items():
        for source in sorted((ROOT / folder).rglob(pattern)):
            place = out / source.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)
    copy_binaries(build, out)
    kernels = 0
    if not options.no_kernels:
        kernels = pack_kernels(build / "bin" / "fa3", out / "kernels.pack")
    sys.path.insert(0, str(ROOT / "bench"))
    import machine  # next to the scripts that this one copies

    version = run(out / "bin" / "fa3", "--version").strip()
    text = f"{version}, commit {machine.commit(ROOT)}, needs glibc {needed_glibc(out)}"
    (out / MARK).write_text(text + "\n")
    archive = out.with_name(out.name + ".tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=3) as tar:
        tar.add(out, arcname=out.name)
    size = archive.stat().st_size
    if size > MAX_BYTES:
        raise BundleError(f"{archive}: {size} bytes, at most {MAX_BYTES}; carry less")
    print(f"{text}; {kernels} kernels compiled")
    print(f"{archive}: {size / (1 << 20):.1f} MiB. On a machine with a Hopper GPU:")
    print(f"  tar xf {archive.name} && {out.name}/gpu-check.sh")


if __name__ == "__main__":
    try:
        main()
    except (BundleError, OSError) as error:
        sys.exit(f"bundle: {error}")
