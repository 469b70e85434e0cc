"""What makes a job's work outlive its GPUs: a training script calls `session`; see there."""

from slurm_ltgf.checkpoint.board import BoardError
from slurm_ltgf.checkpoint.session import Session, session

__all__ = ["BoardError", "Session", "session"]
