#!/usr/bin/env bash
# Unpacks oneDNN 3 built for GNU OpenMP, by package name, into a folder that ROCM_SD_DNNL_ROOT can point at.
#   tools/fetch/fetch_onednn3.sh DESTINATION [PYTHON]
# Of the packages on PyPI only this pair fits: the plain `onednn` of later years is built for SYCL and TBB, which would
# bring a second thread pool into the process.
set -euo pipefail
destination=${1:?usage: fetch_onednn3.sh DESTINATION [PYTHON]}
python=${2:-python3}
version=2023.2.0
if [ -e "$destination/lib/libdnnl.so.3" ] && [ -e "$destination/include/dnnl.hpp" ]; then exit 0; fi
mkdir -p "$destination"
"$python" -m pip install --disable-pip-version-check -q --no-deps --ignore-installed --prefix "$destination" \
  "onednn-cpu-gomp==$version" "onednn-devel-cpu-gomp==$version"
test -e "$destination/lib/libdnnl.so.3" && test -e "$destination/include/dnnl.hpp"
