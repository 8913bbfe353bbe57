#!/usr/bin/env bash
# The headers of AMD's Composable Kernel and of the HIP that fits them, as ROCM_SD_CK_ROOT takes them, from Debian.
#   tools/fetch/fetch_ck_headers.sh DESTINATION
# python3-ck4inductor holds the headers without the compiled instances of libcomposable-kernel-dev (0.6 MB, not 196) and
# without its config.h, which says what those instances were compiled for. Neither package has ck_tile.
set -euo pipefail
destination=${1:?usage: fetch_ck_headers.sh DESTINATION}
[ ! -e "$destination/include/ck/config.h" ] || exit 0
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$destination"
"$here/fetch_rocm_packages.sh" "$destination/packages" python3-ck4inductor libamdhip64-dev
packages=$destination/packages/usr
rm -rf "$destination/include"
mkdir -p "$destination/include" "$destination/share/hip"
cp -r "$packages/include/hip" "$destination/include/"
cp -r "$packages"/lib/python3/dist-packages/ck4inductor/include/ck "$destination/include/"
# What tells clang that this is a HIP: it includes its own wrappers of the standard headers only then.
sed -n 's/^#define \(HIP_VERSION_\(MAJOR\|MINOR\|PATCH\)\) \([0-9]*\).*/\1=\3/p' "$packages/include/hip/hip_version.h" \
  >"$destination/share/hip/version"
for type in FP16 BF16 FP32; do echo "#define CK_ENABLE_$type ON"; done >"$destination/include/ck/config.h"
printf '#define %s ON\n' CK_USE_XDL CK_USE_WMMA >>"$destination/include/ck/config.h"
