/*
 * task_ckpt.c - the checkpoint folder of a job, its record, and LTGF_CKPT_… in each task.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ckpt.h"
#include "mps_why.h"
#include "task.h"

void ltgf_task_without_ckpt(const struct ltgf_task *task)
{
	static const char *const variables[] = { "LTGF_CKPT_MODE", "LTGF_CKPT_DIR",
						 "LTGF_CKPT_SIGNAL", "LTGF_CKPT_COMMAND",
						 "LTGF_CKPT_TIMEOUT_S", "LTGF_CKPT_INTERVAL_S",
						 "LTGF_CKPT_LAST", "LTGF_CKPT_RECORDS" };

	if (!ltgf_task_env(task, variables[0]))
		return;
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		spank_unsetenv(task->spank, variables[i]);
}

/* Set, or take away what an earlier job left. */
static int give(const struct ltgf_task *task, const char *name, const char *value, char *why,
		size_t why_len)
{
	if (value[0])
		return ltgf_task_set(task, name, value, why, why_len);
	spank_unsetenv(task->spank, name);
	return 0;
}

static int give_seconds(const struct ltgf_task *task, const char *name, uint32_t seconds, char *why,
			size_t why_len)
{
	char text[16] = "";

	if (seconds)
		snprintf(text, sizeof(text), "%u", seconds);
	return give(task, name, text, why, why_len);
}

static int give_all(const struct ltgf_task *task, const char *dir, char *why, size_t why_len)
{
	const struct ltgf_wish *wish = &task->wish;
	char last[LTGF_CKPT_PATH] = "", signal[32] = "";

	if (task->restart)
		ltgf_ckpt_last(dir, last, sizeof(last));
	if (wish->signal[0])
		snprintf(signal, sizeof(signal), wish->signal_s ? "%s@%u" : "%s", wish->signal,
			 wish->signal_s);
	if (give(task, "LTGF_CKPT_MODE", ltgf_ckpt_word(wish->ckpt), why, why_len) ||
	    give(task, "LTGF_CKPT_DIR", dir, why, why_len) ||
	    give(task, "LTGF_CKPT_SIGNAL", signal, why, why_len) ||
	    give(task, "LTGF_CKPT_COMMAND", wish->command, why, why_len) ||
	    give_seconds(task, "LTGF_CKPT_TIMEOUT_S", wish->timeout_s, why, why_len) ||
	    give_seconds(task, "LTGF_CKPT_INTERVAL_S", wish->interval_s, why, why_len) ||
	    give(task, "LTGF_CKPT_LAST", last, why, why_len) ||
	    give(task, "LTGF_CKPT_RECORDS", task->arguments->records, why, why_len))
		return -1;
	return 0;
}

/* The record for whoever has the job checkpointed. Without it the job runs all the same. */
static int write_records(const struct ltgf_task *task, const struct ltgf_ckpt_job *job, char *why,
			 size_t why_len)
{
	const char *records = task->arguments->records;
	char text[8192], name[64];

	if (ltgf_ckpt_record(job, &task->wish, text, sizeof(text), why, why_len) ||
	    ltgf_ckpt_write(job->dir, "ltgf-job", text, why, why_len))
		return -1;
	snprintf(name, sizeof(name), "%u.%u", job->job_id, (unsigned int)job->uid);
	if (records[0] && ltgf_ckpt_write(records, name, text, why, why_len))
		slurm_error("ltgf: job %u: its checkpoint record, by which ltgf finds it: %s",
			    job->job_id, why);
	return 0;
}

/* The job as a whole has one record: the batch script writes it, or the first task of step 0. */
static bool writes_record(const struct ltgf_task *task, const char *dir)
{
	const char *before = ltgf_task_env(task, "LTGF_CKPT_DIR");

	return task->is_batch || (task->step_id == 0 && task->node == 0 && task->local_id == 0 &&
				  (!before || strcmp(before, dir)));
}

int ltgf_task_ckpt(const struct ltgf_task *task, char *why, size_t why_len)
{
	const char *user = ltgf_task_env(task, "SLURM_JOB_USER");
	char dir[LTGF_CKPT_PATH];
	struct ltgf_ckpt_job job = {
		.job_id = task->job_id, .array_id = task->array_id,
		.array_task = task->array_task, .restart = task->restart, .uid = getuid(),
		.node = task->node_name, .dir = dir,
	};

	if (!task->wish.dir[0])
		return ltgf_why(why, why_len, "--ckpt=%s without a folder: say --ckpt-dir=DIR",
				ltgf_ckpt_word(task->wish.ckpt));
	if (ltgf_ckpt_dir(task->wish.dir, user ? user : "", task->job_id, dir, sizeof(dir), why,
			  why_len) ||
	    ltgf_ckpt_make(dir, getuid(), why, why_len))
		return -1;
	if (writes_record(task, dir) && write_records(task, &job, why, why_len))
		return -1;
	return give_all(task, dir, why, why_len);
}
