#!/usr/bin/env bash
# Debian packages that some tests use for a real peer: Chromium draws the report, scontrol expands node lists, ip and
# tc make the lab.
# Without them those tests say why they skip. Needs root; does nothing where everything is there.
set -euo pipefail
missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v scontrol >/dev/null || missing+=(slurm-client)
{ command -v ip && command -v tc; } >/dev/null || missing+=(iproute2)
# A local Slurm; its srun --mpi=pmix opens libpmix.so, which is in the -dev package.
[ -x /usr/sbin/slurmctld ] || missing+=(slurmctld)
[ -x /usr/sbin/slurmd ] || missing+=(slurmd)
[ -x /usr/sbin/munged ] || missing+=(munge)
ls /usr/lib/*/pmix2/lib/libpmix.so >/dev/null 2>&1 || missing+=(libpmix-dev)
[ ${#missing[@]} -eq 0 ] && exit 0
export DEBIAN_FRONTEND=noninteractive
apt-get -qq -o DPkg::Lock::Timeout=300 update
apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "${missing[@]}" >/dev/null
