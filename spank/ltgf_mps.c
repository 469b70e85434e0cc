/*
 * ltgf_mps.c - the command ltgf-mps: start, look at and end the MPS of jobs on this node, by hand
 * or from Prolog and Epilog scripts; the same functions as the plugin's.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mps.h"
#include "mps_names.h"
#include "mps_place.h"
#include "tree.h"

#include <errno.h>
#include <getopt.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
"Usage: ltgf-mps COMMAND [OPTION]...\n"
"The CUDA MPS daemons of Slurm jobs on this node.\n"
"\n"
"  start --job=ID --uid=UID --devices=LIST  start the job's daemons, wait until they are ready\n"
"  check --job=ID                           are they ready and alive?\n"
"  env --job=ID                             what a task's environment must hold\n"
"  stop --job=ID                            end them and remove all of theirs\n"
"  reap [--alive=ID,..] [--min-age=S]       stop all jobs but these, e.g.\n"
"                              --alive=$(squeue -h -w $(hostname -s) -o %A | paste -sd,)\n"
"  list                                     a line a daemon\n"
"\n"
"  --rundir=DIR      run directory (/run/ltgf)\n"
"  --devices=LIST    start: 2,3 or MIG-uuid,..; env: the task's own among the job's\n"
"  --mem=LIMITS      0=9830M,1=9830M: for each client, by place in the devices\n"
"  --threads=PCT     active thread percentage, 1..100\n"
"  --mode=job|gpu    a daemon for the job, or one a GPU shared by the user's jobs\n"
"  --control=PATH    nvidia-cuda-mps-control (/usr/bin/nvidia-cuda-mps-control)\n"
"  --smi=PATH        nvidia-smi (/usr/bin/nvidia-smi);  --exclusive   EXCLUSIVE_PROCESS meanwhile\n"
"  --timeout=S       of a start (10);  --local-id=N --local-tasks=N   env: which task of how many\n"
"\n"
"Exit status: 0 done, 1 failed (one line on standard error), 2 wrong use.\n";

struct words {
	struct ltgf_mps_job job;
	struct ltgf_mps_task task;
	const char *alive;
	unsigned int min_age_s;
	bool has_job, has_uid;
};

static int read_number(const char *text, unsigned long *number)
{
	char *end;

	errno = 0;
	*number = strtoul(text, &end, 10);
	return errno || end == text || *end || *text == '-' || *number > UINT32_MAX ? -1 : 0;
}

enum word { JOB = 1, UID, LOCAL_ID, LOCAL_TASKS, THREADS, TIMEOUT, MIN_AGE, NUMBERS,
	    RUNDIR, DEVICES, MEM, MODE, CONTROL, SMI, EXCLUSIVE, ALIVE, HELP };

static const struct option options[] = {
#define WITH(name, word) { name, required_argument, NULL, word }
	WITH("job", JOB), WITH("uid", UID), WITH("local-id", LOCAL_ID),
	WITH("local-tasks", LOCAL_TASKS), WITH("threads", THREADS), WITH("timeout", TIMEOUT),
	WITH("min-age", MIN_AGE), WITH("rundir", RUNDIR), WITH("devices", DEVICES),
	WITH("mem", MEM), WITH("mode", MODE), WITH("control", CONTROL), WITH("smi", SMI),
	WITH("alive", ALIVE), { "exclusive", no_argument, NULL, EXCLUSIVE },
	{ "help", no_argument, NULL, HELP }, { NULL, 0, NULL, 0 },
#undef WITH
};

static void take_number(struct words *words, int word, unsigned long number)
{
	switch (word) {
	case JOB:
		words->job.job_id = (uint32_t) number;
		words->has_job = true;
		break;
	case UID:
		words->job.uid = (uid_t) number;
		words->has_uid = true;
		break;
	case LOCAL_ID:
		words->task.local_id = (unsigned int) number;
		break;
	case LOCAL_TASKS:
		words->task.local_tasks = (unsigned int) number;
		break;
	case THREADS:
		words->job.threads = words->task.threads = (int) number;
		break;
	case TIMEOUT:
		words->job.timeout_s = (unsigned int) number;
		break;
	default:
		words->min_age_s = (unsigned int) number;
	}
}

/* RET 0, or -1: the value is none for this word. */
static int take_text(struct words *words, int word, const char *text)
{
	switch (word) {
	case RUNDIR:
		words->job.rundir = text;
		break;
	case DEVICES:
		words->job.devices = words->task.devices = text;
		break;
	case MEM:
		words->job.mem_limit = words->task.mem_limit = text;
		break;
	case CONTROL:
		words->job.control = text;
		break;
	case SMI:
		words->job.smi = text;
		break;
	case EXCLUSIVE:
		words->job.exclusive = true;
		break;
	case ALIVE:
		words->alive = text;
		break;
	default:
		words->job.mode = strcmp(text, "gpu") ? LTGF_MPS_JOB : LTGF_MPS_GPU;
		return strcmp(text, "gpu") && strcmp(text, "job") ? -1 : 0;
	}
	return 0;
}

static int say_bad(const char *name, const char *value)
{
	(void) fprintf(stderr, "ltgf-mps: --%s=%s: not a value for it\n", name, value);
	return -1;
}

