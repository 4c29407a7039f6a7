"""A verdict is kept with the run: a new end record in its newest journal, which `commbench status` reads."""

from commbench.acceptance.verdict import Judgement
from commbench.results.journal import Journal
from commbench.results.records import SCHEMA
from commbench.results.store import Run


def append_verdict(run: Run, judgement: Judgement, finished_at: str) -> None:
    """Write the end record. Raises OSError where the run cannot be written to (somebody else's, a full disk)."""
    journal = Journal(run.launches[-1].path)
    journal.write(
        {
            "record": "end",
            "schema": SCHEMA,
            "exit_code": judgement.code,
            "reason": judgement.reason,
            "missing": [],
            "point": None,
            "finished_at": finished_at,
            "verdict": {"profile": judgement.profile, "word": judgement.word, "counts": judgement.counts},
        }
    )
    journal.close()
