/*
 * mps_daemon.c - one MPS daemon: started as the job's user, given its limits, ended.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mps_daemon.h"
#include "limits.h"
#include "mps_run.h"
#include "mps_why.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_MS 10
#define ASK_MS 2000	/* one question to a daemon; a healthy one needs 5 ms */
#define QUIT_MS 2000	/* `quit` waits for ever while a client lives */
#define GONE_MS 1000	/* from an answered `quit` to the last process */
#define SIGNAL_MS 1500
#define FOUND 512
#define ENTRY_LEN (LTGF_MPS_PATH + 32)

static void pipe_entry(const struct ltgf_mps_state *state, char entry[ENTRY_LEN])
{
	(void) snprintf(entry, ENTRY_LEN, "CUDA_MPS_PIPE_DIRECTORY=%s", state->pipe_dir);
}

/* Run nvidia-cuda-mps-control as the user. `word` is "-d" or NULL, `input` what it is asked. */
static int control(const struct ltgf_mps_state *state, const char *user, const char *word,
		   const char *input, int64_t until_ms, char *out, size_t out_len, char *why,
		   size_t why_len)
{
	char path[LTGF_MPS_PATH + 32], pipe[ENTRY_LEN], logs[ENTRY_LEN];
	char visible[LTGF_MPS_LIST + 32];
	int folder = (int) (strrchr(state->control, '/') - state->control);
	char *argv[] = { (char *) state->control, (char *) word, NULL };
	char *envp[] = { path, pipe, logs, visible, "CUDA_DEVICE_ORDER=PCI_BUS_ID", NULL };
	struct ltgf_run run = {
		.uid = state->uid, .gid = state->gid, .user = user, .argv = argv, .envp = envp,
		.input = input, .until_ms = until_ms,
	};

	(void) snprintf(path, sizeof(path), "PATH=%.*s:/usr/bin:/bin", folder, state->control);
	pipe_entry(state, pipe);
	(void) snprintf(logs, sizeof(logs), "CUDA_MPS_LOG_DIRECTORY=%s", state->log_dir);
	(void) snprintf(visible, sizeof(visible), "CUDA_VISIBLE_DEVICES=%s", state->devices);
	return ltgf_run(&run, out, out_len, why, why_len);
}

/* Ask the daemon one line. OUT answer: its first line. RET 0, or -1 with `why`. */
static int ask(const struct ltgf_mps_state *state, const char *user, const char *question,
	       int64_t until_ms, char answer[256], char *why, size_t why_len)
{
	int64_t latest = ltgf_now_ms() + ASK_MS;
	char line[160];
	int rc;

	(void) snprintf(line, sizeof(line), "%s\n", question);
	rc = control(state, user, NULL, line, until_ms < latest ? until_ms : latest, answer, 256,
		     why, why_len);
	answer[strcspn(answer, "\n")] = '\0';
	if (rc > 0)
		ltgf_why(why, why_len, "the MPS daemon does not answer \"%s\": %s", question,
			 answer[0] ? answer : "no reason given");
	return rc ? -1 : 0;
}

static int has_control(const struct ltgf_mps_state *state, char *why, size_t why_len)
{
	if (state->control[0] != '/')
		return ltgf_why(why, why_len, "\"%s\" is no absolute path: say control=/… of "
				"nvidia-cuda-mps-control in plugstack.conf", state->control);
	if (access(state->control, X_OK) < 0)
		return ltgf_why(why, why_len, "%s: %s; is the NVIDIA driver installed here?",
				state->control, strerror(errno));
	return 0;
}

/* Take the daemon's pid from its own file, and believe it only if that process is this daemon. */
static int find_daemon(struct ltgf_mps_state *state)
{
	char entry[ENTRY_LEN], text[32], *end;
	int fd, rc;
	long pid;

	if (ltgf_tree_open(AT_FDCWD, state->pipe_dir, &fd) < 0)
		return -1;
	rc = ltgf_tree_read(fd, "nvidia-cuda-mps-control.pid", text, sizeof(text));
	(void) close(fd);
	if (rc < 0)
		return -1;
	errno = 0;
	pid = strtol(text, &end, 10);
	if (errno || end == text || pid <= 1 || pid > INT32_MAX)
		return -1;
	pipe_entry(state, entry);
	if (!ltgf_process_has((pid_t) pid, state->uid, entry))
		return -1;
	return ltgf_process_read((pid_t) pid, &state->daemon, NULL);
}

