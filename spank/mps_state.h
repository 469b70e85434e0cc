/*
 * mps_state.h - what is remembered of one MPS daemon between prolog, tasks and epilog: a small
 * file.
 */
#ifndef LTGF_MPS_STATE_H
#define LTGF_MPS_STATE_H

#include "mps.h"
#include "process.h"

#define LTGF_MPS_NAME 96 /* longest name of a job's or group's directory */
#define LTGF_MPS_STATE_TEXT 16384 /* longest state file */

struct ltgf_mps_state {
	struct ltgf_process daemon; /* pid 0: not known to run */
	char boot_id[40];
	unsigned int uid, gid;
	char group[LTGF_MPS_NAME]; /* the shared directory that holds the daemon; "": none */
	char devices[LTGF_MPS_LIST]; /* of this daemon */
	char pipe_dir[LTGF_MPS_PATH];
	char log_dir[LTGF_MPS_PATH];
	char control[LTGF_MPS_PATH];
	char smi[LTGF_MPS_PATH];
	unsigned int exclusive; /* 1: its devices' compute mode is to be reset */
	char mem_limit[LTGF_MPS_LIST]; /* of this daemon's devices, from 0 */
	char mem_total[LTGF_MPS_LIST];
	unsigned int threads;
};

/* Write the file `state` in a directory of ours. RET 0, or -1 with errno. */
int ltgf_mps_state_write(int dir_fd, const struct ltgf_mps_state *state);

/* OUT state: of the file `state`. RET 0, or -1 with errno (EINVAL: no state of ours). */
int ltgf_mps_state_read(int dir_fd, struct ltgf_mps_state *state);

/*
 * OUT state: of daemon `n` of a job's directory, a group's daemon put in. OUT dir_fd, may be NULL:
 * the directory that holds the daemon. RET 0, or -1 with errno (ENOENT: no such daemon).
 */
int ltgf_mps_state_of(int rundir_fd, int job_fd, unsigned int n, struct ltgf_mps_state *state,
		      int *dir_fd);

/* Does the daemon that the state names still run, in this boot? */
bool ltgf_mps_state_is_alive(const struct ltgf_mps_state *state);

/* OUT name: "mps.N". */
void ltgf_mps_state_name(unsigned int n, char name[16]);

#endif
