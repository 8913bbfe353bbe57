#!/usr/bin/env bash
# Runs every fuzz_* program of a build for a few seconds each; a finding is kept in BUILD/findings and fails the run.
#   tests/run_fuzzers.sh BUILD [SECONDS]
set -euo pipefail
build=${1:?usage: run_fuzzers.sh BUILD [SECONDS]}
seconds=${2:-30}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$build/findings"
shopt -s nullglob
targets=("$build"/tests/fuzz/fuzz_*)
count=0
for target in "${targets[@]}"; do
  [ -f "$target" ] && [ -x "$target" ] || continue
  name=$(basename "$target")
  corpus="$build/corpus/$name"
  mkdir -p "$corpus"
  seeds="$root/tests/fuzz/corpus/${name#fuzz_}"
  args=("$corpus")
  if [ -d "$seeds" ]; then args+=("$seeds"); fi
  echo "== $name: $seconds s"
  "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
    -verbosity=0 -artifact_prefix="$build/findings/$name-" "${args[@]}"
  count=$((count + 1))
done
if [ "$count" -eq 0 ]; then echo "run_fuzzers: no fuzz_* program in $build/tests/fuzz" >&2; exit 1; fi
echo "$count fuzz targets, $seconds s each: no finding"
