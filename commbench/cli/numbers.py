"""Several numbers in one flag, written as sizes are: 512, a list 8,64, or a sweep 8..4096 that doubles."""


def numbers(flag: str, text: str) -> list[int]:
    """The numbers of a flag in their order, each once. Raises UsageError for what is none, or below 1."""
    from pydantic import ValidationError

    from commbench.cli.planning import parse_sizes
    from commbench.errors import UsageError
    from commbench.suite.schema import Sweep
    from commbench.units import parse_size

    try:
        asked = parse_sizes(text)
        found = Sweep.model_validate(asked).sizes() if isinstance(asked, dict) else [parse_size(n) for n in asked]
    except ValidationError as error:
        raise UsageError(f"{flag} {text}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    except (UsageError, ValueError) as error:
        raise UsageError(f"{flag} {text}: {error}") from None
    if not found or min(found) < 1:
        raise UsageError(f"{flag} {text}: write one or more numbers above 0, such as 8,64 or 8..1024")
    return list(dict.fromkeys(found))
