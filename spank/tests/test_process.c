/*
 * test_process.c - processes by pid and start time, and programs run until a deadline.
 */
#include "mps_run.h"
#include "process.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

static pid_t sleeper(const char *entry)
{
	char *argv[] = { "sleep", "30", NULL }, *envp[] = { (char *) entry, NULL };
	pid_t pid = fork();

	if (pid == 0) {
		(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void) execve("/bin/sleep", argv, envp);
		_exit(127);
	}
	while (pid > 0 && !ltgf_process_has(pid, getuid(), entry))
		ltgf_sleep_ms(2);
	return pid;
}

static void a_zombie_is_dead_and_a_reused_pid_another(void)
{
	struct ltgf_process process, other;
	pid_t parent, pid = sleeper("MARK=1");

	CHECK(ltgf_process_read(pid, &process, &parent) == 0 && parent == getpid());
	CHECK(ltgf_process_is_alive(&process));
	other = process;
	other.start--;
	CHECK(!ltgf_process_is_alive(&other));
	CHECK(ltgf_process_signal(&other, SIGKILL) == 0);	/* and does nothing */
	CHECK(ltgf_process_is_alive(&process));
	CHECK(ltgf_process_signal(&process, SIGKILL) == 0);
	while (ltgf_process_is_alive(&process))	/* a zombie from here on */
		ltgf_sleep_ms(2);
	CHECK(kill(pid, 0) == 0);
	CHECK(waitpid(pid, NULL, 0) == pid);
	CHECK(ltgf_process_read(pid, &process, NULL) < 0);
	CHECK(ltgf_process_signal(&process, SIGKILL) == 0);
}

static void only_the_whole_entry_counts(void)
{
	static const char entry[] = "CUDA_MPS_PIPE_DIRECTORY=/run/ltgf/12/mps.0/p";
	struct ltgf_process found[8];
	pid_t pid = sleeper(entry);

	CHECK(ltgf_process_find(getuid(), entry, 0, found, 8) == 1 && found[0].pid == pid);
	CHECK(ltgf_process_find(getuid(), "CUDA_MPS_PIPE_DIRECTORY=/run/ltgf/12/mps.0", 0, found,
				8) == 0);
	CHECK(ltgf_process_find(getuid(), entry + 5, 0, found, 8) == 0);
	CHECK(ltgf_process_find(getuid() + 1, entry, 0, found, 8) == 0);
	(void) kill(pid, SIGKILL);
	(void) waitpid(pid, NULL, 0);
}

static void the_kernel_names_this_boot(void)
{
	char text[40], small[36];

	CHECK(ltgf_boot_id(text, sizeof(text)) == 0 && strlen(text) == 36);
	CHECK(ltgf_boot_id(small, sizeof(small)) < 0);
}

/* RET its status; OUT out. */
static int shell(const char *script, const char *input, int ms, char *out, size_t out_len,
		 char *why)
{
	char *argv[] = { "/bin/sh", "-c", (char *) script, NULL }, *envp[] = { "A=b", NULL };
	struct ltgf_run run = { .uid = getuid(), .gid = getgid(), .argv = argv, .envp = envp,
				.input = input, .until_ms = ltgf_now_ms() + ms };

	return ltgf_run(&run, out, out_len, why, 256);
}

static void a_program_gets_nothing_of_ours(void)
{
	char out[4096], why[256];

	(void) setenv("LTGF_SECRET", "x", 1);
	(void) signal(SIGTERM, SIG_IGN);
	CHECK(shell("cat; pwd; echo $A $LTGF_SECRET; cd /proc/$$/fd; echo *", "hello\n",
		    5000, out, sizeof(out), why) == 0);
	(void) signal(SIGTERM, SIG_DFL);
	CHECK(!strncmp(out, "hello\n/\nb\n0 1 2 3\n", 19));
	CHECK(shell("echo bad >&2; exit 3", NULL, 5000, out, sizeof(out), why) == 3);
	CHECK_TEXT(out, "bad\n");
	CHECK(shell("kill -9 $$", NULL, 5000, out, sizeof(out), why) < 0);
	CHECK(strstr(why, "signal 9"));
	CHECK(shell("seq 100000", NULL, 5000, out, 10, why) == 0);
	CHECK_TEXT(out, "1\n2\n3\n4\n5");
}

static void a_deadline_ends_the_whole_group(void)
{
	struct ltgf_process found[4];
	int64_t begin = ltgf_now_ms();
	char out[64], why[256];

	CHECK(shell("echo $$; sleep 30 & sleep 30", NULL, 200, out, sizeof(out), why) < 0);
	CHECK(strstr(why, "in time"));
	CHECK(ltgf_now_ms() - begin < 1500);
	while (ltgf_process_find(getuid(), "A=b", 0, found, 4) && ltgf_now_ms() - begin < 3000)
		ltgf_sleep_ms(10);	/* the kernel takes a moment to end what was killed */
	CHECK(ltgf_process_find(getuid(), "A=b", 0, found, 4) == 0);
	/* What it leaves in the background, with our pipe open, is not waited for. */
	begin = ltgf_now_ms();
	CHECK(shell("sleep 3 & exit 0", NULL, 5000, out, sizeof(out), why) == 0);
	CHECK(ltgf_now_ms() - begin < 1500);
}

static void a_missing_program_is_said(void)
{
	char *argv[] = { "/no/such/program", NULL }, *envp[] = { NULL };
	struct ltgf_run run = { .uid = getuid(), .gid = getgid(), .argv = argv, .envp = envp,
				.until_ms = ltgf_now_ms() + 2000 };
	char out[8], why[256] = "";

	CHECK(ltgf_run(&run, out, sizeof(out), why, sizeof(why)) < 0);
	CHECK(strstr(why, "/no/such/program cannot be run"));
}

/* Root only: rights are given up whole. */
static void a_program_runs_as_the_user(void)
{
	char *argv[] = { "/bin/sh", "-c", "id -u; id -g; id -G; grep CapEff /proc/self/status",
			 NULL };
	char *envp[] = { "PATH=/usr/bin:/bin", NULL }, out[256], why[256];
	struct ltgf_run run = { .uid = 12345, .gid = 23456, .argv = argv, .envp = envp,
				.until_ms = ltgf_now_ms() + 5000 };

	if (getuid())
		return;
	CHECK(ltgf_run(&run, out, sizeof(out), why, sizeof(why)) == 0);
	CHECK_TEXT(out, "12345\n23456\n23456\nCapEff:\t0000000000000000\n");
}

int main(void)
{
	a_zombie_is_dead_and_a_reused_pid_another();
	only_the_whole_entry_counts();
	the_kernel_names_this_boot();
	a_program_gets_nothing_of_ours();
	a_deadline_ends_the_whole_group();
	a_missing_program_is_said();
	a_program_runs_as_the_user();
	return RESULT();
}
