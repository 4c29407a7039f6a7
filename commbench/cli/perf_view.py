"""nccl-tests' table, a line as soon as both placements of a size are there."""

from commbench.results import nccl_tests
from commbench.results.metrics import disturbances, flow_words, load_words


class PerfView:
    """The view of `commbench perf`; one table per run."""

    def __init__(self, plan, stream):
        self._plan, self._stream = plan, stream
        self._program = nccl_tests.PROGRAMS[plan.points()[0].op]
        self._placements = {}
        for point in plan.points():
            self._placements.setdefault(_row(point), []).append(point.in_place)
        self._waiting, self._halves, self._begun, self._notes = {}, [], False, []

    def header(self, record: dict) -> None:
        if not self._begun:
            self._begin(nccl_tests.device_lines(record, self._plan.points()[0].members))
            self._begun = True

    def _begin(self, devices) -> None:
        points = self._plan.points()
        sizes = [point.params["requested_bytes"] for point in points]
        settings = self._plan.settings
        notes = nccl_tests.notes(points)
        lines = nccl_tests.header_lines(
            self._program,
            sizes,
            warmup=settings.warmup,
            iters=points[0].batch,
            checks=settings.checks,
            graph=settings.graph,
            devices=devices,
            notes=notes,
        )
        print("\n".join(lines), file=self._stream, flush=True)

    def point(self, sample) -> None:
        row = _row(sample.point)
        waiting = self._waiting.setdefault(row, {})
        waiting[sample.point.in_place] = sample
        if len(waiting) == len(self._placements[row]):
            halves = nccl_tests.half(waiting.get(False)), nccl_tests.half(waiting.get(True))
            self._halves += halves
            self._flow(sample, next((s for s in waiting.values() if s.samples_us), sample))
            shown = next(
                (s.point for s, h in zip((waiting.get(False), waiting.get(True)), halves, strict=True) if h),
                sample.point,
            )
            print(nccl_tests.row_line(shown, *halves), file=self._stream, flush=True)
            for said in sorted({said for placed in waiting.values() for said in disturbances(placed)}):
                self.message(f"{sample.point.size_bytes} B: {said}: the time is not the library's alone")
            for in_place, placed in waiting.items():
                if placed.reason:
                    self.message(
                        f"{'in' if in_place else 'out of'} place, {placed.point.size_bytes} B: {placed.reason}"
                    )

    def _flow(self, sample, measured) -> None:
        """What traffic the rows from here on are of, where there is more than one kind."""
        if flow_words(sample.point):
            told = load_words(measured)
            self.message(f"Traffic {flow_words(sample.point)}{': each rank ' + told if told else ''}")

    def message(self, text: str) -> None:
        """A sentence as a comment line, once."""
        if text and text not in self._notes:
            self._notes.append(text)
            print(f"# {nccl_tests.one_line(text)}", file=self._stream, flush=True)

    def close(self) -> None:
        if not self._begun:
            self._begin([])
        print("\n".join(nccl_tests.footer_lines(self._program, self._halves)), file=self._stream, flush=True)


def _row(point) -> tuple:
    return flow_words(point), point.dtype, point.redop, point.root, point.params["requested_bytes"]
