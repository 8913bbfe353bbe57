#!/usr/bin/env bash
# Unpacks packages of Debian's newer suites, by name, into a folder that only compilers look at; nothing is installed.
#   tools/fetch/fetch_rocm_packages.sh DESTINATION PACKAGE...
# The newer suites' package lists are kept apart from the system's. DESTINATION is made whole or not at all.
set -euo pipefail
destination=${1:?usage: fetch_rocm_packages.sh DESTINATION PACKAGE...}
shift
[ ! -e "$destination" ] || exit 0
work=$destination.part
rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs" "$work/tree"
work=$(cd "$work" && pwd)

# The mirror that this system uses.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
  awk '/\/debian\/?$/ && !first {first = $0} END {print first}')
if [ -z "$mirror" ]; then
  echo "fetch_rocm_packages.sh: this system's package lists name no mirror of Debian (apt-get update?)" >&2
  exit 1
fi
for suite in sid experimental; do
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
done >"$work/sources.list"
apt=(apt-get -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists"
  -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root)
"${apt[@]}" update
(cd "$work/debs" && "${apt[@]}" download "${@/%//experimental}")
for package in "$work"/debs/*.deb; do dpkg -x "$package" "$work/tree"; done
mv "$work/tree" "$destination"
rm -rf "$work"
