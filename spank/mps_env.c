/*
 * mps_env.c - what the environment of a task of a job with MPS must hold.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "limits.h"
#include "mps.h"
#include "mps_state.h"
#include "mps_view.h"
#include "mps_why.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A device of the job: by its place in the job's list, and in its daemon's. */
struct device {
	char name[64];
	unsigned int daemon, place;
};

struct devices {
	struct device list[LTGF_MPS_DEVICES];
	size_t n;
	unsigned int daemons;
};

/* OUT all: every device of the job, in the job's order. */
static int read_all(const struct ltgf_mps_view *view, struct devices *all, char *why,
		    size_t why_len)
{
	struct ltgf_mps_state state;
	char *rest, *item;

	all->n = 0;
	for (all->daemons = 0;
	     ltgf_mps_state_of(view->rundir_fd, view->job_fd, all->daemons, &state, NULL) == 0;
	     all->daemons++) {
		unsigned int place = 0;

		for (rest = state.devices; (item = strsep(&rest, ","));) {
			struct device *device = &all->list[all->n];

			if (all->n++ >= LTGF_MPS_DEVICES || strlen(item) >= sizeof(device->name))
				return ltgf_why(why, why_len, "job %u: too many devices",
						view->job_id);
			(void) strcpy(device->name, item);
			device->daemon = all->daemons;
			device->place = place++;
		}
	}
	if (errno != ENOENT || !all->n)
		return ltgf_mps_view_unreadable(view, why, why_len);
	return 0;
}

/* OUT own: places in `all` that the task names; all if it names none. */
static int choose(const struct devices *all, const struct ltgf_mps_task *task, size_t *own,
		  size_t *n, char *why, size_t why_len)
{
	char list[LTGF_MPS_LIST], *rest = list, *item;
	bool is_own[LTGF_MPS_DEVICES] = { false };
	bool names = task->devices && task->devices[0];
	size_t i;

	if (names && strlen(task->devices) >= sizeof(list))
		return ltgf_why(why, why_len, "the task's device list is too long");
	(void) snprintf(list, sizeof(list), "%s", names ? task->devices : "");
	while (names && (item = strsep(&rest, ","))) {
		for (i = 0; i < all->n && strcmp(all->list[i].name, item); i++)
			;
		if (i == all->n)
			return ltgf_why(why, why_len,
					"device \"%s\" of the task is none of the job's", item);
		is_own[i] = true;
	}
	*n = 0;
	for (i = 0; i < all->n; i++) {
		if (!names || is_own[i])
			own[(*n)++] = i;
	}
	return 0;
}

/* A client has one daemon: where each device has its own, the task gets one device. */
static int narrow(const struct devices *all, const struct ltgf_mps_task *task, size_t *own,
		  size_t *n, char *why, size_t why_len)
{
	if (all->daemons < 2 || *n < 2)
		return 0;
	if (task->local_tasks && task->local_tasks < *n)
		return ltgf_why(
			why, why_len,
			"%u task(s) for %zu devices that each have an MPS daemon of their own: one "
			"process can use one; start a task a device, or ask for fewer devices",
			task->local_tasks, *n);
	own[0] = own[task->local_id % *n];
	*n = 1;
	return 0;
}

/*
 * OUT text: what `limits` says for the task's own devices, numbered as the task sees them. The
 * driver drops the whole text if it names a device that the client does not see.
 */
static int own_text(const char *limits, const struct devices *all, const size_t *own, size_t n,
		    char text[LTGF_MPS_LIST], char *why, size_t why_len)
{
	uint64_t mib[LTGF_MPS_DEVICES], chosen[LTGF_MPS_DEVICES];
	size_t known;

	if (!limits[0])
		return 0;
	if (ltgf_limit_read(limits, mib, LTGF_MPS_DEVICES, &known) < 0 || known != all->n)
		return ltgf_why(why, why_len,
				"memory limit \"%s\": not one 0=…M,1=…M for each of %zu", limits,
				all->n);
	for (size_t i = 0; i < n; i++)
		chosen[i] = mib[own[i]];
	if (ltgf_limit_text(chosen, n, text, LTGF_MPS_LIST) < 0)
		return ltgf_why(why, why_len, "memory limit \"%s\" is too long", limits);
	return 0;
}

