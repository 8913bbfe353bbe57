#!/usr/bin/env bash
# Installs what is missing, by Debian/Ubuntu package name. Quick, and needs no root, where all of it is there.
#
#   tools/install_deps.sh [build] [python] [fuzz] [gpu] [page] [packages]      (default: build)
#
# "a|b|c" is satisfied by any of the three; the first that the package lists know is installed. "?a" is left out, and said
# so, where the lists know none: an older release cannot compile AMD's kernels, but everything else.
set -euo pipefail

build=(
  cmake ninja-build g++ ccache pkg-config git
  libdnnl-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libutf8proc-dev
  libboost-dev libsqlite3-dev libssl-dev libpng-dev "libjpeg-dev|libjpeg62-turbo-dev|libjpeg-turbo8-dev" libwebp-dev
  "?libsixel-dev"
  libgtest-dev "libgmock-dev|google-mock" libbenchmark-dev
)
python=()
# A Python of one's own (pyenv, conda) brings venv along; Debian's has it in a package.
"${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null || python=(python3 "python3-venv|python3-full")
# torch.compile builds extensions of Python: their headers, for the same.
"${PYTHON:-python3}" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
  2>/dev/null || python+=(python3-dev)
# mpirun, which starts ranks in a test.
python+=("?openmpi-bin")
# A browser for the tests of the server's page.
page=("?chromium")
# What makes Debian packages, and fresh roots to try them in.
packages=(dpkg-dev file debootstrap systemd-container curl)
fuzz=(clang-19 libclang-rt-19-dev libomp-19-dev)

# What compiles kernels for AMD and reads the result; ROCm's own clang under /opt/rocm is preferred where it is.
gpu=("?clang-19" "?lld-19" "?llvm-19" "?llvm-19-dev" "?rocm-device-libs|rocm-device-libs-21|rocm-device-libs-17")
[ ! -x "${ROCM_PATH:-/opt/rocm}/llvm/bin/clang++" ] || gpu=()

say() { printf 'install_deps: %s\n' "$*" >&2; }

wanted=()
for group in "${@:-build}"; do
  case "$group" in
    build) wanted+=("${build[@]}") ;;
    python) wanted+=("${python[@]}") ;;
    fuzz) wanted+=("${fuzz[@]}") ;;
    page) wanted+=("${page[@]}") ;;
    packages) wanted+=("${packages[@]}") ;;
    gpu) wanted+=("${gpu[@]}") ;;
    *) say "unknown group '$group': expected build, python, fuzz, gpu, page or packages"; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  say "this is not a Debian or Ubuntu system. Install the equivalents of: ${wanted[*]}"
  say "and run the same command again with ROCM_SD_SKIP_DEPS=1 (see INSTALL.md)."
  exit "$([ -n "${ROCM_SD_SKIP_DEPS:-}" ] && echo 0 || echo 1)"
fi

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]; }
any_installed() {
  local name
  for name in ${1//|/ }; do if installed "$name"; then return 0; fi; done
  return 1
}

missing=()
for choice in "${wanted[@]}"; do any_installed "${choice#\?}" || missing+=("$choice"); done
[ "${#missing[@]}" -gt 0 ] || exit 0
if [ -n "${ROCM_SD_SKIP_DEPS:-}" ]; then
  say "not installed, and left so because ROCM_SD_SKIP_DEPS is set: ${missing[*]}"
  exit 0
fi

root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    say "missing packages: ${missing[*]}"
    say "installing them needs root, and there is no sudo here. As root: apt-get install ${missing[*]%%|*}"
    exit 1
  fi
  root=(sudo)
fi
as_root() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive "$@"; }

say "installing: ${missing[*]}"
as_root apt-get update -qq
names=()
for choice in "${missing[@]}"; do
  found=""
  optional=$([ "${choice#\?}" = "$choice" ] || echo yes)
  choice=${choice#\?}
  for name in ${choice//|/ }; do
    if [ -n "$(apt-cache show "$name" 2>/dev/null | head -n 1)" ]; then found=$name; break; fi
  done
  if [ -z "$found" ] && [ -n "$optional" ]; then
    say "the package lists know none of: ${choice//|/, }; what needs it is left out here"
    continue
  fi
  if [ -z "$found" ]; then say "the package lists know none of: ${choice//|/, }"; exit 1; fi
  names+=("$found")
done
[ "${#names[@]}" -gt 0 ] || exit 0
as_root apt-get install -y -q --no-install-recommends "${names[@]}"
