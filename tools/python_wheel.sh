#!/usr/bin/env bash
# Writes a wheel of the Python package that a build folder has into a folder, and prints its path.
# The wheel is for the Python and the torch that configured the build: see `make wheel` for others.
# usage: python_wheel.sh PYTHON BUILD FOLDER
set -euo pipefail
python=$1 build=$(realpath "$2") folder=$3
cd "$(dirname "$0")/.."
rm -rf "$build/package" "$folder"
cmake --install "$build" --component python --prefix "$build/package" >/dev/null
"$python" -m pip --disable-pip-version-check wheel --quiet --no-build-isolation --no-deps -w "$folder" . \
  -C wheel.cmake=false -C wheel.platlib=true -C wheel.py-api= \
  -C "wheel.force-include.$build/package/heddle=\${SKBUILD_PLATLIB_DIR}/heddle"
echo "$folder"/*.whl
