#!/usr/bin/env bash
# Profiles a command with what the machine has: rocprofv3, rocprof, nsys or ncu; without any, with rocm-sd's own profiler.
#   benchmarks/profile.sh [--tool rocprofv3|rocprof|nsys|ncu|own] [--out FOLDER] -- build/cuda/apps/cli/rocm-sd generate ...
# Ranges of ops and stages are in the traces (roctx and NVTX, ROCM_SD_RANGES). ncu slows each kernel down many times: give it
# few steps.
set -euo pipefail

die() { echo "profile.sh: $*" >&2; exit 2; }

tool="" out="profile"
while [ $# -gt 0 ]; do
  case "$1" in
    --tool) [ $# -gt 1 ] || die "--tool needs a name"; tool=$2; shift 2 ;;
    --out) [ $# -gt 1 ] || die "--out needs a folder"; out=$2; shift 2 ;;
    --) shift; break ;;
    -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) die "unknown argument $1: expected --tool, --out, then -- and a command" ;;
  esac
done
[ $# -gt 0 ] || die "expected -- and a command"

find_tool() {
  local name
  for name in rocprofv3 rocprof nsys ncu; do
    command -v "$name" >/dev/null && { echo "$name"; return; }
  done
  echo own
}
[ -n "$tool" ] || tool=$(find_tool)
[ "$tool" = own ] || command -v "$tool" >/dev/null || die "$tool is not installed (found: $(find_tool))"
export ROCM_SD_RANGES=${ROCM_SD_RANGES-1}
mkdir -p "$out"
echo "profile.sh: $tool, results in $out" >&2

case "$tool" in
  rocprofv3) rocprofv3 --kernel-trace --marker-trace --stats --output-directory "$out" --output-format csv -- "$@" ;;
  rocprof) rocprof --stats --roctx-trace -o "$out/results.csv" "$@" ;;
  nsys) nsys profile --trace cuda,nvtx --force-overwrite true -o "$out/trace" "$@" && nsys stats --report cuda_gpu_kern_sum "$out/trace.nsys-rep" ;;
  ncu) ncu --set basic --nvtx --csv --log-file "$out/ncu.csv" "$@" ;;
  own)
    case " $* " in *" generate "*) ;; *) die "own: only \`rocm-sd generate\` profiles itself" ;; esac
    "$@" --profile --trace "$out/trace.json" 2>&1 | tee "$out/table.txt" ;;
  *) die "unknown tool $tool" ;;
esac
