"""From measured links to a layout: memory ledger, step time, search, goodput. Pure functions."""
