/*
 * mps_run.c - run one short program as another user, with nothing of ours, until a deadline.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mps_run.h"
#include "mps_why.h"
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUPS 1024
#define STEP_MS 5
#define REAP_MS 500	/* a killed process stuck in the driver is not waited for longer */
#define EXIT_NO_EXEC 127
#define EXIT_NO_USER 126

/* OUT groups, n: what the child takes on; asked before the fork, as the answer needs malloc. */
static int groups_of(const struct ltgf_run *run, gid_t groups[GROUPS], int *n)
{
	*n = GROUPS;
	if (!run->user || !run->user[0]) {
		groups[0] = run->gid;
		*n = 1;
		return 0;
	}
	return getgrouplist(run->user, run->gid, groups, n) < 0 ? -1 : 0;
}

static void close_from(int first)
{
	long last = sysconf(_SC_OPEN_MAX);

#ifdef SYS_close_range
	if (syscall(SYS_close_range, (unsigned int) first, ~0U, 0) == 0)
		return;
#endif
	for (int fd = first; fd < (last > 0 && last < 65536 ? last : 65536); fd++)
		(void) close(fd);
}

/* Slurm blocks and ignores signals of its own; the program starts with none of that. */
static void reset_signals(void)
{
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		(void) signal(number, SIG_DFL);
	(void) sigemptyset(&none);
	(void) sigprocmask(SIG_SETMASK, &none, NULL);
}

/*
 * Only async-signal-safe calls from here to execve. Who is killed between fork and the end of the
 * program takes it along: else it could start a daemon that nobody looks for any more.
 */
__attribute__((noreturn))
static void be_program(const struct ltgf_run *run, const gid_t *groups, int n, int in, int out)
{
	pid_t parent = getppid();

	(void) setsid();
	reset_signals();
	/* Both are moved above 2 first, so that neither is closed by the other's dup2. */
	in = fcntl(in, F_DUPFD, 3);
	out = fcntl(out, F_DUPFD, 3);
	if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 || chdir("/") < 0)
		_exit(EXIT_NO_USER);
	close_from(3);
	if (geteuid() == 0 &&
	    (setgroups((size_t) n, groups) < 0 || setresgid(run->gid, run->gid, run->gid) < 0 ||
	     setresuid(run->uid, run->uid, run->uid) < 0))
		_exit(EXIT_NO_USER);
	if (getuid() != run->uid || geteuid() != run->uid)
		_exit(EXIT_NO_USER);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(EXIT_NO_USER);
	(void) execve(run->argv[0], run->argv, run->envp);
	_exit(EXIT_NO_EXEC);
}

/* OUT fd: a pipe that holds `input` and then ends. */
static int input_pipe(const char *input, int *fd)
{
	size_t length = input ? strlen(input) : 0;
	int ends[2], rc;

	if (length > 4096 || pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	rc = write(ends[1], input ? input : "", length) == (ssize_t) length ? 0 : -1;
	(void) close(ends[1]);
	if (rc < 0)
		(void) close(ends[0]);
	else
		*fd = ends[0];
	return rc;
}

/* Move what is there into out; the rest of a long answer is read and dropped. */
static void drain(int fd, char *out, size_t out_len, size_t *used)
{
	char chunk[512];
	ssize_t got;

	while ((got = read(fd, chunk, sizeof(chunk))) > 0) {
		for (ssize_t i = 0; i < got && *used + 1 < out_len; i++)
			out[(*used)++] = chunk[i] ? chunk[i] : ' ';
		out[*used] = '\0';
	}
}

/* RET 1: status is its end; 0: runs still; -1: not ours to wait for. */
static int ended(pid_t pid, int *status)
{
	pid_t got;

	do {
		got = waitpid(pid, status, WNOHANG);
	} while (got < 0 && errno == EINTR);
	return got < 0 ? -1 : got == pid;
}

static void end_group(pid_t pid)
{
	int64_t until = ltgf_now_ms() + REAP_MS;
	int status;

	(void) kill(-pid, SIGKILL);
	(void) kill(pid, SIGKILL);	/* if it had not come to setsid yet */
	while (ended(pid, &status) == 0 && ltgf_now_ms() < until)
		ltgf_sleep_ms(STEP_MS);
}

static int wait_for(pid_t pid, const struct ltgf_run *run, int fd, char *out, size_t out_len,
		    char *why, size_t why_len)
{
	struct pollfd watch = { .fd = fd, .events = POLLIN };
	int status = 0, done;
	size_t used = 0;

	while ((done = ended(pid, &status)) == 0 && ltgf_now_ms() < run->until_ms) {
		if (watch.fd < 0)
			ltgf_sleep_ms(STEP_MS);
		else if (poll(&watch, 1, STEP_MS) > 0 && !(watch.revents & POLLIN))
			watch.fd = -1;	/* closed by all; its end is still to come */
		drain(fd, out, out_len, &used);
	}
	drain(fd, out, out_len, &used);
	if (done < 0)
		return ltgf_why(why, why_len, "%s: its end was lost: %s", run->argv[0],
				strerror(errno));
	if (done == 0) {
		end_group(pid);
		return ltgf_why(why, why_len, "%s did not answer in time", run->argv[0]);
	}
	if (WIFSIGNALED(status))
		return ltgf_why(why, why_len, "%s was ended by signal %d", run->argv[0],
				WTERMSIG(status));
	if (WEXITSTATUS(status) == EXIT_NO_EXEC)
		return ltgf_why(why, why_len, "%s cannot be run by uid %u", run->argv[0],
				(unsigned int) run->uid);
	return WEXITSTATUS(status);
}

int ltgf_run(const struct ltgf_run *run, char *out, size_t out_len, char *why, size_t why_len)
{
	int in = -1, ends[2] = { -1, -1 }, n, rc = -1;
	gid_t groups[GROUPS];
	pid_t pid;

	out[0] = '\0';
	if (groups_of(run, groups, &n) < 0) {
		ltgf_why(why, why_len, "user %s is in more than %d groups", run->user, GROUPS);
		goto out;
	}
	if (input_pipe(run->input, &in) < 0 || pipe2(ends, O_CLOEXEC) < 0 ||
	    fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0) {
		ltgf_why(why, why_len, "no pipe for %s: %s", run->argv[0], strerror(errno));
		goto out;
	}
	pid = fork();
	if (pid == 0)
		be_program(run, groups, n, in, ends[1]);
	if (pid < 0) {
		ltgf_why(why, why_len, "no process for %s: %s", run->argv[0], strerror(errno));
		goto out;
	}
	(void) close(ends[1]);
	ends[1] = -1;
	rc = wait_for(pid, run, ends[0], out, out_len, why, why_len);
out:
	for (int i = 0; i < 2; i++) {
		if (ends[i] >= 0)
			(void) close(ends[i]);
	}
	if (in >= 0)
		(void) close(in);
	return rc;
}
