/*
 * mps.c - the start of a job's MPS daemons: what is asked, checked and cut into daemons.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mps.h"
#include "limits.h"
#include "mps_daemon.h"
#include "mps_place.h"
#include "mps_why.h"
#include "tree.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_S 10

/* A start under way. */
struct start {
	const struct ltgf_mps_job *job;
	int rundir_fd, job_fd;
	int64_t until_ms;
	char devices[LTGF_MPS_DEVICES][64];	/* one item each */
	size_t n_devices;
	uint64_t mib[LTGF_MPS_DEVICES];
	bool has_limit, is_split;		/* split: a daemon a device */
};

static const char *or_empty(const char *text)
{
	return text ? text : "";
}

/* OUT start->devices: the job's list, each item an index, a GPU's or a MIG device's name. */
static int read_devices(struct start *start, char *why, size_t why_len)
{
	char list[LTGF_MPS_LIST], *rest = list, *item;
	size_t mig = 0, n = 0;
	int rc = snprintf(list, sizeof(list), "%s", or_empty(start->job->devices));

	if (rc <= 0 || (size_t) rc >= sizeof(list))
		return ltgf_why(why, why_len, "job %" PRIu32 " has no GPU on this node: --mps "
				"needs one, ask for it with --gres or --gpus", start->job->job_id);
	while ((item = strsep(&rest, ","))) {
		size_t ok = strspn(item, "0123456789");
		bool is_mig = !strncmp(item, "MIG-", 4);

		if (is_mig || !strncmp(item, "GPU-", 4))
			ok = strspn(item, "0123456789abcdefABCDEFGIMPU-/");
		if (!*item || item[ok] || ok >= sizeof(start->devices[0]) || n >= LTGF_MPS_DEVICES)
			return ltgf_why(why, why_len, "devices \"%s\": \"%s\" is no GPU index or "
					"name", start->job->devices, item);
		mig += is_mig;
		memcpy(start->devices[n++], item, ok + 1);
	}
	if (mig && mig != n)
		return ltgf_why(why, why_len, "devices \"%s\": MIG devices and whole GPUs in one "
				"job cannot share MPS", start->job->devices);
	start->n_devices = n;
	start->is_split = mig || start->job->mode == LTGF_MPS_GPU;
	if (start->job->exclusive && (mig || start->job->mode == LTGF_MPS_GPU))
		return ltgf_why(why, why_len, "exclusive compute mode needs whole GPUs of one job");
	return 0;
}

/* OUT mib: of a list with a size for each of the devices. */
static int read_list(const struct start *start, const char *text, uint64_t *mib, char *why,
		     size_t why_len)
{
	size_t n;

	if (ltgf_limit_read(text, mib, LTGF_MPS_DEVICES, &n) == 0 && n == start->n_devices)
		return 0;
	return ltgf_why(why, why_len, "memory \"%s\": not one 0=…M,1=…M for each of %zu devices",
			text, start->n_devices);
}

static int read_limits(struct start *start, char *why, size_t why_len)
{
	const struct ltgf_mps_job *job = start->job;
	uint64_t total[LTGF_MPS_DEVICES];

	start->has_limit = or_empty(job->mem_limit)[0];
	if (start->has_limit && read_list(start, job->mem_limit, start->mib, why, why_len) < 0)
		return -1;
	if (or_empty(job->mem_total)[0] &&
	    read_list(start, job->mem_total, total, why, why_len) < 0)
		return -1;
	if (job->threads < 0 || job->threads > 100)
		return ltgf_why(why, why_len, "%d%% of threads: not within 1..100", job->threads);
	return 0;
}