/* OUT text: the job's whole limit, put together again from its daemons'. */
static int job_limit(const struct ltgf_mps_view *view, const struct devices *all, char *text,
		     size_t text_len)
{
	uint64_t mib[LTGF_MPS_DEVICES];
	struct ltgf_mps_state state;
	size_t n = 0, part;

	text[0] = '\0';
	for (unsigned int i = 0; i < all->daemons; i++) {
		if (ltgf_mps_state_of(view->rundir_fd, view->job_fd, i, &state, NULL) < 0)
			return -1;
		if (!state.mem_limit[0])
			return 0;
		if (ltgf_limit_read(state.mem_limit, mib + n, LTGF_MPS_DEVICES - n, &part) < 0)
			return -1;
		n += part;
	}
	return ltgf_limit_text(mib, n, text, text_len);
}

/*
 * OUT text: what the daemon holds a client with n devices to: the largest of its limits on each; ""
 * when it holds it to nothing (a group's jobs differ).
 */
static int held_text(const struct ltgf_mps_state *state, size_t n, char text[LTGF_MPS_LIST])
{
	uint64_t mib[LTGF_MPS_DEVICES], most = 0;
	size_t known;

	if (!state->mem_limit[0] || state->group[0])
		return 0;
	if (ltgf_limit_read(state->mem_limit, mib, LTGF_MPS_DEVICES, &known) < 0)
		return -1;
	for (size_t i = 0; i < known; i++)
		most = mib[i] > most ? mib[i] : most;
	for (size_t i = 0; i < n; i++)
		mib[i] = most;
	return ltgf_limit_text(mib, n, text, LTGF_MPS_LIST);
}

/* OUT env->visible: an index of the daemon's own numbering; a MIG device by its name. */
static void visible_text(const struct devices *all, const size_t *own, size_t n,
			 struct ltgf_mps_env *env)
{
	size_t used = 0;

	for (size_t i = 0; i < n; i++) {
		const struct device *device = &all->list[own[i]];
		char index[16];

		(void) snprintf(index, sizeof(index), "%u", device->place);
		used += (size_t) snprintf(env->visible + used, sizeof(env->visible) - used, "%s%s",
					  i ? "," : "",
					  strncmp(device->name, "MIG-", 4) ? index : device->name);
	}
}

static int fill(const struct ltgf_mps_view *view, const struct ltgf_mps_task *task,
		struct ltgf_mps_env *env, char *why, size_t why_len)
{
	char limits[LTGF_MPS_LIST];
	size_t own[LTGF_MPS_DEVICES] = { 0 }, n = 0;
	struct ltgf_mps_state state;
	struct devices all;
	unsigned int threads;

	if (read_all(view, &all, why, why_len) < 0 ||
	    choose(&all, task, own, &n, why, why_len) < 0 ||
	    narrow(&all, task, own, &n, why, why_len) < 0)
		return -1;
	if (ltgf_mps_state_of(view->rundir_fd, view->job_fd, all.list[own[0]].daemon, &state,
			      NULL) < 0 ||
	    job_limit(view, &all, limits, sizeof(limits)) < 0 ||
	    held_text(&state, n, env->held) < 0)
		return ltgf_mps_view_unreadable(view, why, why_len);
	if (own_text(task->mem_limit ? task->mem_limit : limits, &all, own, n, env->mem_limit, why,
		     why_len) < 0 ||
	    own_text(state.mem_total, &all, own, n, env->mem_total, why, why_len) < 0)
		return -1;
	visible_text(&all, own, n, env);
	(void) strcpy(env->pipe_dir, state.pipe_dir);
	(void) strcpy(env->log_dir, state.log_dir);
	threads = task->threads > 0 ? (unsigned int) task->threads : state.threads;
	if (threads >= 1 && threads <= 100)
		(void) snprintf(env->threads, sizeof(env->threads), "%u", threads);
	return 0;
}

const char *ltgf_mps_env_limit(const struct ltgf_mps_env *env)
{
	return strchr(env->mem_limit, ',') && !strcmp(env->mem_limit, env->held) ? ""
										 : env->mem_limit;
}

int ltgf_mps_client_env(const char *rundir, uint32_t job_id, const struct ltgf_mps_task *task,
			struct ltgf_mps_env *env, char *why, size_t why_len)
{
	struct ltgf_mps_view view = { .rundir = rundir, .job_id = job_id };
	struct ltgf_mps_env fresh = { 0 };
	int rc;

	if (ltgf_mps_view_open(&view, why, why_len) < 0)
		return -1;
	rc = fill(&view, task, &fresh, why, why_len);
	ltgf_mps_view_close(&view);
	if (rc == 0)
		*env = fresh;
	return rc;
}
