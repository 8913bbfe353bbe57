#!/usr/bin/env bash
# Installs the wheel with pip in a fresh root that has Python and no compiler, and draws there: with the engine in Python, with the
# program `rocm-sd`, and over HTTP. Needs root, debootstrap and a network for Debian's packages and PyTorch.
#
#   packaging/try_wheel.sh WHEEL [SUITE]
#
# PIP_ARGS goes to pip (an index of PyTorch's CPU wheels); WHEELS is a folder of wheels to look at first.
set -euo pipefail
wheel=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
. /etc/os-release
suite=${2:-$VERSION_CODENAME}
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ "$(id -u)" = 0 ] || { echo "try_wheel: needs root, for chroot"; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/rocm-sd-try-XXXXXX")
root=$work/root
server=""
leave() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  for place in wheels proc; do if mountpoint -q "$root/$place"; then umount "$root/$place"; fi; done
  rm -rf "$work"
}
trap leave EXIT
say() { printf 'try_wheel: %s\n' "$*"; }
enter=(chroot "$root" /usr/bin/env -i PATH=/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive OMP_WAIT_POLICY=passive LC_ALL=C.UTF-8)
inside() { "${enter[@]}" "$@"; }

say "a fresh $suite in $root"
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$root" ${MIRROR:-} >"$work/debootstrap.log" || { tail -n 20 "$work/debootstrap.log"; exit 1; }
mount -t proc proc "$root/proc"
mkdir "$root/wheels" "$root/wheel"
[ -z "${WHEELS:-}" ] || mount --bind "$WHEELS" "$root/wheels"
cp "$wheel" "$root/wheel/"
cp -r "$repository/models/demo" "$root/demo"
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
! inside sh -c 'command -v cc gcc cmake ninja' || { say "a compiler came along"; exit 1; }
inside python3 -m venv /venv
inside pip install -q --find-links /wheels ${PIP_ARGS:-} "/wheel/$(basename "$wheel")"
say "installed: $(inside pip list 2>/dev/null | awk 'NR > 2 {printf "%s %s, ", $1, $2}')"

inside rocm-sd --version
inside rocm-sd generate --model /demo --prompt "a red apple on a white background" --seed 1 --steps 8 --cfg-scale 4 --quiet -o /tmp/program.png
inside python - <<'CHECK'
import pathlib
import numpy as np, torch, rocm_sd_ops
from PIL import Image
from rocm_sd_ops.engine import ROCmOptimizedPipeline, engine_version
package = pathlib.Path(rocm_sd_ops.__file__).parent
assert str(package).startswith("/venv/"), package
q = torch.randn(1, 2, 77, 40)
want = torch.nn.functional.scaled_dot_product_attention(q.double(), q.double(), q.double())
assert (rocm_sd_ops.attention(q, q, q) - want).abs().max() < 1e-5
assert rocm_sd_ops.explain("attention", q, q, q).kernel != "pytorch"
with ROCmOptimizedPipeline("/demo", device="cpu") as pipe:
    image = pipe("a red apple on a white background", num_inference_steps=8, guidance_scale=4, seed=1).images[0]
drawn = np.asarray(Image.open("/tmp/program.png"))
print("engine", engine_version(), "with PyTorch", torch.__version__, "draws", drawn.shape, "- equal to the program's:", np.array_equal(np.asarray(image), drawn))
assert drawn.shape == (128, 128, 3) and drawn.std() > 20
kernels = sorted(p.name for p in (package / "lib").glob("*.rsk"))
print("kernels:", *kernels)
CHECK
[ -z "${KEEP_PICTURE:-}" ] || cp "$root/tmp/program.png" "$KEEP_PICTURE"
port=${TRY_PORT:-17861}
"${enter[@]}" rocm-sd serve --model /demo --port "$port" >"$work/serve.log" 2>&1 &  # no function: $! is the server then
server=$!
for _ in $(seq 120); do curl -fs -o /dev/null "http://127.0.0.1:$port/ready" && break; sleep 0.5; done
curl -fsS -o "$work/page.html" "http://127.0.0.1:$port/"  # whole: a pipe that is closed early makes curl fail
grep -q '<title>rocm-sd' "$work/page.html" || { cat "$work/serve.log"; exit 1; }
curl -fsS "http://127.0.0.1:$port/sdapi/v1/txt2img" -H 'Content-Type: application/json' -d '{"prompt": "a blue fish", "steps": 4}' >"$work/answer.json"
grep -q '"images":\["iVBOR' "$work/answer.json"
kill -TERM "$server" || { cat "$work/serve.log"; exit 1; }  # it had ended, and another one answered
wait "$server"
server=""
say "served the page and drew over HTTP"
say "done: $suite, $(basename "$wheel")"
