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

/* OUT env's limits: the job's, or this task's part of them. */
static int settle_limits(const struct ltgf_task *task, size_t job_devices, struct ltgf_mps_env *env,
			 char *why, size_t why_len)
{
	const char *shards = ltgf_task_env(task, "SLURM_SHARDS_ON_NODE");
	const struct ltgf_wish *wish = &task->wish;
	char limit[LTGF_MPS_LIST];
	struct ltgf_mem mem = wish->mem;
	struct ltgf_share share = { 0, 0 };
	unsigned int clients;
	size_t n = ltgf_share_devices(env->visible);
	int threads = 0;

	if ((mem.kind == LTGF_MEM_AUTO || wish->threads_auto) &&
	    ltgf_share_read(shards, task->arguments->shards, job_devices, NULL, &share, why,
			    why_len))
		return -1;
	clients = ltgf_limit_clients(task->is_batch || !task->local_tasks ? 1 : task->local_tasks,
				     (unsigned int)job_devices);
	if (ltgf_share_memory(&mem, &share, env->mem_total, n, clients, limit, sizeof(limit), why,
			      why_len) ||
	    ltgf_share_threads(wish, &share, &threads))
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
	const char *const values[] = { env->pipe_dir, env->log_dir, env->mem_limit, env->threads };

	for (int i = 0; i < 4; i++) {
		if (!values[i][0])
			spank_unsetenv(task->spank, variables[i]);
		else if (ltgf_task_set(task, variables[i], values[i], why, why_len))
			return -1;
	}
	if (!env->visible[0])
		return 0;
	return ltgf_task_set(task, "CUDA_VISIBLE_DEVICES", env->visible, why, why_len);
}

int ltgf_task_mps(const struct ltgf_task *task, char *why, size_t why_len)
{
	const char *job = ltgf_task_env(task, "SLURM_JOB_GPUS");
	const char *step = ltgf_task_env(task, "SLURM_STEP_GPUS");
	struct ltgf_mps_task ask = { .local_id = (unsigned int)task->local_id,
				     .local_tasks = task->is_batch ? 0 : task->local_tasks };
	size_t job_devices = job && *job ? ltgf_share_devices(job) : 1;
	struct ltgf_mps_env env;
	char rundir[LTGF_PATH], devices[LTGF_MPS_LIST];

	if (step && strlen(step) < sizeof(devices)) {
		memcpy(devices, step, strlen(step) + 1);
		ask.devices = devices;
	}
	if (find_rundir(task, rundir, why, why_len) ||
	    ltgf_mps_check(rundir, task->job_id, why, why_len) ||
	    ltgf_mps_client_env(rundir, task->job_id, &ask, &env, why, why_len) ||
	    settle_limits(task, job_devices, &env, why, why_len))
		return -1;
	return set_all(task, &env, why, why_len);
}
