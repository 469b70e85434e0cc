"""`python -m slurm_ltgf.checkpoint`: the command `ltgf-ckpt` where it is not installed."""

import sys

from slurm_ltgf.checkpoint.shell import main

sys.exit(main())
