/*
 * task.h - one task that is about to become the user's program: what it knows, what it gets.
 *
 * Runs as the user. RET of both givers: 0, or -1 with one line in `why` that ends the task.
 */
#ifndef LTGF_TASK_H
#define LTGF_TASK_H

#include "shim.h"

struct ltgf_task {
	spank_t spank;
	const struct ltgf_arguments *arguments;
	const struct ltgf_given *given;
	struct ltgf_wish wish;
	uint32_t job_id, step_id, restart, array_id, array_task;
	uint32_t node;			/* 0: the job's first */
	uint32_t local_tasks;
	int local_id;
	bool is_batch;			/* the batch script, or salloc's interactive step */
	char node_name[256];
};

/* A variable of the task's environment; NULL if there is none. Valid until the next is set. */
const char *ltgf_task_env(const struct ltgf_task *task, const char *name);

/* Set a variable of the task. RET 0, or -1 with `why`. */
int ltgf_task_set(const struct ltgf_task *task, const char *name, const char *value, char *why,
		  size_t why_len);

/* The variables of the job's MPS. */
int ltgf_task_mps(const struct ltgf_task *task, char *why, size_t why_len);

/* Take away what a job or step around this one left of its MPS. */
void ltgf_task_without_mps(const struct ltgf_task *task);

/* Take away what a job or step around this one left of its checkpoints: they are not this job's. */
void ltgf_task_without_ckpt(const struct ltgf_task *task);

/* The checkpoint folder, its record, LTGF_CKPT_…. */
int ltgf_task_ckpt(const struct ltgf_task *task, char *why, size_t why_len);

#endif