/* OUT state: what daemon i of the job is to be. */
static int describe(const struct start *start, size_t i, struct ltgf_mps_state *state, char *why,
		    size_t why_len)
{
	const struct ltgf_mps_job *job = start->job;
	size_t first = start->is_split ? i : 0;
	size_t n = start->is_split ? 1 : start->n_devices;
	const struct { char *to; size_t room; const char *from; } texts[] = {
		{ state->devices, sizeof(state->devices),
		  start->is_split ? start->devices[i] : job->devices },
		{ state->control, sizeof(state->control), or_empty(job->control) },
		{ state->smi, sizeof(state->smi), or_empty(job->smi) },
		{ state->mem_total, sizeof(state->mem_total), or_empty(job->mem_total) },
	};

	memset(state, 0, sizeof(*state));
	for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++) {
		if (strlen(texts[t].from) >= texts[t].room || strchr(texts[t].from, '\n'))
			return ltgf_why(why, why_len, "\"%.40s…\" is too long or not one line",
					texts[t].from);
		memcpy(texts[t].to, texts[t].from, strlen(texts[t].from) + 1);
	}
	state->uid = job->uid;
	state->gid = job->gid;
	state->exclusive = job->exclusive;
	state->threads = (unsigned int) job->threads;
	if (start->has_limit && ltgf_limit_text(start->mib + first, n, state->mem_limit,
						sizeof(state->mem_limit)) < 0)
		return ltgf_why(why, why_len, "memory limit \"%s\" is too long", job->mem_limit);
	return 0;
}

static int write_state(int dir_fd, const struct ltgf_mps_state *state, char *why, size_t why_len)
{
	if (ltgf_mps_state_write(dir_fd, state) == 0)
		return 0;
	return ltgf_why(why, why_len, "the daemon's state cannot be written: %s", strerror(errno));
}

/* A daemon of the job's own, in mps.N. */
static int start_own(const struct start *start, const char *name, int dir_fd,
		     struct ltgf_mps_state *state, char *why, size_t why_len)
{
	char place[LTGF_MPS_NAME];

	(void) snprintf(place, sizeof(place), "%" PRIu32 "/%s", start->job->job_id, name);
	if (ltgf_mps_make_dirs(state, start->job->rundir, place, dir_fd, why, why_len) < 0)
		return -1;
	if (ltgf_mps_daemon_start(state, start->job->user, dir_fd, start->until_ms, why,
				  why_len) < 0)
		return -1;
	return write_state(dir_fd, state, why, why_len);
}

/* Start the daemon of an entered group, after what a dead one left is cleared. */
static int start_group(const struct start *start, int group_fd, const struct ltgf_mps_state *view,
		       char *why, size_t why_len)
{
	struct ltgf_mps_state state;

	if (ltgf_mps_state_read(group_fd, &state) == 0) {
		if (ltgf_mps_state_is_alive(&state))
			return 0;
		if (ltgf_mps_end(&state, why, why_len) < 0)
			return -1;
	}
	/* Its jobs differ in limits: they are in the tasks' environment only. */
	state = *view;
	state.group[0] = state.mem_limit[0] = '\0';
	state.threads = 0;
	if (ltgf_mps_make_dirs(&state, start->job->rundir, view->group, group_fd, why, why_len) < 0)
		return -1;
	if (ltgf_mps_daemon_start(&state, start->job->user, group_fd, start->until_ms, why,
				  why_len) < 0)
		return -1;
	return write_state(group_fd, &state, why, why_len);
}

/* Join the user's daemon of one device; the first job starts it. */
static int join_group(const struct start *start, int dir_fd, struct ltgf_mps_state *state,
		      char *why, size_t why_len)
{
	struct ltgf_mps_place place;
	char name[16];
	int jobs_fd, rc;

	(void) snprintf(state->group, sizeof(state->group), "g%.63s.u%u", state->devices,
			state->uid);
	for (char *c = state->group; *c; c++)
		*c = *c == '/' ? '_' : *c;
	/* The job's view comes first: whoever finds it strikes the job from the group. */
	if (write_state(dir_fd, state, why, why_len) < 0)
		return -1;
	if (ltgf_mps_enter(start->rundir_fd, state->group, true, LTGF_MPS_WAIT_MS, &place) < 0)
		return ltgf_why(why, why_len, "%s/%s: %s", start->job->rundir, state->group,
				strerror(errno));
	(void) snprintf(name, sizeof(name), "%" PRIu32, start->job->job_id);
	rc = ltgf_tree_own(place.dir, "jobs", 0711, &jobs_fd);
	if (rc == 0) {
		rc = ltgf_tree_write(jobs_fd, name, "");
		(void) close(jobs_fd);
	}
	rc = rc < 0 ? ltgf_why(why, why_len, "%s/jobs: %s", state->group, strerror(errno)) :
	     start_group(start, place.dir, state, why, why_len);
	ltgf_mps_leave(&place);
	return rc;
}

