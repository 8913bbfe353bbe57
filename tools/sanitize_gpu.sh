#!/bin/bash
# Runs the GPU tests of the kernels under NVIDIA's compute-sanitizer: memcheck and racecheck (or the tools named), on small shapes.
#
#   tools/sanitize_gpu.sh [build folder] [tool...]       COMPUTE_SANITIZER names the program, GTEST_FILTER narrows the tests
#
# Exit code 0 only if every tool ran and found nothing.
set -eu -o pipefail

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

# Large problems take hours under a tool that watches every access, and meet no other code.
export ROCM_SD_TEST_SMALL=1 GTEST_FILTER=${GTEST_FILTER:--*Full*:*Random*}

failed=()
for tool in "${tools[@]}"; do
  log=$build/sanitize_$tool.log
  echo "== $tool"
  if "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 "$build/tests/gpu_tests/test_gpu_kernels" --gtest_brief=1 >"$log" 2>&1
  then
    # A program that never reached the device would be clean too.
    if grep -q 'PASSED.* [1-9][0-9]* test' "$log" && grep -q '^========= .*SUMMARY: 0 ' "$log"; then
      tail -n 3 "$log"
      continue
    fi
  fi
  failed+=("$tool")
  grep -m 40 -e '=========' -e 'FAILED' "$log" || tail -n 20 "$log"
  echo "$tool: see $log"
done
if ((${#failed[@]})); then
  echo "compute-sanitizer: ${failed[*]} not clean" >&2
  exit 1
fi
