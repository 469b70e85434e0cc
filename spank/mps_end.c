/*
 * mps_end.c - the end of a job's MPS: its daemons, its part in shared ones, its directories.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mps_daemon.h"
#include "mps_names.h"
#include "mps_place.h"
#include "mps_why.h"
#include "tree.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

int ltgf_mps_end(const struct ltgf_mps_state *state, char *why, size_t why_len)
{
	if (ltgf_mps_daemon_stop(state, why, why_len) < 0)
		return -1;
	if (ltgf_mps_remove_dirs(state) < 0)
		return ltgf_why(why, why_len, "%s cannot be removed: %s", state->pipe_dir,
				strerror(errno));
	return 0;
}

/*
 * Strike members from an entered group: job_id, and those of which alive() says 0. RET how many
 * are left, -1 with errno.
 */
static int strike(int group_fd, uint32_t job_id, int (*alive)(uint32_t, void *), void *arg)
{
	struct ltgf_names names;
	int jobs_fd, left = 0;
	uint32_t member;

	if (ltgf_tree_open(group_fd, "jobs", &jobs_fd) < 0)
		return errno == ENOENT ? 0 : -1;
	if (ltgf_names_read(jobs_fd, &names) < 0) {
		(void) close(jobs_fd);
		return -1;
	}
	for (size_t i = 0; i < names.n; i++) {
		if (ltgf_names_job_id(names.list[i], &member) < 0)
			continue;
		if (member != job_id && (!alive || alive(member, arg)))
			left++;
		else if (unlinkat(jobs_fd, names.list[i], 0) < 0 && errno != ENOENT)
			left++;
	}
	ltgf_names_free(&names);
	(void) close(jobs_fd);
	return left;
}

/* End an entered group that nobody is left in, and remove it. */
static int end_group(int rundir_fd, int group_fd, const char *group, char *why, size_t why_len)
{
	struct ltgf_mps_state state;

	if (ltgf_mps_state_read(group_fd, &state) == 0) {
		if (ltgf_mps_end(&state, why, why_len) < 0)
			return -1;
	} else if (errno != ENOENT) {
		return ltgf_why(why, why_len, "%s/state: %s", group, strerror(errno));
	}
	if (ltgf_mps_retire(rundir_fd, group) < 0)
		return ltgf_why(why, why_len, "%s cannot be removed: %s", group, strerror(errno));
	return 0;
}

int ltgf_mps_leave_group(int rundir_fd, const char *group, uint32_t job_id, char *why,
			 size_t why_len)
{
	struct ltgf_mps_place place;
	int rc = 0, left;

	if (ltgf_mps_enter(rundir_fd, group, false, LTGF_MPS_WAIT_MS, &place) < 0)
		return errno == ENOENT ? 0
				       : ltgf_why(why, why_len, "%s: %s", group, strerror(errno));
	left = strike(place.dir, job_id, NULL, NULL);
	if (left < 0)
		rc = ltgf_why(why, why_len, "%s/jobs: %s", group, strerror(errno));
	else if (left == 0)
		rc = end_group(rundir_fd, place.dir, group, why, why_len);
	ltgf_mps_leave(&place);
	return rc;
}

/* End what one mps.N of a job stands for, then remove it. */
static int end_one(int rundir_fd, int job_fd, const char *name, uint32_t job_id, char *why,
		   size_t why_len)
{
	struct ltgf_mps_state state;
	int fd, rc;

	if (ltgf_tree_open(job_fd, name, &fd) < 0)
		return ltgf_why(why, why_len, "%s: %s", name, strerror(errno));
	rc = ltgf_mps_state_read(fd, &state);
	(void) close(fd);
	/* The state is written before anything is started: without one there is nothing to end. */
	if (rc < 0 && errno != ENOENT)
		return ltgf_why(why, why_len, "job %" PRIu32 ": %s/state: %s", job_id, name,
				strerror(errno));
	if (rc == 0)
		rc = state.group[0]
			     ? ltgf_mps_leave_group(rundir_fd, state.group, job_id, why, why_len)
			     : ltgf_mps_end(&state, why, why_len);
	else
		rc = 0;
	if (rc == 0 && ltgf_tree_remove(job_fd, name) < 0)
		rc = ltgf_why(why, why_len, "job %" PRIu32 ": %s cannot be removed: %s", job_id,
			      name, strerror(errno));
	return rc;
}

int ltgf_mps_end_job(int rundir_fd, int job_fd, uint32_t job_id, char *why, size_t why_len)
{
	char line[512];
	struct ltgf_names names;
	int rc = 0;

	if (ltgf_names_read(job_fd, &names) < 0)
		return ltgf_why(why, why_len, "job %" PRIu32 ": %s", job_id, strerror(errno));
	for (size_t i = 0; i < names.n; i++) {
		if (strncmp(names.list[i], "mps.", 4))
			continue;
		if (end_one(rundir_fd, job_fd, names.list[i], job_id, line, sizeof(line)) < 0 &&
		    rc == 0)
			rc = ltgf_why(why, why_len, "%s", line);
	}
	ltgf_names_free(&names);
	return rc;
}

int ltgf_mps_stop_in(int rundir_fd, uint32_t job_id, unsigned int wait_ms, bool *gone, char *why,
		     size_t why_len)
{
	struct ltgf_mps_place place;
	char name[16];
	int rc;

	(void) snprintf(name, sizeof(name), "%" PRIu32, job_id);
	if (ltgf_mps_enter(rundir_fd, name, false, wait_ms, &place) < 0) {
		if (errno == ENOENT || (errno == EWOULDBLOCK && !wait_ms))
			return 0;
		return ltgf_why(why, why_len, "job %" PRIu32 ": its MPS directory: %s", job_id,
				errno == EWOULDBLOCK ? "somebody else works on it"
						     : strerror(errno));
	}
	rc = ltgf_mps_end_job(rundir_fd, place.dir, job_id, why, why_len);
	if (rc == 0 && ltgf_mps_retire(rundir_fd, name) < 0)
		rc = ltgf_why(why, why_len,
			      "job %" PRIu32 ": its MPS directory cannot be removed: %s", job_id,
			      strerror(errno));
	ltgf_mps_leave(&place);
	*gone = rc == 0;
	return rc;
}

int ltgf_mps_stop(const char *rundir, uint32_t job_id, char *why, size_t why_len)
{
	bool gone;
	int fd, rc;

	if (ltgf_mps_rundir(rundir, false, &fd, why, why_len) < 0)
		return errno == ENOENT ? 0 : -1;
	rc = ltgf_mps_stop_in(fd, job_id, LTGF_MPS_WAIT_MS, &gone, why, why_len);
	(void) close(fd);
	return rc;
}

int ltgf_mps_trim_group(int rundir_fd, const char *group, int (*alive)(uint32_t, void *), void *arg,
			bool *gone, char *why, size_t why_len)
{
	struct ltgf_mps_place place;
	int rc = 0, left;

	if (ltgf_mps_enter(rundir_fd, group, false, 0, &place) < 0)
		return 0;
	left = strike(place.dir, 0, alive, arg);
	if (left == 0) {
		rc = end_group(rundir_fd, place.dir, group, why, why_len);
		*gone = rc == 0;
	}
	ltgf_mps_leave(&place);
	return rc;
}
