#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# gpu-check.sh — every check and measurement of fa3 on a machine with a Hopper GPU, from the bundle
# that `make gpu-check` makes. Needs the NVIDIA driver; uses NVRTC (else the bundle's kernels),
# PyTorch, matplotlib and compute-sanitizer where they are; a C++ compiler and nanobind for the
# package fa3, which PyTorch's tests need.
#   gpu-check.sh [--quick] [--only REGEX] [--results DIR]
#   --quick: the checks only, no measurements
#   --only: the steps in whose name this is found
#   --results: where logs, summary.jsonl and results go [results, beside this script]; results are
#   named <date>-<commit>-<suite>.jsonl and begin with a line about commit, GPU, driver and CUDA
# A line per step: ok, failed, or skipped with the reason. A failed step stops nothing. Exit status:
# 0 all that ran is ok, 1 a step failed, 2 usage, 4 there is no Hopper GPU with a driver here, 5 the
# programs do not start here.
# shellcheck disable=SC2317 # steps call functions by name
set -uo pipefail

readonly kFailed=1 kUsage=2 kNoGpu=4 kCannotStart=5
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=$here/results
quick='' only=''

usage() {
  sed -n '3,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit "$1"
}
while [[ $# -gt 0 ]]; do
  case $1 in
    --quick) quick=1 ;;
    --only | --results)
      [[ $# -ge 2 ]] || { echo "gpu-check: $1: needs a value" >&2; usage $kUsage >&2; }
      if [[ $1 = --only ]]; then only=$2; else results=$2; fi
      shift
      ;;
    --help) usage 0 ;;
    *) echo "gpu-check: unknown option '$1'" >&2; usage $kUsage >&2 ;;
  esac
  shift
done

mkdir -p "$results" || exit $kFailed
results=$(cd "$results" && pwd)
cache=$(mktemp -d) || exit $kFailed
trap 'rm -rf "$cache"' EXIT
export here results
export FA3_CACHE_DIR=$cache FA3_KERNEL_PACK=$here/kernels.pack PYTHONDONTWRITEBYTECODE=1
[[ -e $FA3_KERNEL_PACK ]] || unset FA3_KERNEL_PACK
# For the programs here; Python takes the C++ runtime of its own machine.
system_libraries=${LD_LIBRARY_PATH-}
export LD_LIBRARY_PATH=$here/lib:$here/lib/programs:$system_libraries
export python_libraries=$here/lib:$system_libraries
summary=$results/summary.jsonl
: >"$summary"
# The commit that the bundle was made of; what is measured is named after it.
commit=$(sed -n 's/.*, commit \([^,]*\),.*/\1/p' "$here/VERSION")
export commit=${commit:-unknown}
measured=$results/$(date -u +%F)-$commit
export grid=$measured-fwd-grid.jsonl launches=$measured-launch.jsonl
export variants=$measured-fwd-ablation.jsonl with_functors=$measured-fwd-functors.jsonl
export training=$measured-training.jsonl models=$measured-gpt.jsonl

# ---- Steps --------------------------------------------------------------------------------------

failed=0
declare -A missing  # what a step may need and is not here: why

last_line() { grep . | tail -n 1; }

json_text() { printf '%s' "$1" | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g'; }

report() {  # step, verdict, seconds, why
  printf '%-8s %4s s  %s%s\n' "$2" "$3" "$1" "${4:+: $4}"
  printf '{"step": "%s", "verdict": "%s", "seconds": %s, "why": "%s"}\n' "$1" "$2" "$3" \
    "$(json_text "$4")" >>"$summary"
}

# step NAME SECONDS "NEEDS…" COMMAND…: what it prints goes to results/NAME.log. The command may be
# an exported function.
step() {
  local name=$1 limit=$2 needs=$3 need status=0 begin=$SECONDS
  shift 3
  [[ $name =~ $only ]] || return
  for need in $needs; do
    if [[ -n ${missing[$need]-} ]]; then
      report "$name" skipped 0 "${missing[$need]}"
      return
    fi
  done
  local log=$results/$name.log
  timeout --kill-after=10 "$limit" bash -c 'set -o pipefail; "$@"' step "$@" \
    </dev/null >"$log" 2>&1 || status=$?
  case $status in
    0) report "$name" ok $((SECONDS - begin)) '' ;;
    124 | 137) report "$name" failed $((SECONDS - begin)) "longer than $limit s, or killed" ;;
    *) report "$name" failed $((SECONDS - begin)) "status $status: $(last_line <"$log")" ;;
  esac
  [[ $status = 0 ]] || failed=1
}