static int start_one(const struct start *start, size_t i, char *why, size_t why_len)
{
	struct ltgf_mps_state state;
	char name[16];
	int fd, rc = describe(start, i, &state, why, why_len);

	if (rc < 0)
		return -1;
	ltgf_mps_state_name((unsigned int) i, name);
	if (ltgf_tree_own(start->job_fd, name, 0711, &fd) < 0)
		return ltgf_why(why, why_len, "%s cannot be made: %s", name, strerror(errno));
	rc = start->job->mode == LTGF_MPS_GPU ? join_group(start, fd, &state, why, why_len) :
	     start_own(start, name, fd, &state, why, why_len);
	(void) close(fd);
	return rc;
}

/* Is what is there already just what is asked, ready and alive? */
static bool is_started(const struct start *start)
{
	size_t n = start->is_split ? start->n_devices : 1;
	struct ltgf_mps_state want, have;

	if (faccessat(start->job_fd, "ready", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (describe(start, i, &want, NULL, 0) < 0 ||
		    ltgf_mps_state_of(start->rundir_fd, start->job_fd, (unsigned int) i, &have,
				      NULL) < 0 ||
		    !ltgf_mps_state_is_alive(&have) || have.uid != want.uid ||
		    have.threads != want.threads || strcmp(have.devices, want.devices) ||
		    strcmp(have.mem_limit, want.mem_limit) ||
		    (have.group[0] != '\0') != (start->job->mode == LTGF_MPS_GPU))
			return false;
	}
	return true;
}

/* With the job's directory entered. */
static int start_all(struct start *start, char *why, size_t why_len)
{
	char left[256];
	size_t n;

	if (read_devices(start, why, why_len) < 0 || read_limits(start, why, why_len) < 0)
		return -1;
	if (is_started(start))
		return 0;
	(void) unlinkat(start->job_fd, "ready", 0);
	if (ltgf_mps_end_job(start->rundir_fd, start->job_fd, start->job->job_id, why, why_len) < 0)
		return -1;
	n = start->is_split ? start->n_devices : 1;
	for (size_t i = 0; i < n; i++) {
		if (start_one(start, i, why, why_len) == 0)
			continue;
		(void) ltgf_mps_end_job(start->rundir_fd, start->job_fd, start->job->job_id, left,
					sizeof(left));	/* a failure is met again by the epilog */
		return -1;
	}
	(void) unlinkat(start->job_fd, "failed", 0);
	if (ltgf_tree_write(start->job_fd, "ready", "") < 0)
		return ltgf_why(why, why_len, "ready cannot be written: %s", strerror(errno));
	return 0;
}

int ltgf_mps_start(const struct ltgf_mps_job *job, char *why, size_t why_len)
{
	struct start start = { .job = job };
	struct ltgf_mps_place place;
	char line[512], name[16];
	int rc;

	start.until_ms = ltgf_now_ms() + 1000 * (int64_t) (job->timeout_s ? job->timeout_s :
							   TIMEOUT_S);
	if (ltgf_mps_rundir(job->rundir, true, &start.rundir_fd, why, why_len) < 0)
		return -1;
	(void) snprintf(name, sizeof(name), "%" PRIu32, job->job_id);
	if (ltgf_mps_enter(start.rundir_fd, name, true, LTGF_MPS_WAIT_MS, &place) < 0) {
		rc = ltgf_why(why, why_len, "%s/%s: %s", job->rundir, name, strerror(errno));
		goto out;
	}
	start.job_fd = place.dir;
	rc = start_all(&start, line, sizeof(line));
	if (rc < 0) {
		(void) unlinkat(place.dir, "ready", 0);
		(void) ltgf_tree_write(place.dir, "failed", line);
		ltgf_why(why, why_len, "%s", line);
	}
	ltgf_mps_leave(&place);
out:
	(void) close(start.rundir_fd);
	return rc;
}
