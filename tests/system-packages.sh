#!/usr/bin/env bash
# Debian packages that some tests use for a real peer: Chromium draws the report, scontrol expands node lists.
# Without them those tests say why they skip. Needs root; does nothing where everything is there.
set -euo pipefail
missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v scontrol >/dev/null || missing+=(slurm-client)
[ ${#missing[@]} -eq 0 ] && exit 0
export DEBIAN_FRONTEND=noninteractive
apt-get -qq -o DPkg::Lock::Timeout=300 update
apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "${missing[@]}" >/dev/null
