"""Offload links: what one rank moves out to slower memory and back, one way and both ways at once.

ZeRO-Offload (arXiv 2101.06840) keeps the optimizer's state in host memory, ZeRO-Infinity (arXiv 2104.07857) on disk.
`link` is "device" (GPU and host memory, pinned or pageable), "memory" (host memory to host memory, what a machine
without GPU has), or "disk" (host memory and a file). All ranks of a node copy at the same time, as they do in training.
A sample is both ways at once; the parts "out" and "back" are one way each. The device link is unverified until a GPU
has run it.

A disk is read and written past the page cache (O_DIRECT), by `depth` threads. With `direct` false writes go through
the page cache and are flushed (fdatasync), and reads come out of the page cache: the row's fact page_cache is then 1.
"""

import errno
import fcntl
import mmap
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from commbench.layers.layer import Built, Layer, Place

LINKS = ("device", "memory", "disk")
OPTIONS = {"link": "memory", "bytes": 2**26, "pinned": True, "folder": "", "direct": True, "depth": 4, "seed": 1}
_PIECE = 2**20  # a request to the disk; a multiple of any block size
_GPU = Path("/dev/nvidiactl")  # asking torch would wake CUDA in a process that has yet to fork


def _folder(params) -> str:
    return params["folder"] or tempfile.gettempdir()


def problem(params, ranks):
    size, link = params["bytes"], params["link"]
    if not size or size % _PIECE:
        return f"bytes is {size}; it must be a multiple of {_PIECE} (1 MiB), so that every request is aligned"
    if link == "device" and not _GPU.exists():
        return "link device needs a GPU, and this machine shows none; link memory copies within host memory"
    if link != "disk":
        return None
    folder = _folder(params)
    if not 1 <= params["depth"] <= 256:
        return f"depth is {params['depth']}; give 1 to 256 threads"
    try:
        if _in_memory(Path(folder)):
            return f"folder {folder} lies in memory (tmpfs), so it would be no disk; name a folder on one"
        free = os.statvfs(folder)
        if free.f_bavail * free.f_frsize < 2 * size * ranks:
            return f"folder {folder} has no room for {2 * size * ranks} bytes, two files for each of {ranks} ranks"
        os.close(_file(folder, _PIECE, params["direct"]))
    except OSError as error:
        refused = params["direct"] and error.errno == errno.EINVAL
        how = " past the page cache; direct=false goes through it" if refused else ""
        return f"folder {folder} cannot hold the file: {error.strerror}{how}"
    return None


def _in_memory(folder: Path) -> bool:
    """Whether the mount that holds `folder` is a file system in memory."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    above = [(place, kind) for _, place, kind, *_ in mounts if folder.resolve().is_relative_to(place)]
    return max(above, key=lambda mount: len(mount[0]))[1] in ("tmpfs", "ramfs")


def _random(params, place: Place) -> torch.Tensor:
    """Bytes of this rank. Memory and files that were never written read as zeros without being there."""
    generator = torch.Generator().manual_seed(params["seed"] + place.rank)
    return torch.randint(256, (params["bytes"],), dtype=torch.uint8, generator=generator)


def _file(folder: str, size: int, direct: bool) -> int:
    """The descriptor of a file without a name, which is gone when its process is."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        if direct:
            fcntl.fcntl(file.fileno(), fcntl.F_SETFL, fcntl.fcntl(file.fileno(), fcntl.F_GETFL) | os.O_DIRECT)
        return os.dup(file.fileno())


class _Disk:
    """Two files and buffers that begin on a page: one way writes, the other reads."""

    def __init__(self, params, data):
        self.bytes, self.depth, folder = params["bytes"], params["depth"], _folder(params)
        self.written, self.read = (_file(folder, self.bytes, params["direct"]) for _ in range(2))
        self.source, self.target = (mmap.mmap(-1, self.bytes) for _ in range(2))
        self.threads = ThreadPoolExecutor(2 * self.depth)
        self.source[:] = data.numpy().tobytes()
        for file in (self.read, self.written):
            self.finish(self._start(os.pwritev, file, self.source))
            os.fsync(file)

    def _start(self, call, file: int, memory):
        view = memoryview(memory)

        def share(first: int):
            for at in range(first * _PIECE, self.bytes, self.depth * _PIECE):
                moved = call(file, [view[at : at + _PIECE]], at)
                if moved != _PIECE:
                    raise OSError(f"the disk moved {moved} of {_PIECE} bytes")

        return [self.threads.submit(share, first) for first in range(self.depth)]

    def start_out(self):
        return self._start(os.pwritev, self.written, self.source)

    def start_back(self):
        return self._start(os.preadv, self.read, self.target)

    def finish(self, started):
        for one in started:
            one.result()

    def flush(self):
        os.fdatasync(self.written)

    def check(self, data):
        """What was written is read from the same file."""
        self.source[:] = data.numpy().tobytes()
        self.finish(self.start_out())
        self.flush()
        self.finish(self._start(os.preadv, self.written, self.target))
        return bytes(self.target) == bytes(self.source)


class _Memory:
    """Host memory and the device's, or a second place in host memory: a buffer on each side for each way."""

    def __init__(self, params, data):
        size, self.cuda = params["bytes"], params["link"] == "device"

        def host():
            return torch.zeros(size, dtype=torch.uint8, pin_memory=self.cuda and params["pinned"])

        def far():
            return torch.zeros(size, dtype=torch.uint8, device="cuda") if self.cuda else host()

        self.source, self.target = far(), far()
        self.stored, self.kept = host(), host()
        for tensor in (self.source, self.target, self.stored, self.kept):
            tensor.copy_(data)
        if self.cuda:
            self.streams = torch.cuda.Stream(), torch.cuda.Stream()
        else:
            self.threads = ThreadPoolExecutor(2)

    def _start(self, to, source, way: int):
        if not self.cuda:
            return [self.threads.submit(to.copy_, source)]
        stream = self.streams[way]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            to.copy_(source, non_blocking=True)
        return [stream]

    def start_out(self):
        return self._start(self.stored, self.source, 0)

    def start_back(self):
        return self._start(self.target, self.kept, 1)

    def finish(self, started):
        for one in started:
            torch.cuda.current_stream().wait_stream(one) if self.cuda else one.result()

    def flush(self):
        if self.cuda:
            torch.cuda.synchronize()

    def check(self, data):
        self.source.copy_(data)
        self.finish(self.start_out())
        self.flush()
        self.kept.copy_(self.stored)
        self.finish(self.start_back())
        self.flush()
        return torch.equal(self.target.cpu(), data)


def build(wires, params, place: Place, device: str) -> Built:
    link = (_Disk if params["link"] == "disk" else _Memory)(params, _random(params, place))

    def out():
        link.finish(link.start_out())
        link.flush()

    def back():
        link.finish(link.start_back())
        link.flush()

    def both():
        link.finish(link.start_out() + link.start_back())
        link.flush()

    def check():
        right = link.check(_random(params, place).flip(0))
        return int(not right), float(not right)

    def facts():
        return {"moved_bytes": params["bytes"], "page_cache": int(params["link"] == "disk" and not params["direct"])}

    return Built(both, check, {"out": out, "back": back}, facts)


LAYER = Layer(
    name="offload",
    options=OPTIONS,
    problem=problem,
    traffic=lambda params, place: {},
    flops=lambda params, place: 0.0,
    memory_bytes=lambda params, place: 5 * params["bytes"],
    build=build,
    dtypes=("float32",),
    words={"link": LINKS},
)
