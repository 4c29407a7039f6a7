"""TOML files from anywhere: read, or told in one sentence why not."""

import tomllib
from pathlib import Path

from commbench.errors import UsageError

_LARGEST = 4 << 20  # bytes; a site's baseline of every operation, the longest of ours, has some 100 KiB


def read_toml(path: Path, what: str, missing: str) -> dict:
    """The tables of the file at `path`, which is called `what` in sentences. Raises UsageError: `missing` where there
    is no such file, else what is wrong with it."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)  # a bound on what is read: a device has no size, and no end
        if len(content) > _LARGEST:
            raise UsageError(f"{what} {path} has more than {_LARGEST >> 20} MiB; no {what} is that long")
        return tomllib.loads(content.decode())
    except (FileNotFoundError, IsADirectoryError):
        raise UsageError(missing) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{what} {path} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:  # a path with a NUL, no TOML, thousands of digits, nested too deep
        raise UsageError(f"{what} {str(path)!r} is not valid TOML: {error}") from None
