"""The rate form's links: HTB on the device at which a direction begins. Pure: the lines for `tc`.

Pure ACKs have a class of their own: behind bulk data of the other direction they would slow two-way traffic by 1.2 to
1.7 times. The bucket holds two full GSO packets, less costs rate; the queue is long, for a drop costs more than a wait.
"""

from commbench.lab.layout import DIRECTIONS, Lab

_BURST, _QUEUE, _NOTHING_FITS = 150_000, 16_000_000, 1  # bytes
_DATA, _ACKS = "20", "10"
_ACK_BIT_S = 10**9


def device(lab: Lab, link: str, direction: str) -> tuple[str, str]:
    """(namespace, device) whose sending side is this direction of `link`."""
    number = int(link[4:])
    if link.startswith("node"):
        return (lab.node_namespace(number), "up0") if direction == "out" else (lab.core_namespace, link)
    rank = lab.rank(number)
    return (rank.namespace, "eth0") if direction == "out" else (lab.node_namespace(rank.node), link)


def build_lines(dev: str, bit_s: float) -> list[str]:
    """The lines that shape `dev` for the first time."""
    return [
        f"qdisc add dev {dev} root handle 1: htb default {_DATA}",
        f"class add dev {dev} parent 1: classid 1:{_DATA} htb {_rate(bit_s)}",
        f"class add dev {dev} parent 1: classid 1:{_ACKS} htb {_rate(_ACK_BIT_S)} prio 0",
        *(f"qdisc add dev {dev} parent 1:{kind} handle {kind}: bfifo limit {_QUEUE}" for kind in (_DATA, _ACKS)),
        # TCP in IPv4 without options, and a packet of fewer than 64 bytes.
        f"filter add dev {dev} parent 1: protocol ip prio 1 u32 match ip protocol 6 0xff match u8 0x05 0x0f at 0 "
        f"match u16 0x0000 0xffc0 at 2 flowid 1:{_ACKS}",
    ]


def change_lines(dev: str, bit_s: float, cut: bool) -> list[str]:
    """The lines that change a shaped `dev`. Cut, its queues take no packet, so that the other way stays open."""
    limit = _NOTHING_FITS if cut else _QUEUE
    return [
        f"class change dev {dev} parent 1: classid 1:{_DATA} htb {_rate(bit_s)}",
        *(f"qdisc change dev {dev} parent 1:{kind} handle {kind}: bfifo limit {limit}" for kind in (_DATA, _ACKS)),
    ]


def _rate(bit_s: float) -> str:
    return f"rate {bit_s:.0f}bit ceil {bit_s:.0f}bit burst {_BURST} cburst {_BURST} quantum 60000"


def all_lines(lab: Lab) -> dict[str, list[str]]:
    """{namespace: lines} that shape every link of a new lab."""
    lines: dict[str, list[str]] = {}
    for link in lab.links():
        for direction in DIRECTIONS:
            namespace, dev = device(lab, link, direction)
            lines.setdefault(namespace, []).extend(build_lines(dev, lab.set_bit_s(link)))
    return lines
