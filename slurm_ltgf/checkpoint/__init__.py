"""What makes a job's work outlive its GPUs: see `session`, and `protocol` for both sides."""
