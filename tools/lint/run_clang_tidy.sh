#!/usr/bin/env bash
# clang-tidy over the sources of a configured build.
#   tools/lint/run_clang_tidy.sh CLANG_TIDY BUILD JOBS changed|all
# "changed": files that differ from the branch main (from the last commit, on main itself) or are not yet committed.
set -euo pipefail
tidy=$1 build=$2 jobs=$3 scope=$4
if [ "$scope" = all ]; then
  mapfile -t files < <(git ls-files 'src/*.cpp' 'apps/*.cpp')
else
  base=$(git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
  if [ "$base" = "$(git rev-parse HEAD)" ]; then base=$(git rev-parse -q --verify HEAD~1 || git rev-parse HEAD); fi
  mapfile -t files < <({ git diff --name-only --diff-filter=d "$base"; git ls-files -o --exclude-standard; } |
    grep -E '^(src|apps)/.*\.cpp$' | sort -u)
fi
echo "clang-tidy: ${#files[@]} files"
[ "${#files[@]}" -gt 0 ] || exit 0
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$jobs" "$tidy" -p "$build" --quiet --warnings-as-errors='*' \
  --extra-arg=-Wno-unknown-warning-option
