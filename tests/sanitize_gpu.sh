#!/bin/bash
# Runs the GPU tests of the kernels under NVIDIA's compute-sanitizer: memcheck and racecheck (or the tools named), on small shapes.
#
#   tests/sanitize_gpu.sh [--few] [--jobs N] [build folder] [tool...]
#
# --few     every configuration of every kernel that uses LDS, in f16 only, and nothing twice: racecheck watches each access to LDS
#           and takes many minutes for all tests; bf16 and f32 run the same code with other conversions
# --jobs N  the tests in N processes beside each other
#
# COMPUTE_SANITIZER names the program, GTEST_FILTER narrows the tests. Exit code 0 only if every tool ran and found nothing.
set -eu -o pipefail

# Large problems take hours under a tool that watches every access, and meet no other code.
tests='-*Full*:*Random*'
jobs=1
while (($#)); do
  case $1 in
    --few)
      tests='*/f16:*/f8e4m3_f16:GpuStep.*:GpuNorm.*:Examples.*'
      # Other shapes, graphs and views of kernels that the others above launch too.
      tests+=':-*Full*:*Random*:*Unaligned*:*Replays*:*RunsInAGraph*:*ThroughTheOp*:*TheSameBits*:*HoldsFilters*:*ShapesOfModels*'
      tests+=':*DequantizesToTheHosts*:*Masks*:*HiddenRows*:*NoKeys*:*NanStays*:*TakesThirds*:*ChoosesProducts*'
      ;;
    --jobs) jobs=$2; shift ;;
    *) break ;;
  esac
  shift
done
build=${1:-build/cpu}
shift $(($# > 0 ? 1 : 0))
tools=("$@")
((${#tools[@]})) || tools=(memcheck racecheck)

sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || true)}
if [[ -z $sanitizer ]]; then
  for candidate in /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda-*/bin/compute-sanitizer; do
    [[ -x $candidate ]] && sanitizer=$candidate
  done
fi
[[ -n $sanitizer ]] || { echo "sanitize_gpu.sh: there is no compute-sanitizer here; it is part of NVIDIA's CUDA toolkit" >&2; exit 3; }

export ROCM_SD_TEST_SMALL=1 GTEST_FILTER=${GTEST_FILTER:-$tests} GTEST_TOTAL_SHARDS=$jobs
((jobs == 1)) || export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(((($(nproc) + jobs - 1)) / jobs))}

# shard -> its log; 0 if the tool found nothing in it
run() {
  local log=$build/sanitize_$1.$2.log
  GTEST_SHARD_INDEX=$2 "$sanitizer" --tool "$1" --error-exitcode 9 --print-limit 20 \
    "$build/tests/gpu_tests/test_gpu_kernels" --gtest_brief=1 >"$log" 2>&1 || return
  # A program that never reached the device would be clean too.
  grep -q 'PASSED.* [1-9][0-9]* test' "$log" && grep -q '^========= .*SUMMARY: 0 ' "$log"
}

failed=()
for tool in "${tools[@]}"; do
  echo "== $tool"
  shards=()
  for ((shard = 0; shard < jobs; ++shard)); do
    run "$tool" "$shard" &
    shards+=($!)
  done
  clean=1
  for ((shard = 0; shard < jobs; ++shard)); do
    log=$build/sanitize_$tool.$shard.log
    if wait "${shards[shard]}"; then
      tail -n 3 "$log"
      continue
    fi
    clean=0
    grep -m 40 -e '=========' -e 'FAILED' "$log" || tail -n 20 "$log"
    echo "$tool: see $log"
  done
  ((clean)) || failed+=("$tool")
done
if ((${#failed[@]})); then
  echo "compute-sanitizer: ${failed[*]} not clean" >&2
  exit 1
fi
