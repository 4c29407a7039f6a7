"""Times as functions of ranks and bytes: fitted to what was measured, held against what was not. No torch."""