/* Wait until it is there and answers; without sleeping longer than it needs. */
static int wait_ready(struct ltgf_mps_state *state, const char *user, int64_t until_ms, char *why,
		      size_t why_len)
{
	char answer[256], last[200] = "its process was not seen";

	for (;;) {
		if (find_daemon(state) == 0) {
			if (ask(state, user, "get_server_list", until_ms, answer, last,
				sizeof(last)) == 0)
				return 0;
			if (!ltgf_process_is_alive(&state->daemon))
				return ltgf_why(why, why_len, "the MPS daemon died at once (%s)",
						last);
		}
		if (ltgf_now_ms() >= until_ms)
			return ltgf_why(why, why_len, "the MPS daemon was not ready in time: %s",
					last);
		ltgf_sleep_ms(STEP_MS);
	}
}

/*
 * Set the memory limit of each device and see that it holds. The driver takes these by the client's
 * own numbering: a client that sees device 1 alone is held to the limit of 0. So where the devices'
 * limits differ each gets the largest, and the exact ones are in the tasks' environment.
 */
static int limit_memory(const struct ltgf_mps_state *state, const char *user, int64_t until_ms,
			char *why, size_t why_len)
{
	uint64_t mib[LTGF_MPS_DEVICES], most = 0;
	char line[128], answer[256];
	size_t n;

	if (ltgf_limit_read(state->mem_limit, mib, LTGF_MPS_DEVICES, &n) < 0)
		return ltgf_why(why, why_len, "\"%s\" is no memory limit", state->mem_limit);
	for (size_t i = 0; i < n; i++)
		most = mib[i] > most ? mib[i] : most;
	for (size_t i = 0; i < n; i++) {
		(void) snprintf(line, sizeof(line),
				"set_default_device_pinned_mem_limit %zu %" PRIu64 "M", i, most);
		if (ask(state, user, line, until_ms, answer, why, why_len) < 0)
			return -1;
		(void) snprintf(line, sizeof(line), "get_default_device_pinned_mem_limit %zu", i);
		if (ask(state, user, line, until_ms, answer, why, why_len) < 0)
			return -1;
		if (!ltgf_limit_is_answer(answer, most))
			return ltgf_why(why, why_len, "the MPS daemon did not take the memory "
					"limit %zu=%" PRIu64 "M: it says \"%s\"", i, most, answer);
	}
	return 0;
}

static int limit_threads(const struct ltgf_mps_state *state, const char *user, int64_t until_ms,
			 char *why, size_t why_len)
{
	char line[128], answer[256];

	(void) snprintf(line, sizeof(line), "set_default_active_thread_percentage %u",
			state->threads);
	if (ask(state, user, line, until_ms, answer, why, why_len) < 0 ||
	    ask(state, user, "get_default_active_thread_percentage", until_ms, answer, why,
		why_len) < 0)
		return -1;
	if (strtod(answer, NULL) != (double) state->threads)
		return ltgf_why(why, why_len, "the MPS daemon did not take %u%% of the threads: it "
				"says \"%s\"", state->threads, answer);
	return 0;
}

