#!/usr/bin/env bash
# Sets up everything that the build and the tests need on Debian 12, Ubuntu 24.04 or newer: packages
# that are missing, and .venv with pinned wheels. Does nothing the second time.
# `setup.sh --no-torch` leaves .venv alone; `setup.sh --tests` also installs what only tests need
# there.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }

have() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

missing=()
need() { have "$1" || missing+=("$1"); }
for package in g++ git make ninja-build ccache mold python3 python3-venv libfmt-dev nlohmann-json3-dev \
               libxxhash-dev zlib1g-dev libssl-dev libgloo-dev libtomlplusplus-dev \
               libgtest-dev libbenchmark-dev libpcre2-dev libicu-dev; do
  need "$package"
done
# Any CMake from 3.25 on works, also one that was not installed as a package.
command -v cmake >/dev/null || need cmake
# Prints the version of an installed tool, from 16 on, or nothing.
version() {
  local found
  found=$(compgen -G "/usr/bin/$1-1[6-9]" || compgen -G "/usr/bin/$1-2[0-9]" || true)
  printf '%s' "$found" | head -n 1 | sed 's/.*-//'
}
# Prints the oldest available version of a package, from 16 on.
oldest() {
  local number
  for number in 16 17 18 19; do apt-cache show "$1-$number" >/dev/null 2>&1 && break; done
  printf '%s' "$number"
}
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
install() {
  say "installing $*"
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# The fuzzers need clang with its runtime.
clang=$(version clang++)
if [ -n "$clang" ]; then
  need "libclang-rt-$clang-dev"
fi
if [ ${#missing[@]} -gt 0 ] || [ -z "$clang" ]; then
  $sudo apt-get update -qq
  if [ -z "$clang" ]; then
    clang=$(oldest clang)
    missing+=("clang-$clang" "libclang-rt-$clang-dev")
  fi
  install "${missing[@]}"
fi
# `make lint` skips tools that are not available.
for tool in clang-format clang-tidy; do
  [ -n "$(version $tool)" ] || { $sudo apt-get update -qq && install "$tool-$(oldest $tool)"; } || say "no $tool"
done

[ "${1:-}" = --no-torch ] && exit 0
# Installs pinned packages. The stamp stores what was installed, so that changed pins are noticed.
pins() { # FILE STAMP CHECK [OPTION]
  cmp -s "$1" "$2" && return
  say "installing $(grep -E '^[a-z]' "$1" | tr '\n' ' ')into .venv"
  .venv/bin/python3 -m pip install --quiet --disable-pip-version-check ${4:-} -r "$1" 2>&1 | grep -v WARNING || true
  .venv/bin/python3 -c "$3"
  cp "$1" "$2"
}
[ -x .venv/bin/python3 ] || python3 -m venv .venv
pins requirements.txt .venv/installed 'import torch, numpy, safetensors'
pins requirements-python.txt .venv/installed-python 'import nanobind, scikit_build_core, pytest' || say "no nanobind: the Python package is not built"
# Tests without their packages are skipped. They import few files, so compiling all of them would
# waste time.
[ "${1:-}" = --tests ] && { pins requirements-tests.txt .venv/installed-tests 'import transformers' --no-compile || say "no transformers"; }
exit 0