in_python() {
  LD_LIBRARY_PATH=$python_libraries PYTHONPATH=$cache_dir/python:${PYTHONPATH-} python3 "$@"
}

# Tests that skipped themselves have not passed.
tests() {
  local log=$cache_dir/tests.log status=0
  "$@" 2>&1 | tee "$log" || status=$?
  ! grep -q '\[  SKIPPED \]' "$log" || status=1
  return "$status"
}

# The first line of a result: commit, GPU, driver, CUDA.
meta() { "$here/bin/fa3_launch" --commit "$commit" --meta "$1"; }  # suite

# Every problem of a file of cases; results/RESULT.jsonl has a line for each.
check_shapes() {  # file, RESULT
  local options bad=0 count=0
  meta check >"$results/$2.jsonl" || return
  while read -r options; do
    count=$((count + 1))
    # shellcheck disable=SC2086 # words
    "$here/bin/fa3" check $options --backend cuda --json >>"$results/$2.jsonl" ||
      { bad=$((bad + 1)); echo "failed: fa3 check $options --backend cuda"; }
  done < <(grep -v '^#' "$here/cases/$1")
  echo "$count problems, $bad failed"
  [[ $bad = 0 && $count -gt 0 ]]
}

# The command on a GPU: a file there and back, auto's choice, a real model's tensors.
command_on_gpu() {
  local out=$cache_dir/out.safetensors model=$here/data/minilm.safetensors
  local large='--head-dim 128 --heads-q 16 --batch 4 --seqlen-q 4096 --causal'
  # shellcheck disable=SC2086 # words
  "$here/bin/fa3" run "$model" -o "$out" --dtype bf16 --json | tee "$results/run.json" &&
    grep -q '"backend":"cuda"' "$results/run.json" && grep -q '"copied":true' "$results/run.json" &&
    "$here/bin/fa3" check "$model" --dtype bf16 --backend cuda --expect expected_o &&
    "$here/bin/fa3" check --dtype bf16 --causal --json | grep -q '"backend":"cuda"' &&
    "$here/bin/fa3" check --dtype f32 --json | grep -q '"gpu_declined":"' &&
    "$here/bin/fa3" bench --dtype bf16 $large
}

sanitize() {  # tool
  tests compute-sanitizer --tool "$1" --error-exitcode 9 "$here/bin/fa3_gpu_forward_tests" \
    --gtest_filter="$2"
}

peers() {  # file to write, what to do
  rm -f "$1"
  cd "$here/bench" &&
    in_python peers_gpu.py --lib "$here/lib/libfa3.so" --commit "$commit" --out "$1" "$2"
}

script() {  # file to write, script, its options
  rm -f "$1"
  cd "$here/bench" &&
    in_python "$2" --lib "$here/lib/libfa3.so" --commit "$commit" --out "$1" "${@:3}"
}

ablation() {
  "$here/bin/fa3_tune_fwd" --commit "$commit" --suite fwd-ablation "$here/cases/ablation.txt" |
    tee "$variants"
}

# What they compute is checked with smaller problems, in the step correctness.
bench_cases() {  # file of cases, suite, file to write
  meta "$2" >"$3" || return
  "$here/bin/fa3" bench --cases "$here/cases/$1" --backend cuda --no-verify --json | tee -a "$3"
}

# The fastest row for a problem; contexts follow the file, and compute the same.
tune() {
  local file=$results/tuning.json
  local problem='--dtype bf16 --head-dim 128 --heads-q 4 --seqlen-q 2048 --causal'
  rm -f "$file"
  # shellcheck disable=SC2086 # words
  "$here/bin/fa3" tune $problem -o "$file" &&
    FA3_TUNING=$file "$here/bin/fa3" explain $problem --backend cuda --json |
    grep -q '"row_from": "file"' &&
    FA3_TUNING=$file "$here/bin/fa3" check $problem --backend cuda
}

