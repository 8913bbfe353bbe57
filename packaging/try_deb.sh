#!/usr/bin/env bash
# Installs the Debian packages in a fresh root and uses them there: an image, a program built against the -dev package, the
# service under systemd, removal. Needs root, debootstrap and a network; the service also systemd-container (systemd-nspawn).
#
#   packaging/try_deb.sh FOLDER_OF_DEBS [SUITE]        (SUITE: of this machine, as /etc/os-release names it)
set -euo pipefail
debs=$(cd "$1" && pwd)
. /etc/os-release
suite=${2:-$VERSION_CODENAME}
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ "$(id -u)" = 0 ] || { echo "try_deb: needs root, for chroot"; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/rocm-sd-try-XXXXXX")
root=$work/root
container=""
leave() {
  if [ -n "$container" ]; then kill "$container" 2>/dev/null || true; wait "$container" 2>/dev/null || true; fi
  if mountpoint -q "$root/proc"; then umount "$root/proc"; fi
  rm -rf "$work"
}
trap leave EXIT
say() { printf 'try_deb: %s\n' "$*"; }
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive OMP_WAIT_POLICY=passive LC_ALL=C.UTF-8 "$@"; }
as_service() { inside setpriv --reuid rocm-sd --regid rocm-sd --init-groups "$@"; }
is_png() { [ "$(head -c 8 "$1" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ]; }

say "a fresh $suite in $root"
debootstrap --variant=minbase "$suite" "$root" ${MIRROR:-} >"$work/debootstrap.log" || { tail -n 20 "$work/debootstrap.log"; exit 1; }
mount -t proc proc "$root/proc"
mkdir "$root/debs"
cp "$debs"/*.deb "$root/debs/"
inside sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends /debs/*.deb' >"$work/apt.log" 2>&1 || { tail -n 40 "$work/apt.log"; exit 1; }
say "installed: $(inside dpkg-query -W -f '${Package} ${Version}, ' 'rocm-sd*')and $(grep -c '^Setting up' "$work/apt.log") packages in all"
! inside sh -c 'command -v cc cmake python3' >/dev/null || { say "a compiler or Python came along"; exit 1; }

inside rocm-sd --version
inside rocm-sd devices
as_service rocm-sd generate --model /usr/share/rocm-sd/models/demo --prompt "a red apple on a white background" --seed 1 --steps 8 \
  --cfg-scale 4 --quiet -o /var/lib/rocm-sd/apple.png
is_png "$root/var/lib/rocm-sd/apple.png"
[ -z "${KEEP_PICTURE:-}" ] || cp "$root/var/lib/rocm-sd/apple.png" "$KEEP_PICTURE"
say "drawn as the service's user: $(stat -c %s "$root/var/lib/rocm-sd/apple.png") bytes"

say "a program against rocm-sd-dev"
inside apt-get install -y -qq --no-install-recommends gcc libc6-dev pkg-config >>"$work/apt.log" 2>&1
cp "$repository/examples/generate.c" "$root/tmp/"
inside sh -c 'cc /tmp/generate.c $(pkg-config --cflags --libs rocm_sd) -o /tmp/generate && /tmp/generate /usr/share/rocm-sd/models/demo "a green frog" /tmp/frog.png' >/dev/null
is_png "$root/tmp/frog.png"

if command -v systemd-nspawn >/dev/null; then
  say "the service, under systemd in a container"
  port=${TRY_PORT:-17860}
  inside apt-get install -y -qq --no-install-recommends systemd systemd-sysv >>"$work/apt.log" 2>&1
  sed -i "s|^SERVE_OPTIONS=.*|SERVE_OPTIONS=\"--model /usr/share/rocm-sd/models/demo --port $port --journal /var/lib/rocm-sd/journal\"|" "$root/etc/default/rocm-sd"
  inside systemctl enable rocm-sd.service 2>/dev/null
  umount "$root/proc"
  systemd-nspawn --quiet --directory "$root" --register=no --keep-unit --boot >"$work/boot.log" 2>&1 </dev/null &
  container=$!
  url=http://127.0.0.1:$port
  for _ in $(seq 120); do curl -fs -o /dev/null "$url/ready" && break; sleep 0.5; done
  curl -fsS "$url/ready" >/dev/null || { tail -n 40 "$work/boot.log"; tail -n 20 "$root/var/log/"* 2>/dev/null; exit 1; }
  curl -fsS "$url/sdapi/v1/txt2img" -H 'Content-Type: application/json' -d '{"prompt": "a blue fish", "steps": 8, "seed": 2}' >"$work/answer.json"
  sed -n 's/.*"images":\["\([^"]*\)".*/\1/p' "$work/answer.json" | base64 -d >"$work/fish.png"
  is_png "$work/fish.png"
  curl -fsS -o "$work/page.html" "$url/"
  grep -q '<title>rocm-sd' "$work/page.html"
  supervisor=$(pgrep -f "^/usr/bin/rocm-sd serve --model /usr/share/rocm-sd/models/demo --port $port" | head -n 1)
  grep -E '^(NoNewPrivs|Seccomp|CapEff):' "/proc/$supervisor/status"
  grep -q '^NoNewPrivs:.1' "/proc/$supervisor/status" && grep -q '^Seccomp:.2' "/proc/$supervisor/status"
  grep -q '^CapEff:.0*$' "/proc/$supervisor/status"
  test -s "$root/var/lib/rocm-sd/journal"
  say "the service drew over HTTP: $(stat -c %s "$work/fish.png") bytes, page included"
  kill -TERM "$container"  # a clean halt: SIGTERM is a power-off request
  wait "$container" || true
  container=""
  mount -t proc proc "$root/proc"
else
  say "no systemd-nspawn (systemd-container): the service itself was not started"
fi

inside sh -c "apt-get purge -y -qq 'rocm-sd*'" >>"$work/apt.log" 2>&1
left=$(cd "$root" && find usr etc -name '*rocm-sd*' -o -name '*rocm_sd*')
[ -z "$left" ] || { say "left behind after purge: $left"; exit 1; }
say "purged: nothing is left in /usr and /etc"
say "done: $suite"
