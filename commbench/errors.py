"""Exit codes and the two errors a person is meant to read."""

from errno import ENOSPC

PASS = 0
BELOW = 1
USAGE = 2
UNMEASURED = 3
HANG = 4
WRONG = 5

# The worst of several codes wins, in this order (wrong data outranks a hang, a hang outranks an error, ...).
_PRECEDENCE = (WRONG, HANG, UNMEASURED, USAGE, BELOW, PASS)


class CommbenchError(Exception):
    """An error told in one sentence, with the exit code it ends the program with."""

    exit_code = UNMEASURED


class UsageError(CommbenchError):
    """What was asked for cannot be: a flag, a file, a size, an environment variable (exit 2)."""

    exit_code = USAGE


class MeasureError(CommbenchError):
    """What was asked for is right, but could not be measured here (exit 3)."""

    exit_code = UNMEASURED


class HangError(CommbenchError):
    """A rank was lost or a deadline passed (exit 4)."""

    exit_code = HANG


def worst(codes) -> int:
    """The exit code that stands for all of `codes`; PASS when there are none. Codes not ours are UNMEASURED."""
    codes = {code if code in _PRECEDENCE else UNMEASURED for code in codes}
    return next((code for code in _PRECEDENCE if code in codes), PASS)


def disk_sentence(error: OSError) -> str:
    """What a file system refused, and what to do, in one sentence."""
    where = error.filename or "the folder of the run"
    remedy = "; free some space there, then go on with `commbench run --resume`" if error.errno == ENOSPC else ""
    return f"{error.strerror or error}: {where}{remedy}"
