#!/usr/bin/env bash
# Copies programs, the shared libraries that they need (all but the C library) and the kernel archives into one folder, so
# that another machine of the same processor type can run them: OUT/run PROGRAM ARGS...
#
#   tools/pack/bundle_programs.sh OUT BUILD PROGRAM...      tools/pack/bundle_programs.sh out/gpu build/cpu build/cpu/tests/gpu_tests/test_gpu_*
set -euo pipefail

[ $# -ge 3 ] || { echo "usage: $0 OUT BUILD PROGRAM..." >&2; exit 2; }
out=$1 build=$2
shift 2
mkdir -p "$out"
for program in "$@"; do
  cp "$program" "$out/"
  ldd "$program" | awk '$2 == "=>" {print $3}' | grep -vE "/(libc|libm|libdl|libpthread|librt|libstdc\\+\\+|libgcc_s|ld-linux[^/]*)\\.so" | xargs -r cp -Lut "$out"
done
cp -u "$build"/lib/kernels_*.rsk "$out/"
cat >"$out/run" <<'RUN'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
program=$1
shift
LD_LIBRARY_PATH="$here${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/$program" "$@"
RUN
chmod +x "$out/run"
