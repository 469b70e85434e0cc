/*
 * mps_run.h - run one short program as another user, with nothing of ours, until a deadline.
 */
#ifndef LTGF_MPS_RUN_H
#define LTGF_MPS_RUN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ltgf_run {
	uid_t uid;
	gid_t gid;
	const char *user;	/* for its groups; NULL or "": none */
	char *const *argv;	/* argv[0]: absolute path; no shell, no PATH */
	char *const *envp;	/* the whole environment */
	const char *input;	/* standard input, at most 4096 bytes; NULL: empty */
	int64_t until_ms;	/* of ltgf_now_ms() */
};

/*
 * Run it in a session of its own and wait for it, not for what it leaves in the background.
 * OUT out: the start of its standard output and error, NUL-ended, always set.
 * RET its exit status; -1 with a line in `why` if it could not be run, was killed by a signal, or
 * was not done in time (its process group is killed then).
 */
int ltgf_run(const struct ltgf_run *run, char *out, size_t out_len, char *why, size_t why_len);

#endif
