#!/usr/bin/env bash
# Packs what benchmarks/gpu_record.py needs on a GPU machine without network: built programs, the shared libraries that they
# need and PyTorch does not bring, kernel archives, the Python package, the commit, and wheels of pure Python.
#
#   benchmarks/pack_gpu_record.sh OUT.tar.xz [BUILD] [TARGET] [WHEEL...]
#   benchmarks/pack_gpu_record.sh out/gpu-record.tar.xz build/cpu sm_90 diffusers-*.whl
#
# Build first: cmake --preset cpu && cmake --build build/cpu --target rocm-sd bench_model_gpu rocm_sd kernels_sm_90, make torch-ops
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,8p' "$0" >&2; exit 2; }
out=$1 build=${2:-build/cpu} target=${3:-sm_90}
shift $(($# < 3 ? $# : 3))
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for file in "$build/apps/cli/rocm-sd" "$build/tests/gpu_tests/bench_model_gpu" "$build/lib/librocm_sd_torch.so" "$build/librocm_sd.so" \
            "$build/lib/kernels_$target.rsk"; do
  if [ ! -e "$file" ]; then echo "pack_gpu_record: $file is not built: what needs it will be left out" >&2; continue; fi
  cp -L "$file" "$folder/"
  case "$file" in *.rsk) continue ;; esac
  strip --strip-unneeded "$folder/${file##*/}" 2>/dev/null || true
  # Not the C library, and nothing of PyTorch or CUDA: those are the machine's.
  ldd "$file" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|ld-linux[^/]*|libtorch[^/]*|libc10[^/]*|libcu[^/]*|libnv[^/]*)\.so|/(torch|nvidia)/lib' |
    while read -r library; do cp -Lu "$library" "$folder/"; done
done
# The Python package of the same commit: its structs are those of librocm_sd.so.
mkdir -p "$folder/python/rocm_sd_ops"
cp -r "$(dirname "$0")"/../python/rocm_sd_ops/. "$folder/python/rocm_sd_ops/"
rm -rf "$folder/python/rocm_sd_ops/lib" && find "$folder/python" -name __pycache__ -prune -exec rm -rf {} +
if [ $# -gt 0 ]; then mkdir "$folder/wheels" && cp "$@" "$folder/wheels/"; fi
sed -nE 's/^const char\* const kBuiltFromCommit = "(.*)";$/\1/p' "$build/src/measurement/commit.cpp" >"$folder/commit"
mkdir -p "$(dirname "$out")"
tar -C "$folder" -cf - . | xz -T0 -4 >"$out"
echo "$out: $(du -h "$out" | cut -f1), commit $(cat "$folder/commit")"; tar -tf "$out" | sort
