"""`python -m slurm_ltgf` is `ltgf`."""

from slurm_ltgf.cli.main import main

main()
