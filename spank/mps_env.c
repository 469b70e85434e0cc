/*
 * mps_env.c - the task's side of a job's MPS: is it there, and what goes into the environment.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "limits.h"
#include "mps.h"
#include "mps_place.h"
#include "mps_why.h"
#include "tree.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* An open job directory. */
struct view {
	const char *rundir;
	uint32_t job_id;
	int rundir_fd, job_fd;
};

static const char *node(void)
{
	static char name[65];

	if (gethostname(name, sizeof(name) - 1) < 0)
		(void) snprintf(name, sizeof(name), "this node");
	return name;
}

static int open_view(struct view *view, char *why, size_t why_len)
{
	char name[16];

	if (ltgf_mps_rundir(view->rundir, false, &view->rundir_fd, why, why_len) < 0) {
		if (errno != ENOENT)
			return -1;
		view->rundir_fd = -1;
	}
	(void) snprintf(name, sizeof(name), "%" PRIu32, view->job_id);
	if (view->rundir_fd >= 0 && ltgf_tree_open(view->rundir_fd, name, &view->job_fd) == 0)
		return 0;
	if (view->rundir_fd >= 0)
		(void) close(view->rundir_fd);
	return ltgf_why(why, why_len,
			"the prolog hook did not run on %s for job %" PRIu32 " (no %s/%" PRIu32
			"); restart slurmd there",
			node(), view->job_id, view->rundir, view->job_id);
}

static void close_view(struct view *view)
{
	(void) close(view->job_fd);
	(void) close(view->rundir_fd);
}

static int say_unreadable(const struct view *view, char *why, size_t why_len)
{
	return ltgf_why(why, why_len, "the MPS state of job %" PRIu32 " on %s cannot be read: %s",
			view->job_id, node(), strerror(errno));
}

/* Does every daemon of the job live? */
static int check_daemons(const struct view *view, char *why, size_t why_len)
{
	struct ltgf_mps_state state;
	unsigned int n;

	for (n = 0; ltgf_mps_state_of(view->rundir_fd, view->job_fd, n, &state, NULL) == 0; n++) {
		if (!ltgf_mps_state_is_alive(&state))
			return ltgf_why(
				why, why_len,
				"the MPS daemon of job %" PRIu32 " on %s (pid %d, GPU %s) has died:"
				" a task would run without it and without its limits; see %s",
				view->job_id, node(), (int) state.daemon.pid, state.devices,
				state.log_dir);
	}
	if (errno != ENOENT || !n)
		return say_unreadable(view, why, why_len);
	return 0;
}

int ltgf_mps_check(const char *rundir, uint32_t job_id, char *why, size_t why_len)
{
	struct view view = { .rundir = rundir, .job_id = job_id };
	char line[512];
	int rc;

	if (open_view(&view, why, why_len) < 0)
		return -1;
	if (ltgf_tree_read(view.job_fd, "failed", line, sizeof(line)) == 0)
		rc = ltgf_why(why, why_len,
			      "MPS for job %" PRIu32 " could not be started on %s: %s", job_id,
			      node(), line);
	else if (ltgf_tree_read(view.job_fd, "ready", line, sizeof(line)) < 0)
		rc = ltgf_why(why, why_len,
			      "MPS for job %" PRIu32 " on %s is not ready: its start has no end",
			      job_id, node());
	else
		rc = check_daemons(&view, why, why_len);
	close_view(&view);
	return rc;
}

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
static int read_all(const struct view *view, struct devices *all, char *why, size_t why_len)
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
				return ltgf_why(why, why_len, "job %" PRIu32 ": too many devices",
						view->job_id);
			(void) strcpy(device->name, item);
			device->daemon = all->daemons;
			device->place = place++;
		}
	}
	if (errno != ENOENT || !all->n)
		return say_unreadable(view, why, why_len);
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
static int job_limit(const struct view *view, const struct devices *all, char *text,
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

static int fill(const struct view *view, const struct ltgf_mps_task *task, struct ltgf_mps_env *env,
		char *why, size_t why_len)
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
	    job_limit(view, &all, limits, sizeof(limits)) < 0)
		return say_unreadable(view, why, why_len);
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

int ltgf_mps_client_env(const char *rundir, uint32_t job_id, const struct ltgf_mps_task *task,
			struct ltgf_mps_env *env, char *why, size_t why_len)
{
	struct view view = { .rundir = rundir, .job_id = job_id };
	struct ltgf_mps_env fresh = { 0 };
	int rc;

	if (open_view(&view, why, why_len) < 0)
		return -1;
	rc = fill(&view, task, &fresh, why, why_len);
	close_view(&view);
	if (rc == 0)
		*env = fresh;
	return rc;
}
