/*
 * mps_view.h - a job's directory as a task sees it: read, never changed.
 */
#ifndef LTGF_MPS_VIEW_H
#define LTGF_MPS_VIEW_H

#include <stddef.h>
#include <stdint.h>

struct ltgf_mps_view {
	const char *rundir;
	uint32_t job_id;
	int rundir_fd, job_fd;
};

/* Open the directories of rundir and job_id. RET 0, or -1 with `why`. */
int ltgf_mps_view_open(struct ltgf_mps_view *view, char *why, size_t why_len);

void ltgf_mps_view_close(struct ltgf_mps_view *view);

/* RET -1, with errno's reason in `why`. */
int ltgf_mps_view_unreadable(const struct ltgf_mps_view *view, char *why, size_t why_len);

#endif