static int start_mps2(struct ltgf_mps_state *state, const char *user, int dir_fd, int64_t until_ms,
		      char *why, size_t why_len)
{
	char out[512];
	int rc = control(state, user, "-d", NULL, until_ms, out, sizeof(out), why, why_len);

	if (rc > 0) {
		out[strcspn(out, "\n")] = '\0';
		return ltgf_why(why, why_len, "%s -d failed with status %d: %s", state->control, rc,
				out[0] ? out : "no reason given");
	}
	if (rc < 0 || wait_ready(state, user, until_ms, why, why_len) < 0)
		return -1;
	if (ltgf_mps_state_write(dir_fd, state) < 0)
		return ltgf_why(why, why_len, "cannot write the state: %s", strerror(errno));
	if (state->mem_limit[0] && limit_memory(state, user, until_ms, why, why_len) < 0)
		return -1;
	if (state->threads && limit_threads(state, user, until_ms, why, why_len) < 0)
		return -1;
	return 0;
}

static void quit_mps2(const struct ltgf_mps_state *state)
{
	char out[64];

	(void) control(state, NULL, NULL, "quit\n", ltgf_now_ms() + QUIT_MS, out, sizeof(out), NULL,
		       0);
}

static const struct ltgf_mps_backend backends[] = {
	{ "mps2", has_control, start_mps2, quit_mps2 },
};

static const struct ltgf_mps_backend *choose(const struct ltgf_mps_state *state, char *why,
					     size_t why_len)
{
	for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
		if (backends[i].has(state, why, why_len) == 0)
			return &backends[i];
	}
	return NULL;
}

int ltgf_mps_daemon_start(struct ltgf_mps_state *state, const char *user, int dir_fd,
			  int64_t until_ms, char *why, size_t why_len)
{
	const struct ltgf_mps_backend *backend = choose(state, why, why_len);

	if (!backend)
		return -1;
	if (ltgf_boot_id(state->boot_id, sizeof(state->boot_id)) < 0 ||
	    ltgf_mps_state_write(dir_fd, state) < 0)
		return ltgf_why(why, why_len, "cannot write the state: %s", strerror(errno));
	if (state->exclusive && ltgf_mps_compute_mode(state, true, why, why_len) < 0)
		return -1;
	return backend->start(state, user, dir_fd, until_ms, why, why_len);
}

/* Signal (0: only count) the daemon and all that carry its pipe directory. RET how many live. */
static int signal_all(const struct ltgf_mps_state *state, int signal)
{
	bool is_alive = ltgf_mps_state_is_alive(state);
	struct ltgf_process found[FOUND];
	char entry[ENTRY_LEN];
	int n;

	pipe_entry(state, entry);
	n = ltgf_process_find(state->uid, entry, is_alive ? state->daemon.pid : 0, found, FOUND);
	if (n < 0)
		return 1;	/* not knowing is not none */
	for (int i = 0; signal && i < n; i++)
		(void) ltgf_process_signal(&found[i], signal);
	if (signal && is_alive)
		(void) ltgf_process_signal(&state->daemon, signal);
	return n ? n : is_alive;
}

static int wait_gone(const struct ltgf_mps_state *state, unsigned int wait_ms)
{
	int64_t until = ltgf_now_ms() + wait_ms;
	int left;

	while ((left = signal_all(state, 0)) > 0 && ltgf_now_ms() < until)
		ltgf_sleep_ms(STEP_MS);
	return left;
}

int ltgf_mps_daemon_stop(const struct ltgf_mps_state *state, char *why, size_t why_len)
{
	static const int signals[] = { SIGTERM, SIGKILL };
	const struct ltgf_mps_backend *backend = choose(state, NULL, 0);
	int left = signal_all(state, 0);

	if (left && backend && ltgf_mps_state_is_alive(state)) {
		int64_t asked = ltgf_now_ms();

		backend->quit(state);
		left = wait_gone(state, ltgf_now_ms() - asked < QUIT_MS ? GONE_MS : 0);
	}
	for (size_t i = 0; left && i < sizeof(signals) / sizeof(signals[0]); i++) {
		(void) signal_all(state, signals[i]);
		left = wait_gone(state, SIGNAL_MS);
	}
	if (left)
		return ltgf_why(why, why_len, "%d process(es) of uid %u with %s do not end", left,
				state->uid, state->pipe_dir);
	if (state->exclusive)
		return ltgf_mps_compute_mode(state, false, why, why_len);
	return 0;
}
