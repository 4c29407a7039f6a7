"""A world is formed only after every rank has said who it is: what would hang or lie later is refused here."""

import json
import socket
from datetime import timedelta

from commbench.errors import MeasureError
from commbench.launch.spec import LaunchSpec


def form_world(spec: LaunchSpec, rank: int, facts: dict, listen_fd: int | None):
    """(the world, the facts of all ranks on rank 0 and None elsewhere).

    Raises MeasureError, the same on every rank, when ranks are missing, share a device, or are not one world.
    """
    if spec.backend == "mpi":
        return _form_mpi(spec, facts)
    import torch.distributed as dist

    from commbench.world.torch_world import TorchWorld

    store = dist.TCPStore(
        spec.address,
        spec.port,
        spec.ranks,
        rank == 0,
        timedelta(seconds=spec.timeout_s),
        wait_for_workers=False,
        **({"master_listen_fd": listen_fd} if rank == 0 and listen_fd is not None else {}),
    )
    everyone = _call(store, spec, rank, facts)
    # Gloo's own deadline is a second line of defence: the supervisor's comes first and names the rank.
    return TorchWorld(spec.backend, rank, spec.ranks, store, max(30.0, 10 * spec.timeout_s)), everyone


def _form_mpi(spec: LaunchSpec, facts: dict):
    from commbench.world.mpi_world import MpiWorld

    world = MpiWorld()
    if world.size != spec.ranks:
        raise MeasureError(
            f"expected {spec.ranks} ranks, but MPI's world has {world.size}: the launcher and the MPI library that "
            f"mpi4py loads ({world.library()}) are of different makes, or the launcher has no MPI support; "
            "start with the mpirun of that library, or under Slurm with srun --mpi=pmix"
        )
    everyone = world.gather(facts)
    objection = world.share(_objection(everyone, spec) if world.rank == 0 else None)
    if objection:
        raise MeasureError(objection)
    return world, everyone


def _call(store, spec: LaunchSpec, rank: int, facts: dict) -> list[dict] | None:
    store.set(f"rank/{rank}", json.dumps(facts))
    everyone = None
    if rank == 0:
        everyone, verdict = _collect(store, spec)
        store.set("verdict", verdict)
    else:
        verdict = store.get("verdict").decode()
    if verdict:
        raise MeasureError(verdict)
    return everyone


def _collect(store, spec: LaunchSpec) -> tuple[list[dict], str]:
    """The facts of all ranks and what speaks against this world ("" for nothing)."""
    try:
        store.wait([f"rank/{r}" for r in range(spec.ranks)], timedelta(seconds=spec.timeout_s))
    except RuntimeError:
        missing = [r for r in range(spec.ranks) if not store.check([f"rank/{r}"])]
        return [], (
            f"{len(missing)} of {spec.ranks} ranks did not come to {spec.address}:{spec.port} "
            f"within {spec.timeout_s:g} s: "
            f"missing rank(s) {_short(missing)}"
        )
    everyone = [json.loads(store.get(f"rank/{r}")) for r in range(spec.ranks)]
    return everyone, _objection(everyone, spec) or ""


def _short(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:16])) + (", ..." if len(ranks) > 16 else "")


def _objection(everyone: list[dict], spec: LaunchSpec) -> str | None:
    taken = {}
    for facts in everyone:
        if facts["device"] == "cpu":
            continue
        device = facts["host"], facts["device_id"] or facts["device"]
        if device in taken:
            return (
                f"ranks {taken[device]} and {facts['rank']} both use {facts['device']} of {facts['host']}: "
                "each rank needs a GPU of its own; start at most as many ranks on a node as it has GPUs"
            )
        taken[device] = facts["rank"]
    if spec.backend == "gloo" and not any(facts.get("interface") for facts in everyone):
        # NCCL and MPI look for a network themselves; Gloo takes the address of the host name, whatever it is.
        return next(iter(loopback_notes(everyone)), None)
    return None


def loopback_notes(everyone: list[dict]) -> list[str]:
    """A sentence when ranks of several hosts would announce an address that only their own host can reach."""
    if len({facts["host"] for facts in everyone}) < 2:
        return []
    return [
        f"rank {facts['rank']} on {facts['host']} announces {facts['address']}, which other nodes cannot reach; "
        "name the network with --iface, for example --iface eth0"
        for facts in everyone
        if (facts.get("address") or "").startswith("127.")
    ][:4]


def interface_address(interface: str | None) -> str | None:
    """The IPv4 address of `interface`, or of this host's name; None where there is none."""
    if interface is None:
        try:
            return socket.gethostbyname(socket.gethostname())
        except OSError:
            return None
    import fcntl
    import struct

    siocgifaddr = 0x8915
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, siocgifaddr, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])
