"""What our switch reads in a frame: a virtio-net header of 10 bytes, then Ethernet, IPv4 and TCP."""

HEADER_BYTES = 10
_ETHERNET, _IP = HEADER_BYTES, HEADER_BYTES + 14
_TCP_PROTOCOL, _PUSHES = 6, 0b111  # the flags FIN, SYN, RST


def target(frame: bytes) -> bytes:
    """The hardware address that the frame is for."""
    return frame[_ETHERNET : _ETHERNET + 6]


def wire_bytes(frame: bytes) -> int:
    """Bytes on the wire, Ethernet headers counted. A GSO frame stands for many packets, each with its own headers."""
    size = len(frame) - HEADER_BYTES
    segment = frame[4] | frame[5] << 8  # gso_size
    if not frame[1] or not segment:
        return size
    ip_bytes = (frame[_IP] & 15) << 2
    headers = 14 + ip_bytes + (frame[_IP + ip_bytes + 12] >> 4 << 2)
    return size + ((size - headers + segment - 1) // segment - 1) * headers


def is_pure_ack(frame: bytes) -> bool:
    """A TCP packet that carries no data and opens or ends no connection."""
    if len(frame) < _IP + 40 or len(frame) >= 110 or frame[_IP - 2 : _IP] != b"\x08\x00":
        return False
    if frame[_IP + 9] != _TCP_PROTOCOL:
        return False
    ip_bytes = (frame[_IP] & 15) << 2
    tcp_bytes = frame[_IP + ip_bytes + 12] >> 4 << 2
    total = frame[_IP + 2] << 8 | frame[_IP + 3]
    return total == ip_bytes + tcp_bytes and not frame[_IP + ip_bytes + 13] & _PUSHES
