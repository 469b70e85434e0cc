/*
 * task_mps.c - the environment of a client of the job's MPS.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limits.h"
#include "mps.h"
#include "mps_why.h"
#include "share.h"
#include "task.h"
#include "values.h"

static const char *const variables[] = { "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY",
					 "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
					 "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" };

/* rundir with this node's name: as told to the task, so that it can mislead nobody but itself. */
static int find_rundir(const struct ltgf_task *task, char *rundir, char *why, size_t why_len)
{
	if (ltgf_expand_node(task->arguments->rundir, task->node_name, rundir, LTGF_PATH))
		return ltgf_why(why, why_len, "rundir=%s: too long", task->arguments->rundir);
	return 0;
}

void ltgf_task_without_mps(const struct ltgf_task *task)
{
	const char *pipe = ltgf_task_env(task, variables[0]);
	const char *pattern = task->arguments->rundir;
	size_t len = strcspn(pattern, "%");

	if (!pipe || (strncmp(pipe, pattern, len) && strncmp(pipe, "/tmp/ltgf.", 10)))
		return;
	for (size_t i = 0; i < 3; i++)
		spank_unsetenv(task->spank, variables[i]);
}

/* GPUs of this step on this node, among which its tasks are dealt. */
static unsigned int step_devices(const struct ltgf_task *task)
{
	const char *told = ltgf_task_env(task, "SLURM_GPUS_ON_NODE");
	uint64_t n;

	return told && !ltgf_read_number(told, 1, LTGF_MPS_DEVICES, &n) ? (unsigned int)n : 1;
}

/* OUT env's limits: the job's, or this task's part of them. */
static int settle_limits(const struct ltgf_task *task, struct ltgf_mps_env *env, char *why,
			 size_t why_len)
{
	const char *shards = ltgf_task_env(task, "SLURM_SHARDS_ON_NODE");
	const struct ltgf_wish *wish = &task->wish;
	unsigned int devices = step_devices(task), clients = 1;
	struct ltgf_share share = { 0, 0 };
	const char *total = env->mem_total;
	char limit[LTGF_MPS_LIST];
	int threads = 0;

	if ((wish->mem.kind == LTGF_MEM_AUTO || wish->threads_auto) &&
	    ltgf_share_read(shards, task->arguments->shards, devices, NULL, &share, why, why_len))
		return -1;
	if (ltgf_share_threads(wish, &share, &threads))
		return ltgf_why(why, why_len, "the job's share of its GPUs cannot be reckoned");
	if (!share.whole && env->mem_limit[0]) {	/* gres/mps: the prolog reckoned it */
		share = (struct ltgf_share){ 1, 1 };
		total = wish->mem.kind == LTGF_MEM_AUTO ? env->mem_limit : total;
	}
	if (!task->is_batch && task->local_tasks)
		clients = ltgf_limit_clients(task->local_tasks, devices);
	if (clients > task->arguments->clients)
		return ltgf_why(why, why_len, "%u tasks of this step share a GPU, whose MPS takes "
				"%u clients: start fewer tasks a node, or ask for more GPUs",
				clients, task->arguments->clients);
	if (ltgf_share_memory(&wish->mem, &share, total, ltgf_share_devices(env->visible),
			      clients, limit, sizeof(limit), why, why_len))
		return -1;
	if (limit[0])
		memcpy(env->mem_limit, limit, sizeof(limit));
	if (threads)
		snprintf(env->threads, sizeof(env->threads), "%d", threads);
	return 0;
}

static int set_all(const struct ltgf_task *task, const struct ltgf_mps_env *env, char *why,
		   size_t why_len)
{
	const char *const values[] = { env->pipe_dir, env->log_dir, ltgf_mps_env_limit(env),
				       env->threads };

	for (int i = 0; i < 4; i++) {
		if (!values[i][0] && i < 3)	/* gres/mps's own percentage stays */
			spank_unsetenv(task->spank, variables[i]);
		else if (values[i][0] && ltgf_task_set(task, variables[i], values[i], why, why_len))
			return -1;
	}
	if (!env->visible[0])
		return 0;
	return ltgf_task_set(task, "CUDA_VISIBLE_DEVICES", env->visible, why, why_len);
}

/* OUT devices: the task's own, in the words that the prolog had; "": all of the job's. */
static void own_devices(const struct ltgf_task *task, char *devices, size_t len)
{
	const char *visible = ltgf_task_env(task, "CUDA_VISIBLE_DEVICES");
	const char *step = ltgf_task_env(task, "SLURM_STEP_GPUS");

	if (visible && !strncmp(visible, "MIG-", 4))
		step = visible;
	devices[0] = '\0';
	if (step && !task->is_batch && strlen(step) < len)
		memcpy(devices, step, strlen(step) + 1);
}

int ltgf_task_mps(const struct ltgf_task *task, char *why, size_t why_len)
{
	char rundir[LTGF_PATH], devices[LTGF_MPS_LIST];
	struct ltgf_mps_task ask = { .local_id = (unsigned int)task->local_id,
				     .local_tasks = task->is_batch ? 0 : task->local_tasks,
				     .devices = devices };
	struct ltgf_mps_env env;

	own_devices(task, devices, sizeof(devices));
	if (find_rundir(task, rundir, why, why_len) ||
	    ltgf_mps_check(rundir, task->job_id, why, why_len) ||
	    ltgf_mps_client_env(rundir, task->job_id, &ask, &env, why, why_len) ||
	    settle_limits(task, &env, why, why_len))
		return -1;
	return set_all(task, &env, why, why_len);
}
