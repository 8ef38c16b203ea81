# SPDX-License-Identifier: BSD-3-Clause
# kit.sh — read by each finding: a virtual environment of its own in a folder that goes when it ends.
#   install NAME==VERSION…    public packages and what they need
#   install_torch             PyTorch, transformers and NumPy as scripts/ pins them
#   as_seen OUTPUT            prints it; status 1 if it is not what the lines `#   …` of the finding say
set -eu
findings=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
unset PYTHONPATH
cd "$folder"

install() {
  "$python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$@"
}

# CUDA's libraries, which PyTorch loads on a CPU, too, are a toolkit's where there is one.
install_torch() {
  install --require-hashes -r "$findings/../scripts/python.txt" # NumPy among them
  install --no-deps --require-hashes -r "$findings/../scripts/torch.txt"
  if [ -e /usr/local/cuda/lib64/libcublas.so.13 ]; then
    export LD_LIBRARY_PATH="/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  else
    install --no-deps --require-hashes -r "$findings/../scripts/torch-cuda.txt"
  fi
}

as_seen() {
  printf '%s\n' "$1"
  before=$(sed -n 's/^#   //p' "$findings/$(basename "$0")")
  [ "$1" = "$before" ] && return 0
  printf '%s: this has changed; seen before was:\n%s\n' "$(basename "$0")" "$before" >&2
  exit 1
}
