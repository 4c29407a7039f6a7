"""Slurm: sbatch scripts that a person can read and edit, and what belongs to a site, as data.

SCRIPT.sbatch says what is measured in which allocation, sites/NAME.toml what a cluster needs, ranks/*.sh how ranks are
started there. `render` joins the three to one text; `submit`, `status` and `collect` take it from there.
"""

from pathlib import Path

SHIPPED = Path(__file__).parent
