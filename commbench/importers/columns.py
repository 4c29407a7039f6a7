"""The header of a table whose column names hold spaces: `# Size  Avg Latency(us)  P50 Tail Lat(us)  Iterations`."""


def column_names(text: str, alone: tuple[str, ...], ends: str = ")]") -> list[str]:
    """The names of a header line. A name ends with its unit in brackets, or is one of `alone`."""
    names, words = [], []
    for word in text.replace("#", " ").split():
        if word in alone and not words:
            names.append(word)
        elif word[-1] in ends:
            names.append(" ".join([*words, word]))
            words = []
        else:
            words.append(word)
    return names + ([" ".join(words)] if words else [])
