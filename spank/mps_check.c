/*
 * mps_check.c - is a job's MPS there, ready and alive? What a task asks before it starts.
 */
#include "mps_place.h"
#include "mps_view.h"
#include "mps_why.h"
#include "tree.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static const char *node(void)
{
	static char name[65];

	if (gethostname(name, sizeof(name) - 1) < 0)
		(void) snprintf(name, sizeof(name), "this node");
	return name;
}

int ltgf_mps_view_open(struct ltgf_mps_view *view, char *why, size_t why_len)
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

void ltgf_mps_view_close(struct ltgf_mps_view *view)
{
	(void) close(view->job_fd);
	(void) close(view->rundir_fd);
}

int ltgf_mps_view_unreadable(const struct ltgf_mps_view *view, char *why, size_t why_len)
{
	return ltgf_why(why, why_len, "the MPS state of job %" PRIu32 " on %s cannot be read: %s",
			view->job_id, node(), strerror(errno));
}

/* Does every daemon of the job live? */
static int check_daemons(const struct ltgf_mps_view *view, char *why, size_t why_len)
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
		return ltgf_mps_view_unreadable(view, why, why_len);
	return 0;
}

int ltgf_mps_check(const char *rundir, uint32_t job_id, char *why, size_t why_len)
{
	struct ltgf_mps_view view = { .rundir = rundir, .job_id = job_id };
	char line[512];
	int rc;

	if (ltgf_mps_view_open(&view, why, why_len) < 0)
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
	ltgf_mps_view_close(&view);
	return rc;
}
