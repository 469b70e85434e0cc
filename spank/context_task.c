/*
 * context_task.c - in a task, as the user, before the user's program: what the job asks or the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "task.h"
#include "values.h"

/* Step ids with a meaning; slurm.h is not for plugins that must build with spank.h alone. */
#define STEP_BATCH 0xfffffffbU
#define STEP_EXTERN 0xfffffffcU
#define STEP_INTERACTIVE 0xfffffffaU

const char *ltgf_task_env(const struct ltgf_task *task, const char *name)
{
	size_t len = strlen(name);
	char **env;

	if (spank_get_item(task->spank, S_JOB_ENV, &env) != ESPANK_SUCCESS)
		return NULL;
	for (; env && *env; env++) {
		if (!strncmp(*env, name, len) && (*env)[len] == '=')
			return *env + len + 1;
	}
	return NULL;
}

int ltgf_task_set(const struct ltgf_task *task, const char *name, const char *value, char *why,
		  size_t why_len)
{
	spank_err_t rc = spank_setenv(task->spank, name, value, 1);

	if (rc == ESPANK_SUCCESS)
		return 0;
	snprintf(why, why_len, "%s cannot be set: %s", name, spank_strerror(rc));
	return -1;
}

/*
 * The end of this task: exit status 1 and the job FAILED. An error code would be ignored, as the
 * plugin is `optional`. The line goes to the task's stderr, where its user looks.
 */
__attribute__((noreturn)) static void fail(const struct ltgf_task *task, const char *why)
{
	char line[LTGF_WHY];

	ltgf_arguments_rename(why, task->arguments->prefix, line, sizeof(line));
	slurm_error("ltgf: job %u on %s: %s", task->job_id, task->node_name, line);
	_exit(1);
}

static void read_optional(spank_t spank, spank_item_t item, uint32_t *value)
{
	if (spank_get_item(spank, item, value) != ESPANK_SUCCESS)
		*value = 0;
}

/* OUT task: RET -1 if Slurm does not say what must be known. */
static int read_task(spank_t spank, struct ltgf_shim *shim, struct ltgf_task *task)
{
	memset(task, 0, sizeof(*task));
	task->spank = spank;
	task->arguments = &shim->arguments;
	task->given = &shim->given;
	if (spank_get_item(spank, S_JOB_ID, &task->job_id) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &task->step_id) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_TASK_ID, &task->local_id) != ESPANK_SUCCESS)
		return -1;
	read_optional(spank, S_JOB_NODEID, &task->node);
	read_optional(spank, S_JOB_LOCAL_TASK_COUNT, &task->local_tasks);
	read_optional(spank, S_JOB_ARRAY_ID, &task->array_id);
	read_optional(spank, S_JOB_ARRAY_TASK_ID, &task->array_task);
	task->is_batch = task->step_id == STEP_BATCH || task->step_id == STEP_INTERACTIVE;
	return 0;
}

/* Slurm 22.05 has no item for it in a batch script. */
static void read_restart(struct ltgf_task *task)
{
	const char *told = ltgf_task_env(task, "SLURM_RESTART_COUNT");
	uint64_t count;

	read_optional(task->spank, S_SLURM_RESTART_COUNT, &task->restart);
	if (told && !ltgf_read_number(told, 1, UINT32_MAX, &count))
		task->restart = (uint32_t)count;
}

static void read_node_name(struct ltgf_task *task)
{
	const char *name = ltgf_task_env(task, "SLURMD_NODENAME");

	if (!name || strchr(name, '/') || strlen(name) >= sizeof(task->node_name))
		name = "this-node";
	memcpy(task->node_name, name, strlen(name) + 1);
}

/* A variable of the task's environment that is a value of an option, as "LTGF_MPS=job". */
static void take_variable(struct ltgf_shim *shim, const char *variable, enum ltgf_source from)
{
	const char *value = strchr(variable, '=');
	char why[LTGF_WHY];

	for (int i = 0; value && i < LTGF_OPTIONS; i++) {
		const char *name = ltgf_option_table[i].env;
		size_t len = strlen(name);

		if (len != (size_t)(value - variable) || strncmp(variable, name, len))
			continue;
		if (ltgf_option_take(&shim->given, (enum ltgf_option)i, from, value + 1, why,
				     sizeof(why)) && !shim->error[0])
			memcpy(shim->error, why, sizeof(why));
	}
}

