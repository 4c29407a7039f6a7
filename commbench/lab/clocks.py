"""The links of the latency form as clocks: when a frame that comes now is through, at each link's rate and in turn."""

import heapq

from commbench.lab.layout import DIRECTIONS, Lab


class Clocks:
    """Frames on their way. Times are seconds on the caller's clock; what is handed in and out is opaque.

    A link sends one frame after another, in the order in which they reach it. The next link begins as soon as this one
    does (a frame is many packets), so a path takes the time of its slowest link, plus the delay.
    """

    def __init__(self, lab: Lab):
        links = [(link, direction) for link in lab.links() for direction in DIRECTIONS]
        number = {link: i for i, link in enumerate(links)}
        ranks = range(lab.size)
        self._paths = [[[number[hop] for hop in lab.path(a, b)] if a != b else [] for b in ranks] for a in ranks]
        node = [rank.node for rank in lab.ranks()]
        delays_s = {True: (lab.intra_delay_us or 0) / 1e6, False: (lab.delay_us or 0) / 1e6}
        self._delay_s = [[delays_s[node[a] == node[b]] for b in ranks] for a in ranks]
        self._busy_s = [0.0] * len(links)
        self._events: list[tuple] = []
        self._count = 0
        self.change(lab)

    def change(self, lab: Lab) -> None:
        """The links as `lab` says they are now; frames on their way keep their turn."""
        states = [lab.state_of(link, direction) for link in lab.links() for direction in DIRECTIONS]
        self._bytes_s = [bit_s / 8 for bit_s, _ in states]
        self._cut = [cut for _, cut in states]

    def send(self, now_s: float, a: int, b: int, size_bytes: int, frame, free: bool) -> None:
        """A frame of rank a for rank b. One that is `free` waits for no link and takes none: it has only the delay."""
        path = self._paths[a][b]
        if free:
            if not any(self._cut[link] for link in path):
                self._push(now_s + self._delay_s[a][b], b, frame, None)
        else:
            self._advance(now_s, now_s, 0, (a, b, size_bytes, frame))

    def due_s(self) -> float | None:
        """When something is to be done next."""
        return self._events[0][0] if self._events else None

    def arrived(self, now_s: float):
        """Yields (rank, frame) of all that has arrived by now, in order."""
        while self._events and self._events[0][0] <= now_s:
            at_s, _, b, frame, journey = heapq.heappop(self._events)
            if journey is None:
                yield b, frame
            else:
                self._advance(at_s, *journey)

    def _push(self, at_s: float, b, frame, journey) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_s, self._count, b, frame, journey))

    def _advance(self, at_s: float, end_s: float, hop: int, what: tuple) -> None:
        """The frame stands before link `hop` of its path at at_s; its last byte is through all before at end_s."""
        a, b, size_bytes, frame = what
        path = self._paths[a][b]
        while hop < len(path):
            link = path[hop]
            if self._cut[link]:
                return
            start_s = max(at_s, self._busy_s[link])
            self._busy_s[link] = start_s + size_bytes / self._bytes_s[link]
            end_s = max(end_s, self._busy_s[link])
            hop += 1
            if start_s > at_s and hop < len(path):  # others may reach the next link before this frame does
                return self._push(start_s, None, None, (end_s, hop, what))
        self._push(end_s + self._delay_s[a][b], b, frame, None)
