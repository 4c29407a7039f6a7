"""Acceptance: hold a run against a profile, name the machine, make a site's baseline, compare two runs."""