/* One walk: what was settled at submission, else the user's LTGF_…, which here may also be ours. */
static void take_variables(const struct ltgf_task *task, struct ltgf_shim *shim)
{
	bool ours = ltgf_task_env(task, "LTGF_CKPT_MODE") != NULL;
	char **env;

	if (spank_get_item(task->spank, S_JOB_ENV, &env) != ESPANK_SUCCESS)
		return;
	for (; env && *env; env++) {
		if (!strncmp(*env, LTGF_CONTROL "LTGF_", strlen(LTGF_CONTROL "LTGF_")))
			take_variable(shim, *env + strlen(LTGF_CONTROL), LTGF_FROM_JOB);
		else if (!strncmp(*env, "LTGF_", 5) && !(ours && !strncmp(*env, "LTGF_CKPT", 9)))
			take_variable(shim, *env, LTGF_FROM_ENV);
	}
}

/*
 * LTGF_LEASE_END: start of the job + the site's lease. Newer Slurm tells the start; else it is now
 * in the batch script, and a step takes over what the script has.
 */
static int give_lease(const struct ltgf_task *task, char *why, size_t why_len)
{
	const char *told = ltgf_task_env(task, "SLURM_JOB_START_TIME");
	uint64_t start = (uint64_t)time(NULL);
	char text[24];

	if (told)
		(void)ltgf_read_number(told, 1, UINT32_MAX, &start);
	else if (!task->is_batch && ltgf_task_env(task, "LTGF_LEASE_END"))
		return 0;
	snprintf(text, sizeof(text), "%llu",
		 (unsigned long long)start + task->arguments->lease_s);
	return ltgf_task_set(task, "LTGF_LEASE_END", text, why, why_len);
}

/* Does the job ask for something, be it in vain? */
static bool asks(const struct ltgf_shim *shim)
{
	return (shim->given.from[LTGF_MPS] && strcmp(shim->given.text[LTGF_MPS], "off")) ||
	       (shim->given.from[LTGF_CKPT] && strcmp(shim->given.text[LTGF_CKPT], "off")) ||
	       shim->error[0];
}

/* A site's default of --mps says nothing to a job without GPUs. */
static bool has_mps(const struct ltgf_task *task)
{
	return task->wish.mps && (task->given->from[LTGF_MPS] > LTGF_FROM_SITE ||
				  ltgf_task_env(task, "SLURM_GPUS_ON_NODE"));
}

void ltgf_task_begins(spank_t spank, struct ltgf_shim *shim)
{
	struct ltgf_task task;
	char why[LTGF_WHY];

	if (read_task(spank, shim, &task) || task.step_id == STEP_EXTERN)
		return;
	take_variables(&task, shim);
	if (task.arguments->lease_s && give_lease(&task, why, sizeof(why)))
		slurm_error("ltgf: job %u: %s", task.job_id, why);
	if (!asks(shim)) {
		ltgf_task_without_mps(&task);
		ltgf_task_without_ckpt(&task);
		return;
	}
	read_node_name(&task);
	read_restart(&task);
	if (shim->error[0])
		fail(&task, shim->error);
	if (shim->arguments.error[0])
		fail(&task, shim->arguments.error);
	if (ltgf_wish_read(&shim->given, &task.wish, why, sizeof(why)))
		fail(&task, why);
	if (!has_mps(&task))
		ltgf_task_without_mps(&task);
	else if (ltgf_task_mps(&task, why, sizeof(why)))
		fail(&task, why);
	if (!task.wish.ckpt)
		ltgf_task_without_ckpt(&task);
	else if (ltgf_task_ckpt(&task, why, sizeof(why)))
		fail(&task, why);
}
