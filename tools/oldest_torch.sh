#!/usr/bin/env bash
# Runs the tests of the Python package with the oldest torch that it supports, in an environment of
# its own. The package is that of a build folder, without heddle._torch, which fits one version of
# torch only: there, `Run` uses FX graphs.
# usage: oldest_torch.sh PYTHON BUILD [PYTEST_OPTION...]
set -euo pipefail
python=$1 build=$(realpath "$2")
shift 2
cd "$(dirname "$0")/.."
version=$(sed -n 's/^OLDEST = (\([0-9]*\), \([0-9]*\))$/\1.\2/p' python/heddle/_torch_names.py)
env=$build/torch-$version
if [ ! -e "$env/installed" ]; then
  "$python" -m venv --clear "$env"
  # Pins of other packages stay; pip finds the newest patch of this torch.
  if ! grep -hE '^(numpy|safetensors|pytest|transformers)==' requirements*.txt |
       "$env/bin/python" -m pip --disable-pip-version-check install --quiet "torch==$version.*" -r /dev/stdin; then
    echo "skipped: python.oldest_torch: no wheel of torch $version can be installed"
    exit 0
  fi
  touch "$env/installed"
fi
rm -rf "$env/package" && mkdir -p "$env/package/heddle"
for file in "$build"/python/heddle/*; do
  case ${file##*/} in
    _torch.*.so | __pycache__) ;;
    *) ln -s "$(realpath "$file")" "$env/package/heddle/" ;;
  esac
done
"$env/bin/python" -c "import torch; print('torch', torch.__version__)"
PYTHONPATH=$env/package PYTHONDONTWRITEBYTECODE=1 "$env/bin/python" -m pytest -c pyproject.toml -q "$@" python/tests
