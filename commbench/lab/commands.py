"""`ip` and `tc`, many lines at a time."""

import json
import shutil
import subprocess

from commbench.errors import MeasureError

_REMEDIES = {
    "Operation not permitted": "in a container a lab needs CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged)",
    "Unknown device type": "the kernel needs veth, bridge and tun (modprobe veth bridge tun)",
    "qdisc": "the kernel needs HTB and its filter (modprobe sch_htb cls_u32)",
}


def need(*programs: str) -> None:
    """Raise MeasureError where one of `programs` is not installed."""
    for program in programs:
        if shutil.which(program) is None:
            raise MeasureError(f"a lab needs `{program}`, which is not here: install iproute2 (apt install iproute2)")


def batch(program: str, lines: list[str], namespace: str | None = None) -> None:
    """Run `lines` by one `ip` or `tc`, in `namespace`. Raises MeasureError with its words for the first that fails."""
    place = ["-n", namespace] if namespace else []
    done = subprocess.run(
        [program, *place, "-batch", "-"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        close_fds=False,  # it holds our lock too: should we be killed, the next call waits until it has ended
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["it gave no reason"]
        remedy = next((f"; {remedy}" for words, remedy in _REMEDIES.items() if words in done.stderr), "")
        raise MeasureError(f"{program} {namespace or 'on this machine'}: {said[0]}{remedy}")


def bridge_ports(namespace: str) -> dict[str, str]:
    """{device: "forwarding", "disabled", ...} of the ports of br0 in `namespace`."""
    command = ["ip", "-n", namespace, "-json", "-details", "link", "show", "master", "br0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise MeasureError(f"ip {namespace}: {done.stderr.strip()}")
    return {link["ifname"]: link["linkinfo"]["info_slave_data"]["state"] for link in json.loads(done.stdout)}
