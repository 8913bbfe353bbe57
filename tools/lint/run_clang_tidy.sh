#!/usr/bin/env bash
# clang-tidy over the sources of a configured build, and over the GPU kernels as code of one AMD target of their family.
#   tools/lint/run_clang_tidy.sh CLANG_TIDY BUILD JOBS changed|all
# "changed": files that differ from the branch main (from the last commit, on main itself) or are not yet committed.
set -euo pipefail
tidy=$1 build=$2 jobs=$3 scope=$4
if [ "$scope" = all ]; then
  mapfile -t files < <(git ls-files 'src/*.cpp' 'apps/*.cpp' 'src/*.hip' 'examples/*.hip')
else
  base=$(git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
  if [ "$base" = "$(git rev-parse HEAD)" ]; then base=$(git rev-parse -q --verify HEAD~1 || git rev-parse HEAD); fi
  mapfile -t files < <({ git diff --name-only --diff-filter=d "$base"; git ls-files -o --exclude-standard; } |
    grep -E '^(src|apps)/.*\.cpp$|^(src|examples)/.*\.hip$' | sort -u)
fi
host=() kernels=() left_out=0
for file in "${files[@]}"; do
  case "$file" in
    *.sm_*.hip | */ck_*.hip) left_out=$((left_out + 1)) ;;  # PTX, or headers of Composable Kernel
    *.hip) kernels+=("$file") ;;
    *) host+=("$file") ;;
  esac
done
echo "clang-tidy: ${#host[@]} files, ${#kernels[@]} kernel files; not checked: $left_out for NVIDIA or over Composable Kernel"
status=0
if [ "${#host[@]}" -gt 0 ]; then
  printf '%s\0' "${host[@]}" | xargs -0 -n 1 -P "$jobs" "$tidy" -p "$build" --quiet --warnings-as-errors='*' \
    --extra-arg=-Wno-unknown-warning-option || status=1
fi
# No compile_commands.json knows these: the flags are those of cmake/archs.cmake. Names with two underscores are the device library's,
# and buffer descriptors go by value, in registers.
check_kernel() {
  local target=gfx1100
  case "$2" in *.rdna4.hip | *.gfx12*.hip) target=gfx1201 ;; *.cdna3.hip | *.gfx9*.hip) target=gfx942 ;; esac
  "$1" --quiet --warnings-as-errors='*' \
    --checks=-bugprone-reserved-identifier,-performance-unnecessary-value-param "$2" -- -x hip "--offload-arch=$target" --offload-device-only -nogpuinc -nogpulib \
    -std=c++20 -DNDEBUG -Isrc
}
export -f check_kernel
if [ "${#kernels[@]}" -gt 0 ]; then
  printf '%s\0' "${kernels[@]}" | xargs -0 -n 1 -P "$jobs" bash -c 'check_kernel "$@"' _ "$tidy" || status=1
fi
exit "$status"
