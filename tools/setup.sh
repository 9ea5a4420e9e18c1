#!/usr/bin/env bash
# Sets up everything that the build and the tests need on Debian 12, Ubuntu 24.04 or newer: packages that are missing, and
# .venv with pinned wheels. Does nothing the second time. `setup.sh --no-torch` leaves .venv alone.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }

have() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

missing=()
need() { have "$1" || missing+=("$1"); }
for package in g++ git make ninja-build ccache mold python3 python3-venv libfmt-dev nlohmann-json3-dev \
               libxxhash-dev libgtest-dev libbenchmark-dev; do
  need "$package"
done
# Any CMake from 3.25 on will do, and some come from elsewhere than a package.
command -v cmake >/dev/null || need cmake
# The fuzzers need clang with its runtime, from 16 on: the one that is there, or else the oldest that can be had.
clang=$(compgen -G '/usr/bin/clang++-1[6-9]' || compgen -G '/usr/bin/clang++-2[0-9]' || true)
clang=$(printf '%s' "$clang" | head -n 1 | sed 's/.*-//')
if [ -n "$clang" ]; then
  need "libclang-rt-$clang-dev"
fi

if [ ${#missing[@]} -gt 0 ] || [ -z "$clang" ]; then
  sudo=
  [ "$(id -u)" -eq 0 ] || sudo=sudo
  $sudo apt-get update -qq
  if [ -z "$clang" ]; then
    for clang in 16 17 18 19; do apt-cache show "clang-$clang" >/dev/null 2>&1 && break; done
    missing+=("clang-$clang" "libclang-rt-$clang-dev")
  fi
  say "installing ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

[ "${1:-}" = --no-torch ] && exit 0
# A stamp holds what was installed, so that a change of the pins is noticed.
stamp=.venv/installed
if ! cmp -s requirements.txt "$stamp"; then
  say "making .venv with $(grep -E '^[a-z]' requirements.txt | tr '\n' ' ')"
  python3 -m venv .venv
  .venv/bin/python3 -m pip install --quiet --disable-pip-version-check -r requirements.txt 2>&1 | grep -v WARNING || true
  .venv/bin/python3 -c 'import torch, numpy, safetensors'
  cp requirements.txt "$stamp"
fi