# The package fa3 with its compiled part, for the Python of this machine.
package() {
  local nanobind headers suffix to=$cache_dir/python/fa3
  { read -r nanobind && read -r headers && read -r suffix; } < <(in_python -c 'import nanobind
import pathlib, sysconfig
print(pathlib.Path(nanobind.__file__).parent)
print(sysconfig.get_path("include"), sysconfig.get_config_var("EXT_SUFFIX"), sep="\n")') || return
  mkdir -p "$cache_dir/python" && cp -r "$here/python/fa3" "$cache_dir/python" &&
    LD_LIBRARY_PATH=$python_libraries c++ -std=c++20 -O2 -DNDEBUG -fPIC -shared \
      -fvisibility=hidden -I"$here/include" -I"$headers" -I"$nanobind/include" \
      -I"$nanobind/ext/robin_map/include" "$here"/python/src/*.cpp \
      "$nanobind/src/nb_combined.cpp" "$here/lib/libfa3.so.0" -o "$to/_fa3$suffix" &&
    in_python -c 'import fa3; print(fa3.__version__, fa3.__file__)'
}

torch_tests() {  # what they select; in eight processes where pytest-xdist is there
  local parallel=()
  ! in_python -c 'import xdist' 2>/dev/null || parallel=(-n 8)
  (cd "$here/tests/torch" &&
    in_python -m pytest -q -p no:cacheprovider --durations=10 "${parallel[@]}" "$@")
}

gpt() {
  rm -f "$models"
  in_python "$here/bench/gpt.py" --commit "$commit" --budget 280 --out "$models"
}

# Requests that arrive in time, in graphs; beside PyTorch's SDPA.
serve() {
  in_python "$here/examples/python/serve.py" --with sdpa --commit "$commit" \
    --json "$results/serve.jsonl"
}

launch() { "$here/bin/fa3_launch" --commit "$commit" | tee "$launches"; }

render() {
  in_python "$here/bench/grid_table.py" "$grid" | tee "$results/forward.md"
}

picture() { in_python "$here/bench/plot_grid.py" "$grid" "$results/forward.png"; }

export cache_dir=$cache
export -f in_python tests meta check_shapes command_on_gpu sanitize peers launch ablation
export -f bench_cases script
export -f tune render picture package torch_tests gpt serve

# ---- What is here -------------------------------------------------------------------------------

find_gpu() {
  why=$("$here/bin/fa3" explain --dtype bf16 --backend cuda --quiet 2>&1) && return
  why=$(last_line <<<"$why")
  missing[gpu]="no GPU: ${why#fa3 explain: }"
}

find_python() {
  if ! command -v python3 >/dev/null; then
    missing[torch]='no python3' missing[matplotlib]='no python3' missing[builds]='no python3'
    return
  fi
  why=$(in_python -c 'import nanobind, pytest' 2>&1) ||
    missing[builds]="no nanobind or pytest: $(last_line <<<"$why")"
  command -v c++ >/dev/null || missing[builds]='no c++'
  why=$(in_python -c 'import torch; assert torch.cuda.is_available(), "it sees no GPU"' 2>&1) ||
    missing[torch]="no PyTorch with a GPU: $(last_line <<<"$why")"
  why=$(in_python -c 'import matplotlib' 2>&1) ||
    missing[matplotlib]="no matplotlib: $(last_line <<<"$why")"
}

# NVRTC of the machine, else that of PyTorch's packages.
find_nvrtc() {
  local listed
  listed=$("$here/bin/fa3" jit --list 2>&1 | grep '^nvrtc')
  if [[ $listed == *'not available'* ]] && command -v python3 >/dev/null; then
    local found
    found=$(in_python -c 'import glob, site, sys
places = [f"{p}/nvidia/*/lib/libnvrtc.so.1[23]" for p in site.getsitepackages() + sys.path if p]
print(*sorted(f for p in places for f in glob.glob(p)), sep="\n")' 2>/dev/null | last_line)
    [[ -z $found ]] || export FA3_NVRTC=$found
    listed=$("$here/bin/fa3" jit --list 2>&1 | grep '^nvrtc')
  fi
  [[ $listed != *'not available'* ]] || missing[nvrtc]="no NVRTC: ${listed#*not available: }"
}

# The tool may be there and refuse the machine.
find_sanitizer() {
  local place
  for place in /usr/local/cuda/bin /usr/local/cuda/compute-sanitizer; do PATH=$PATH:$place; done
  if ! command -v compute-sanitizer >/dev/null; then
    missing[sanitizer]='no compute-sanitizer'
  elif [[ -z ${missing[gpu]-} ]]; then
    why=$(timeout 60 compute-sanitizer "$here/bin/fa3" check --dtype bf16 --backend cuda --batch 1 \
      --heads-q 1 --seqlen-q 16 2>&1)
    ! grep -q 'Device not supported' <<<"$why" ||
      missing[sanitizer]='compute-sanitizer: Device not supported'
  fi
}

tee "$results/VERSION" <"$here/VERSION"
if ! why=$("$here/bin/fa3" --version 2>&1); then
  echo "gpu-check: the programs do not start here: $(last_line <<<"$why"); see VERSION" >&2
  exit $kCannotStart
fi
find_gpu
find_nvrtc
find_python
find_sanitizer
[[ -n ${missing[gpu]-} ]] || meta gpu-check | tee -a "$summary"
[[ -z $quick ]] || missing[time]='--quick'

# ---- Correctness, then measurement --------------------------------------------------------------

forward=$here/bin/fa3_gpu_forward_tests
step info 60 '' "$here/bin/fa3" info
step kernels 60 '' "$here/bin/fa3" jit --list
step selftest 300 'gpu nvrtc' "$here/bin/fa3" selftest
step runtime 120 'gpu nvrtc' tests "$here/bin/fa3_gpu_tests"
step correctness 240 gpu check_shapes shapes.txt check
step correctness8 240 'gpu nvrtc' check_shapes shapes8.txt check8
step backward 240 'gpu nvrtc' check_shapes shapes_bwd.txt check-backward
step mask 240 'gpu nvrtc' check_shapes shapes_mask.txt check-mask
step caches 240 'gpu nvrtc' check_shapes shapes_cache.txt check-caches
step results 180 gpu tests "$forward" --gtest_filter='*Results*'
step determinism 60 gpu tests "$forward" --gtest_filter='*Again'
step graph 60 gpu tests "$forward" --gtest_filter='*InAGraph'
step streams 60 gpu tests "$forward" --gtest_filter='*TwoStreams'
step lying-lengths 60 gpu tests "$forward" --gtest_filter='*Lying*'
step command 120 gpu command_on_gpu
step tune 120 'gpu nvrtc' tune
step example 60 gpu "$here/bin/example_gpu"
step example-decode 60 'gpu nvrtc' "$here/bin/example_decode"
step peers-check 180 'gpu torch' peers "$results/check-peers.jsonl" --check
step quantize 120 'gpu nvrtc torch' script "$results/quantize.jsonl" quantize_gpu.py --check
step memcheck 120 'gpu sanitizer' sanitize memcheck '*Results*:*Lying*'
step package 120 'gpu nvrtc torch builds' package
ls "$cache"/python/fa3/_fa3* >/dev/null 2>&1 || missing[package]='the package fa3 was not built'
step torch 420 'gpu nvrtc torch builds package' torch_tests -k cuda
step torch-gpu 120 'gpu nvrtc torch builds package' torch_tests gpu_test.py
step engines 120 'gpu nvrtc torch builds package' in_python "$here/bench/engines.py"
# Without the backward: racecheck takes what a bulk copy writes as unordered with the reads behind
# the mbarrier that counts its bytes. The simulator's hazard checker knows them.
step racecheck 180 'gpu sanitizer' sanitize racecheck '*Results*:-*Backward*'
step synccheck 120 'gpu sanitizer' sanitize synccheck '*Results*'
step grid 240 'gpu torch time' peers "$grid" --grid
step grid8 240 'gpu nvrtc torch time' script "$results/fwd8-grid.jsonl" fwd8_gpu.py
step rates8 240 'gpu nvrtc torch time' script "$results/precision.jsonl" quantize_gpu.py \
  --rate --grid
step grid-backward 240 'gpu nvrtc torch time' script "$results/bwd-grid.jsonl" bwd_gpu.py
step decode 240 'gpu nvrtc torch time' script "$results/decode.jsonl" decode_gpu.py
step serve 120 'gpu nvrtc torch time builds package' serve
step outliers-backward 60 'gpu nvrtc torch time' script "$results/bwd-outliers.jsonl" \
  bwd_outliers_gpu.py
step gpt 600 'gpu nvrtc torch time builds package' gpt
step launch 30 'gpu time' launch
step functors 240 'gpu nvrtc time' bench_cases functors.json fwd-functors "$with_functors"
step training 240 'gpu nvrtc time' bench_cases training.json training "$training"
step ablation 120 'gpu nvrtc time' ablation
[[ -s $grid ]] || missing[grid]='no grid was measured'
step table 30 'gpu grid' render
step plot 60 'gpu grid matplotlib' picture

count() { grep -c "\"verdict\": \"$1\"" "$summary"; }
echo "$(count ok) steps ok, $(count failed) failed, $(count skipped) skipped; $summary"
[[ -z ${missing[gpu]-} ]] || exit $kNoGpu
exit $failed
