/*
 * process.c - processes named so that a reused pid is never taken for them, and how to end them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int64_t ltgf_now_ms(void)
{
	struct timespec now;

	if (clock_gettime(CLOCK_MONOTONIC, &now) < 0)
		return 0;
	return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void ltgf_sleep_ms(unsigned int ms)
{
	struct timespec pause = { .tv_sec = ms / 1000, .tv_nsec = (long) (ms % 1000) * 1000000L };

	(void) nanosleep(&pause, NULL);
}

/* OUT text: the first text_len - 1 bytes of a file. RET how many, -1 if it cannot be read. */
static ssize_t read_start(const char *path, char *text, size_t text_len)
{
	ssize_t got;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	got = read(fd, text, text_len - 1);
	(void) close(fd);
	if (got >= 0)
		text[got] = '\0';
	return got;
}

int ltgf_boot_id(char *text, size_t text_len)
{
	char line[64];

	if (read_start("/proc/sys/kernel/random/boot_id", line, sizeof(line)) <= 0)
		return -1;
	line[strcspn(line, "\n")] = '\0';
	if (strlen(line) >= text_len)
		return -1;
	(void) strcpy(text, line);
	return 0;
}

int ltgf_process_read(pid_t pid, struct ltgf_process *process, pid_t *parent)
{
	char path[64], text[1024], state;
	unsigned long long start;
	char *after;
	int ppid;

	(void) snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
	if (read_start(path, text, sizeof(text)) <= 0)
		return -1;
	after = strrchr(text, ')');	/* the name before it may hold anything */
	if (!after || sscanf(after + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d "
			     "%*d %*d %*d %*d %*d %llu", &state, &ppid, &start) != 3)
		return -1;
	if (state == 'Z' || state == 'X')
		return -1;
	process->pid = pid;
	process->start = start;
	if (parent)
		*parent = ppid;
	return 0;
}

bool ltgf_process_is_alive(const struct ltgf_process *process)
{
	struct ltgf_process now;

	return process->pid > 0 && ltgf_process_read(process->pid, &now, NULL) == 0 &&
	       now.start == process->start;
}

int ltgf_process_signal(const struct ltgf_process *process, int signal)
{
	int fd = (int) syscall(SYS_pidfd_open, process->pid, 0);
	int rc = 0, saved;

	if (fd < 0 && errno != ENOSYS)
		return errno == ESRCH ? 0 : -1;
	/* With the descriptor held the pid cannot become another's between look and signal. */
	if (ltgf_process_is_alive(process)) {
		rc = fd >= 0 ? (int) syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0)
			     : kill(process->pid, signal);
		if (rc < 0 && errno == ESRCH)
			rc = 0;
	}
	saved = errno;
	if (fd >= 0)
		(void) close(fd);
	errno = saved;
	return rc;
}

/* Does it run as uid, by its real or its effective id? */
static bool runs_as(pid_t pid, uid_t uid)
{
	unsigned int real, effective;
	char path[64], text[4096];
	const char *line;

	(void) snprintf(path, sizeof(path), "/proc/%d/status", (int) pid);
	if (read_start(path, text, sizeof(text)) <= 0)
		return false;
	line = strstr(text, "\nUid:");
	return line && sscanf(line, "\nUid: %u %u", &real, &effective) == 2 &&
	       (real == uid || effective == uid);
}

static bool has_entry(pid_t pid, const char *entry)
{
	char path[64], *item = NULL;
	bool found = false;
	size_t room = 0;
	FILE *file;

	(void) snprintf(path, sizeof(path), "/proc/%d/environ", (int) pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	while (!found && getdelim(&item, &room, '\0', file) > 0)
		found = strcmp(item, entry) == 0;
	free(item);
	(void) fclose(file);
	return found;
}

bool ltgf_process_has(pid_t pid, uid_t uid, const char *entry)
{
	return runs_as(pid, uid) && has_entry(pid, entry);
}

/* Cheap look first: /proc/PID is its user's, or root's when the process hides itself. */
static bool may_be_of(int proc_fd, const char *name, uid_t uid)
{
	struct stat st;

	return isdigit((unsigned char) name[0]) && fstatat(proc_fd, name, &st, 0) == 0 &&
	       (st.st_uid == uid || st.st_uid == 0);
}

int ltgf_process_find(uid_t uid, const char *entry, pid_t parent, struct ltgf_process *found,
		      size_t max)
{
	struct ltgf_process process;
	struct dirent *item;
	size_t n = 0;
	pid_t ppid;
	DIR *proc = opendir("/proc");

	if (!proc)
		return -1;
	while (n < max && (item = readdir(proc))) {
		if (!may_be_of(dirfd(proc), item->d_name, uid))
			continue;
		if (ltgf_process_read((pid_t) atoi(item->d_name), &process, &ppid) < 0 ||
		    process.pid == getpid())
			continue;
		if ((has_entry(process.pid, entry) || (parent > 0 && ppid == parent)) &&
		    runs_as(process.pid, uid))
			found[n++] = process;
	}
	(void) closedir(proc);
	return (int) n;
}
