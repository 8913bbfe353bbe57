#!/usr/bin/env bash
# Unpacks the vendors' own headers, by package name, into a folder that only compilers look at; nothing is installed.
#   tools/fetch/fetch_vendor_headers.sh DESTINATION [PYTHON]
# ROCm's are in Debian's newer suites (tools/fetch/fetch_rocm_packages.sh); NVIDIA's are in the wheels that
# PyTorch uses. DESTINATION/rocm holds rocblas, hipblaslt and miopen, DESTINATION/nvidia cublasLt.h and cudnn_graph.h.
set -euo pipefail
destination=${1:?usage: fetch_vendor_headers.sh DESTINATION [PYTHON]}
python=${2:-python3}
mkdir -p "$destination"
destination=$(cd "$destination" && pwd)

fetch_rocm() {
  local tools; tools=$(cd "$(dirname "$0")" && pwd)
  "$tools/fetch/fetch_rocm_packages.sh" "$destination/rocm" librocblas-dev libhipblaslt-dev libmiopen-dev libhipblas-common-dev \
    libamdhip64-dev
}

fetch_nvidia() {
  local wheels=$destination/wheels
  mkdir -p "$wheels" "$destination/nvidia.new"
  "$python" -m pip download --disable-pip-version-check -q --no-deps -d "$wheels" nvidia-cublas nvidia-cudnn-cu13 nvidia-cuda-crt \
    nvidia-cuda-runtime nvidia-cuda-cccl
  for wheel in "$wheels"/*.whl; do
    "$python" - "$wheel" "$destination/nvidia.new" <<'P'
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        if "/include/" in name and not name.endswith("/"):
            to = os.path.join(sys.argv[2], name.split("/include/", 1)[1])
            os.makedirs(os.path.dirname(to), exist_ok=True)
            with open(to, "wb") as file:
                file.write(wheel.read(name))
P
  done
  mv "$destination/nvidia.new" "$destination/nvidia"
  rm -rf "$wheels"
}

fetch_rocm
[ -e "$destination/nvidia" ] || fetch_nvidia
test -e "$destination/rocm/usr/include/hipblaslt/hipblaslt.h" && test -e "$destination/nvidia/cublasLt.h"
