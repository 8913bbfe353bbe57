#!/usr/bin/env bash
# Copies programs, the shared libraries that they need (all but the C library), the kernel archives and the shipped files into one
# folder, so that another machine of the same processor type can run them: OUT/run PROGRAM ARGS...
#
#   tools/pack/bundle_programs.sh OUT BUILD PROGRAM...      tools/pack/bundle_programs.sh out/gpu build/cpu build/cpu/tests/gpu_tests/test_gpu_*
set -euo pipefail

[ $# -ge 3 ] || { echo "usage: $0 OUT BUILD PROGRAM..." >&2; exit 2; }
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=$1 build=$2
shift 2
# The layout of an installed prefix, where the programs look for their files (src/base/paths.hpp).
mkdir -p "$out/bin" "$out/lib/rocm-sd" "$out/share/rocm-sd"
for program in "$@"; do
  cp "$program" "$out/bin/"
  ldd "$program" | awk '$2 == "=>" {print $3}' | grep -vE "/(libc|libm|libdl|libpthread|librt|libstdc\\+\\+|libgcc_s|ld-linux[^/]*)\\.so" | xargs -r cp -Lut "$out/lib"
done
archives=("$build"/lib/kernels_*.rsk)
if [ -e "${archives[0]}" ]; then cp -u "${archives[@]}" "$out/lib/rocm-sd/"; else echo "$0: $build/lib has no kernel archives: the bundle has none" >&2; fi
cp -ru "$repository"/share/{counts,font,tuning,vocab} "$out/share/rocm-sd/"
cp -u "$repository/LICENSE" "$repository/NOTICE" "$out/"
cat >"$out/run" <<'RUN'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
program=$1
shift
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/bin/$program" "$@"
RUN
chmod +x "$out/run"
