"""The namespaces of a lab and what connects them."""

import time

from commbench.errors import MeasureError
from commbench.lab.commands import batch, bridge_ports
from commbench.lab.layout import Lab
from commbench.lab.namespaces import inside, missing, runs
from commbench.lab.shaping import all_lines

_PATIENCE_S = 10.0
_SUBNET = "10.77.0.0/16"
_SETTINGS = {
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv6/conf/default/disable_ipv6": "1",
    # Every kernel allows reno in a namespace, and as nothing is ever dropped it never backs off; bbr, the default of
    # some kernels, probes the rate and finds 0.7 to 0.9 of it behind HTB.
    "ipv4/tcp_congestion_control": "reno",
    "ipv4/tcp_slow_start_after_idle": "0",
    "ipv4/tcp_no_metrics_save": "1",  # what one connection met must not shape the next
}


def connect(lab: Lab) -> None:
    """Make the namespaces, ports and links of `lab`. Raises MeasureError with the kernel's words."""
    batch("ip", [f"netns add {namespace}" for namespace in lab.namespaces()])
    for namespace in lab.namespaces():
        _set_kernel(namespace, window_bytes(lab))
    if lab.form == "rate":
        _bridges(lab)
    for rank in lab.ranks():
        batch("ip", _port(lab, rank), rank.namespace)


def await_links(lab: Lab) -> None:
    """Wait until every port passes packets: the kernel looks at new carriers about once a second, and drops until then.

    Raises MeasureError when one does not within ten seconds.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while waiting := _waiting(lab):
        if time.monotonic() > deadline:
            raise MeasureError(f"{waiting} passes nothing after {_PATIENCE_S:g} s")
        time.sleep(0.05)


def _waiting(lab: Lab) -> str | None:
    """The first port that does not pass packets yet, None where all do."""
    switches = [lab.core_namespace, *map(lab.node_namespace, range(lab.nodes))] if lab.form == "rate" else []
    for namespace in switches:
        for port, port_state in bridge_ports(namespace).items():
            if port_state != "forwarding":
                return f"port {port} of {namespace}"
    return next((f"eth0 of {rank.namespace}" for rank in lab.ranks() if not runs(rank.namespace, "eth0")), None)


def disconnect(lab: Lab) -> None:
    """Remove the namespaces of `lab` that are there, and with them all that is in them."""
    gone = set(missing(lab.namespaces()))
    if left := [namespace for namespace in lab.namespaces() if namespace not in gone]:
        batch("ip", [f"netns delete {namespace}" for namespace in left])


def window_bytes(lab: Lab) -> int:
    """The most that a connection may have in flight: enough for the rate and the round trip, never for a full queue."""
    round_trip_s = 2 * max(lab.delay_us or 0, lab.intra_delay_us or 0) / 1e6
    return max(2**20, 4 * round(lab.inter_bit_s / 8 * round_trip_s))


def _set_kernel(namespace: str, window: int) -> None:
    buffers = {"ipv4/tcp_rmem": f"4096 131072 {window}", "ipv4/tcp_wmem": f"4096 16384 {max(window, 2**22)}"}
    with inside(namespace):
        for name, value in (_SETTINGS | buffers).items():
            try:
                with open(f"/proc/sys/net/{name}", "w") as file:
                    file.write(value)
            except OSError as error:
                if not name.startswith("ipv6"):  # a kernel may have no IPv6 at all
                    raise MeasureError(
                        f"net.{name.replace('/', '.')} cannot be {value!r} in a lab: {error.strerror}"
                    ) from None


def _bridges(lab: Lab) -> None:
    bridge = ["link set lo up", f"link add br0 mtu {lab.mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"]
    batch("ip", [*bridge, "link set br0 up"], lab.core_namespace)
    for node in range(lab.nodes):
        inside_node = lab.node_namespace(node)
        first = node * lab.ranks_per_node
        ranks = [lab.rank(rank) for rank in range(first, first + lab.ranks_per_node)]
        batch(
            "ip",
            [
                *bridge,
                "link set br0 up",
                _cable(lab, "up0", f"node{node}", lab.core_namespace),
                "link set up0 master br0 up",
                *(_cable(lab, f"rank{rank.rank}", "eth0", rank.namespace) for rank in ranks),
                *(f"link set rank{rank.rank} master br0 up" for rank in ranks),
            ],
            inside_node,
        )
    batch("ip", [f"link set node{node} master br0 up" for node in range(lab.nodes)], lab.core_namespace)
    for namespace, lines in all_lines(lab).items():
        batch("tc", lines, namespace)


def _cable(lab: Lab, dev: str, peer: str, namespace: str) -> str:
    return f"link add {dev} mtu {lab.mtu} type veth peer name {peer} mtu {lab.mtu} netns {namespace}"


def _port(lab: Lab, rank) -> list[str]:
    """The lines that give a rank's eth0 its address. Nothing is ever asked for by broadcast: all neighbours are set."""
    tap = ["tuntap add dev eth0 mode tap vnet_hdr"] if lab.form == "latency" else []
    # Without a large first window a message of 4 to 64 KB waits for one more round trip.
    window = " initcwnd 1000 initrwnd 1000" if lab.form == "latency" else ""
    others = [other for other in lab.ranks() if other != rank]
    return [
        "link set lo up",
        *tap,
        f"link set eth0 address {rank.mac} mtu {lab.mtu} txqueuelen 10000 up",
        f"address add {rank.address}/16 dev eth0 noprefixroute",
        f"route add {_SUBNET} dev eth0 src {rank.address}{window}",
        *(f"neighbour replace {o.address} lladdr {o.mac} dev eth0 nud permanent" for o in others),
    ]
