#!/usr/bin/env bash
# Installs a build into a scratch directory and builds a project against it: run.sh BUILD_DIR
# SOURCE_DIR
set -euo pipefail
build=$1 source=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$build" --prefix "$scratch/prefix" >/dev/null
cmake -S "$source/test/install" -B "$scratch/build" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" >/dev/null
cmake --build "$scratch/build" >/dev/null
"$scratch/build/uses_heddle"
"$scratch/prefix/bin/heddle" --version
share=$scratch/prefix/share
for file in man/man1/heddle.1 bash-completion/completions/heddle zsh/site-functions/_heddle \
  fish/vendor_completions.d/heddle.fish; do
  grep -q parallelize "$share/$file" || { echo "$share/$file does not describe parallelize"; exit 1; }
done
