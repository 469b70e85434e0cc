/*
 * node.c - which node this is and which jobs have a slurmstepd on it.
 */
#include "node.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORD "slurmstepd: ["

/* OUT text: the first bytes of /proc/PID/cmdline. RET its length, -1 if it cannot be read. */
static ssize_t read_command_line(const char *pid, char *text, size_t text_len)
{
	char path[64];
	ssize_t n;
	int fd;

	if (snprintf(path, sizeof(path), "/proc/%.20s/cmdline", pid) >= (int)sizeof(path))
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, text_len - 1);
	close(fd);
	if (n >= 0)
		text[n] = '\0';
	return n;
}

/* OUT name: the argument after -N of this process, slurmd. */
static int name_of_slurmd(char *name, size_t name_len)
{
	char text[4096];
	ssize_t n = read_command_line("self", text, sizeof(text));

	for (char *arg = text; n > 0 && arg < text + n; arg += strlen(arg) + 1) {
		char *value = arg + 2;

		if (strncmp(arg, "-N", 2))
			continue;
		if (!*value && value + 1 < text + n)
			value++;
		return *value && snprintf(name, name_len, "%s", value) < (int)name_len ? 0 : -1;
	}
	return -1;
}

int ltgf_node_name(char *name, size_t name_len)
{
	const char *told = getenv("SLURMD_NODENAME");

	if (told && *told)
		return snprintf(name, name_len, "%s", told) < (int)name_len ? 0 : -1;
	if (!name_of_slurmd(name, name_len))
		return 0;
	if (gethostname(name, name_len))
		return -1;
	name[name_len - 1] = '\0';
	*strchrnul(name, '.') = '\0';
	return 0;
}

int ltgf_stepd_job(const char *command_line, uint32_t *job_id)
{
	unsigned long value;
	char *end;

	if (strncmp(command_line, WORD, strlen(WORD)) ||
	    !isdigit((unsigned char)command_line[strlen(WORD)]))
		return -1;
	errno = 0;
	value = strtoul(command_line + strlen(WORD), &end, 10);
	if (errno || value > UINT32_MAX || (*end != '.' && *end != ']' && *end != '_'))
		return -1;
	*job_id = (uint32_t)value;
	return 0;
}

/* Add the job of this process, if it is a slurmstepd of root's. A user can name one so, too. */
static int add_process(struct ltgf_running *running, int proc, const char *pid)
{
	uint32_t job_id, *more;
	struct stat st;
	char text[128];

	if (fstatat(proc, pid, &st, 0) || st.st_uid != 0 ||
	    read_command_line(pid, text, sizeof(text)) <= 0 || ltgf_stepd_job(text, &job_id))
		return 0;
	more = realloc(running->jobs, (running->n + 1) * sizeof(*more));
	if (!more)
		return -1;
	more[running->n++] = job_id;
	running->jobs = more;
	return 0;
}

static int read_running(struct ltgf_running *running)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	int rc = 0;

	if (!dir)
		return -1;
	while (!rc && (errno = 0, entry = readdir(dir))) {
		if (isdigit((unsigned char)entry->d_name[0]))
			rc = add_process(running, dirfd(dir), entry->d_name);
		errno = 0;
	}
	if (errno)
		rc = -1;
	closedir(dir);
	return rc;
}

int ltgf_node_runs(uint32_t job_id, void *arg)
{
	struct ltgf_running *running = arg;

	if (!running->is_read) {
		running->is_read = true;
		running->failed = read_running(running) != 0;
	}
	for (size_t i = 0; i < running->n; i++) {
		if (running->jobs[i] == job_id)
			return 1;
	}
	return running->failed;
}

void ltgf_running_free(struct ltgf_running *running)
{
	free(running->jobs);
	memset(running, 0, sizeof(*running));
}
