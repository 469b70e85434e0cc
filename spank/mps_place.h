/*
 * mps_place.h - the run directory and the directories of jobs and groups in it: entered under a
 * lock, retired under another name.
 */
#ifndef LTGF_MPS_PLACE_H
#define LTGF_MPS_PLACE_H

#include "mps_state.h"

/* A job's (or group's) directory, entered: nobody else changes it until it is left. */
struct ltgf_mps_place {
	int dir, lock;
};

/* OUT fd: of the run directory, made if `make`. RET 0; -1 with `why` and errno. */
int ltgf_mps_rundir(const char *rundir, bool make, int *fd, char *why, size_t why_len);

/*
 * Enter a directory of the run directory, made (0711) if `make`. RET 0; -1 with errno: ENOENT none
 * there, EWOULDBLOCK somebody is in it after wait_ms.
 */
int ltgf_mps_enter(int rundir_fd, const char *name, bool make, unsigned int wait_ms,
		   struct ltgf_mps_place *place);

void ltgf_mps_leave(struct ltgf_mps_place *place);

/* Remove a directory that the caller has entered: first renamed, so that nobody enters it any more.
 */
int ltgf_mps_retire(int rundir_fd, const char *name);

/*
 * Choose where the daemon's pipe and log directories are, and make them: p and l in dir_fd, which
 * is "RUNDIR/name", or in /tmp/ltgf.NAME if a socket's path there would be too long. Sets
 * state->pipe_dir and state->log_dir. RET 0, or -1 with `why`.
 */
int ltgf_mps_make_dirs(struct ltgf_mps_state *state, const char *rundir, const char *name,
		       int dir_fd, char *why, size_t why_len);

/* Remove what ltgf_mps_make_dirs() put into /tmp, if it did. RET 0 or -1 with errno. */
int ltgf_mps_remove_dirs(const struct ltgf_mps_state *state);

/* End a daemon whose directory the caller has entered, with its directory in /tmp. RET 0, or -1. */
int ltgf_mps_end(const struct ltgf_mps_state *state, char *why, size_t why_len);

/* Take a job out of a group; the last one ends the group's daemon. No such group is success. */
int ltgf_mps_leave_group(int rundir_fd, const char *group, uint32_t job_id, char *why,
			 size_t why_len);

/* End the daemons of an entered job directory and remove theirs. RET 0, or -1 with the first why.
 */
int ltgf_mps_end_job(int rundir_fd, int job_fd, uint32_t job_id, char *why, size_t why_len);

/*
 * ltgf_mps_stop() in an open run directory. OUT gone: it was there and is no more. With wait_ms 0 a
 * directory that somebody is in is let be, which is success.
 */
int ltgf_mps_stop_in(int rundir_fd, uint32_t job_id, unsigned int wait_ms, bool *gone, char *why,
		     size_t why_len);

/*
 * Strike from a group the jobs of which alive() says 0, and end it if none is left. OUT gone: it
 * was ended. A group that somebody is in is let be.
 */
int ltgf_mps_trim_group(int rundir_fd, const char *group, int (*alive)(uint32_t, void *), void *arg,
			bool *gone, char *why, size_t why_len);

/* How long to wait for somebody in a directory. */
#define LTGF_MPS_WAIT_MS 8000

#endif
