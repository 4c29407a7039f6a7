"""What other tools print, read into the records of our own runs: one file per family of tools.

read.py finds out which tool a line belongs to and lets its reader take the lines that follow; runs.py writes what was
found as folders that every verb reads. Lines come from strangers: every number is checked, every size is bounded.
"""
