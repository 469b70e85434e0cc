/*
 * shim.h - what the callbacks in ltgf_spank.c hand to the file of the context that they run in.
 *
 * Direction of failure: whoever submits is told and refused; a task whose job asked for something
 * that cannot be had ends with a line (exit status 1: the job FAILED, the node stays); every other
 * hook logs and returns 0, since an error there would drain the node.
 */
#ifndef LTGF_SHIM_H
#define LTGF_SHIM_H

#include <slurm/spank.h>

#include "arguments.h"
#include "options.h"

#define LTGF_CONTROL "SLURM_SPANK_"	/* before LTGF_MPS in a job: what the job was given */

/* The one state of this plugin in its process. */
struct ltgf_shim {
	struct ltgf_arguments arguments;
	struct ltgf_given given;	/* site defaults, then what option callbacks said */
	char error[LTGF_WHY];		/* the first bad value in a context that must not fail */
};

/* sbatch, salloc, srun: values of the environment, contradictions, what the job is to know. */
void ltgf_submit(spank_t spank, struct ltgf_shim *shim);

/* slurmd begins: what jobs left that are no more. */
void ltgf_slurmd_begins(const struct ltgf_shim *shim);

/* Before a job's first process on a node: MPS, GPU-to-job files. `options` has the names. */
void ltgf_job_begins(spank_t spank, struct ltgf_shim *shim, struct spank_option *options);

/* After its last. */
void ltgf_job_ends(spank_t spank, const struct ltgf_shim *shim);

/* In each task, as the user, before it becomes the user's program. Does not return on failure. */
void ltgf_task_begins(spank_t spank, struct ltgf_shim *shim);

#endif
