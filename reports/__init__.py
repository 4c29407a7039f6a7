"""Pages for people: the figures, tables and definitions of a run in one HTML file."""
