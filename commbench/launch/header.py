"""The first record of a journal: who measured, with what, on which machines."""

import os

from commbench.lab import told
from commbench.launch.roll_call import interface_address, loopback_notes
from commbench.launch.spec import LaunchSpec
from commbench.measure import now
from commbench.results.plan import Plan
from commbench.results.records import SCHEMA
from commbench.world import link_class
from commbench.world.environment import conf_files, differences, environment
from commbench.world.inventory import infiniband, node_inventory
from commbench.world.nvml import gpus
from commbench.world.topology import rank_place
from commbench.world.versions import versions

# The variable that names the network of each library.
_INTERFACE = {"gloo": "GLOO_SOCKET_IFNAME", "nccl": "NCCL_SOCKET_IFNAME", "mpi": "OMPI_MCA_btl_tcp_if_include"}


def rank_facts(spec: LaunchSpec, rank: int, local_rank: int) -> dict:
    """What one rank says of itself; the first rank of a node adds what is true of the whole node."""
    device = f"cuda:{local_rank}" if spec.backend == "nccl" else "cpu"
    if spec.backend == "nccl":
        import torch

        if torch.cuda.device_count() == 1:
            local_rank, device = (
                0,
                "cuda:0",
            )  # Slurm may show each task one GPU only; the roll call finds two on the same
        torch.cuda.set_device(local_rank)  # before any communicator is made
    facts = {"rank": rank, **rank_place(local_rank, device)}
    interface = os.environ.get(_INTERFACE[spec.backend])
    facts |= {"interface": interface, "address": interface_address(interface)}
    if local_rank == 0:
        node = node_inventory()
        facts["inventory"] = {
            **node,
            "gpus": gpus() if spec.backend == "nccl" else [],
            "conf_files": conf_files(),
            "environment": environment(os.environ),
            "versions": versions(spec.backend),
        }
    return facts


def counters(spec: LaunchSpec, local_rank: int) -> dict | None:
    """The error counters of this node's devices as they stand now, those above 0, in the form of its inventory; None
    from all but its first rank."""
    if local_rank:
        return None
    nics = [
        {"name": nic["name"], "ports": [_risen(port, "port", "errors") for port in nic["ports"]]}
        for nic in infiniband()
    ]
    found = [
        _risen(gpu, "index", "ecc", "xids") | {"nvlink": _risen(gpu.get("nvlink"), "links", "errors")}
        for gpu in (gpus() if spec.backend == "nccl" else [])
    ]
    return {"host": os.uname().nodename, "infiniband": nics, "gpus": found}


def _risen(device, name: str, *keys: str) -> dict:
    """`name` of a device, and of its `keys` the counts above 0."""
    if not isinstance(device, dict):
        return {}
    counts = {key: device[key] for key in keys if isinstance(device.get(key), dict)}
    return {name: device.get(name)} | {
        key: {what: count for what, count in told.items() if isinstance(count, int) and count > 0}
        for key, told in counts.items()
    }


def header(spec: LaunchSpec, plan: Plan, everyone: list[dict]) -> dict:
    """The header record from the facts of all ranks."""
    hosts = list(dict.fromkeys(facts["host"] for facts in everyone))
    nodes = {facts["host"]: facts["inventory"] for facts in everyone if "inventory" in facts}
    on_node = {host: sum(facts["host"] == host for facts in everyone) for host in hosts}
    # Under one task a node each rank may be the first of its own supervisor; a node's inventory is told once.
    ranks = [{"node": hosts.index(f["host"]), **{k: v for k, v in f.items() if k != "inventory"}} for f in everyone]
    listed = [{**nodes[host], "host": host} for host in hosts if host in nodes]
    library = spec.seen.get("library", {})
    lab, classes = told.lab_here(), link_class.summary(ranks, listed, library.get("topology", {}))
    return {
        "record": "header",
        "schema": SCHEMA,
        "suite": plan.name,
        "plan_hash": plan.hash,
        "launch": spec.repetition,
        "backend": spec.backend,
        "world_size": spec.ranks,
        "started_at": now(),
        "command": list(plan.command),
        "versions": listed[0]["versions"] if listed else {},
        "nodes": listed,
        "ranks": ranks,
        **({"lab": lab.to_json()} if lab else {}),
        **({"link_classes": classes} if classes else {}),
        "library": library,
        "rendezvous": {"address": spec.address, "port": spec.port},
        "oversubscribed": any(on_node[host] > nodes[host]["cores"] for host in hosts if host in nodes),
        "notes": [*([told.sentence(lab)] if lab else []), *spec.notes, *loopback_notes(everyone), *differences(listed)],
    }
