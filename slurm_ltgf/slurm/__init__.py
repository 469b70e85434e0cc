"""The only code that knows Slurm's commands and their text."""
