"""What decides: values in, values out. No Slurm text, file, clock, log or environment here."""
