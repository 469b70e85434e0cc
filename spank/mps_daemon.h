/*
 * mps_daemon.h - one MPS daemon: started as the job's user, given its limits, ended.
 */
#ifndef LTGF_MPS_DAEMON_H
#define LTGF_MPS_DAEMON_H

#include "mps_state.h"

/*
 * A way to share a GPU. Today there is one, "mps2": a control daemon, limits for each client. A
 * driver from r615 on has MPS v3 and the kernel's dmem limits, which count all memory of a group of
 * clients: a backend for it goes before mps2 in the table of mps_daemon.c, and its `has` says
 * whether this node's driver and kernel can do it. The first that says yes is taken.
 */
struct ltgf_mps_backend {
	const char *name;
	/* Can this node do it? RET 0, or -1 with the reason. */
	int (*has)(const struct ltgf_mps_state *state, char *why, size_t why_len);
	/* Start it, wait until it answers, set the limits and see that they are set. */
	int (*start)(struct ltgf_mps_state *state, const char *user, int dir_fd, int64_t until_ms,
		     char *why, size_t why_len);
	/* Ask it to end; what does not is ended by force afterwards. */
	void (*quit)(const struct ltgf_mps_state *state);
};

/*
 * Start the daemon that `state` describes; its pipe and log directories (p and l in dir_fd, or
 * where state->pipe_dir says) are there. The state file is written before and after: whoever finds
 * it can stop what was started. RET 0; -1 with `why`, the daemon may run then: stop it.
 */
int ltgf_mps_daemon_start(struct ltgf_mps_state *state, const char *user, int dir_fd,
			  int64_t until_ms, char *why, size_t why_len);

/*
 * End the daemon, its servers and what else carries its pipe directory: quit, TERM, KILL; under 6
 * s. RET 0: none of them is left.
 */
int ltgf_mps_daemon_stop(const struct ltgf_mps_state *state, char *why, size_t why_len);

/* Set (or reset) EXCLUSIVE_PROCESS on the state's devices with nvidia-smi. */
int ltgf_mps_compute_mode(const struct ltgf_mps_state *state, bool exclusive, char *why,
			  size_t why_len);

#endif
