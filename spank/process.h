/*
 * process.h - processes named so that a reused pid is never taken for them, and how to end them.
 */
#ifndef LTGF_PROCESS_H
#define LTGF_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ltgf_process {
	pid_t pid;
	unsigned long long start; /* field 22 of /proc/PID/stat: ticks since boot */
};

/* Milliseconds of a clock that never goes back. */
int64_t ltgf_now_ms(void);

/* Sleep so long, less at a signal. */
void ltgf_sleep_ms(unsigned int ms);

/* OUT text: this boot's id; 37 bytes are enough. RET 0 or -1. */
int ltgf_boot_id(char *text, size_t text_len);

/* OUT process, parent (may be NULL): of a pid. RET -1 if there is none or only a zombie. */
int ltgf_process_read(pid_t pid, struct ltgf_process *process, pid_t *parent);

/* The same process still, and no zombie? */
bool ltgf_process_is_alive(const struct ltgf_process *process);

/* Send it a signal. RET 0 also when it is gone already; -1 with errno. */
int ltgf_process_signal(const struct ltgf_process *process, int signal);

/* Does it run as uid with this "NAME=value" in the environment it was started with? */
bool ltgf_process_has(pid_t pid, uid_t uid, const char *entry);

/*
 * Processes of uid with `entry` in their environment, or children of `parent` (0: of none); never
 * the caller. OUT found[0..max-1]. RET how many are in `found`; -1 if /proc cannot be read.
 */
int ltgf_process_find(uid_t uid, const char *entry, pid_t parent, struct ltgf_process *found,
		      size_t max);

#endif
