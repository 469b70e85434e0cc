"""Long-term GPU-time fairness (LTGF) for Slurm."""

__version__ = "0.1.0"