static int read_words(int argc, char **argv, struct words *words)
{
	unsigned long number;
	int word, index = 0;

	while ((word = getopt_long(argc, argv, "", options, &index)) != -1) {
		if (word == HELP)
			exit(fputs(usage, stdout) < 0);
		if (word == '?')
			return -1;
		if (word < NUMBERS ? read_number(optarg, &number) :
				     take_text(words, word, optarg))
			return say_bad(options[index].name, optarg);
		if (word < NUMBERS)
			take_number(words, word, number);
	}
	return 0;
}

static int answer(int rc, const char *why)
{
	if (rc)
		(void) fprintf(stderr, "ltgf-mps: %s\n", why);
	return rc ? 1 : 0;
}

static int start(struct words *words)
{
	struct passwd *user = getpwuid(words->job.uid);
	char why[512];

	words->job.user = user ? user->pw_name : NULL;
	words->job.gid = user ? user->pw_gid : (gid_t) words->job.uid;
	return answer(ltgf_mps_start(&words->job, why, sizeof(why)), why);
}

static int check(struct words *words)
{
	char why[512];

	return answer(ltgf_mps_check(words->job.rundir, words->job.job_id, why, sizeof(why)), why);
}

static int env(struct words *words)
{
	struct ltgf_mps_env env;
	char why[512];
	const struct { const char *name, *value; } lines[] = {
		{ "CUDA_MPS_PIPE_DIRECTORY", env.pipe_dir },
		{ "CUDA_MPS_LOG_DIRECTORY", env.log_dir }, { "CUDA_VISIBLE_DEVICES", env.visible },
		{ "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", env.threads },
	};

	if (ltgf_mps_client_env(words->job.rundir, words->job.job_id, &words->task, &env, why,
				sizeof(why)) < 0)
		return answer(-1, why);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		if (lines[i].value[0])
			(void) printf("%s=%s\n", lines[i].name, lines[i].value);
	}
	if (ltgf_mps_env_limit(&env)[0])
		(void) printf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=%s\n", env.mem_limit);
	return 0;
}

static int stop(struct words *words)
{
	char why[512];

	return answer(ltgf_mps_stop(words->job.rundir, words->job.job_id, why, sizeof(why)), why);
}

/* Is the job among the ids of --alive? */
static int is_named(uint32_t job_id, void *arg)
{
	const char *at = arg;
	char *end;

	while (at && *at) {
		if (strtoul(at, &end, 10) == job_id && end != at)
			return 1;
		at = strchr(at, ',');
		at = at ? at + 1 : NULL;
	}
	return 0;
}

static int reap(struct words *words)
{
	unsigned int stopped;
	char why[512];
	int rc;

	if (words->alive && words->alive[strspn(words->alive, "0123456789,")])
		return answer(-1, "--alive: job ids and commas only");
	rc = ltgf_mps_reap(words->job.rundir, is_named, (void *) words->alive, words->min_age_s,
			   &stopped, why, sizeof(why));
	(void) printf("%u stopped\n", stopped);
	return answer(rc, why);
}

static void list_job(int rundir_fd, const char *name)
{
	struct ltgf_mps_state state;
	int job_fd;

	if (ltgf_tree_open(rundir_fd, name, &job_fd) < 0)
		return;
	for (unsigned int n = 0; ltgf_mps_state_of(rundir_fd, job_fd, n, &state, NULL) == 0; n++)
		(void) printf("%-10s %3u %8u %8d %-5s %-20s %s\n", name, n, state.uid,
			      (int) state.daemon.pid,
			      ltgf_mps_state_is_alive(&state) ? "alive" : "dead",
			      state.mem_limit[0] ? state.mem_limit : "-", state.devices);
	(void) close(job_fd);
}

static int list(struct words *words)
{
	struct ltgf_names names;
	uint32_t job_id;
	char why[512];
	int fd;

	(void) puts("JOBID        N      UID      PID STATE LIMIT                DEVICES");
	if (ltgf_mps_rundir(words->job.rundir, false, &fd, why, sizeof(why)) < 0)
		return errno == ENOENT ? 0 : answer(-1, why);
	if (ltgf_names_read(fd, &names) == 0) {
		for (size_t i = 0; i < names.n; i++) {
			if (ltgf_names_job_id(names.list[i], &job_id) == 0)
				list_job(fd, names.list[i]);
		}
		ltgf_names_free(&names);
	}
	(void) close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(struct words *words);
		bool job, uid;	/* are needed */
	} commands[] = {
		{ "start", start, true, true }, { "check", check, true, false },
		{ "env", env, true, false }, { "stop", stop, true, false },
		{ "reap", reap, false, false }, { "list", list, false, false },
	};
	struct words words = { .job = { .rundir = "/run/ltgf", .smi = "/usr/bin/nvidia-smi",
					.control = "/usr/bin/nvidia-cuda-mps-control" } };
	bool is_read = read_words(argc, argv, &words) == 0 && optind + 1 == argc;

	for (size_t i = 0; is_read && i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (!strcmp(argv[optind], commands[i].name) &&
		    (words.has_job || !commands[i].job) && (words.has_uid || !commands[i].uid))
			return commands[i].run(&words);
	}
	(void) fputs(usage, stderr);
	return 2;
}
