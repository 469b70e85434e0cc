/*
 * mps_state.c - what is remembered of one MPS daemon: "key=value" lines in a file of root's.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mps_state.h"
#include "tree.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { TEXT, COUNT };

static const struct field {
	const char *key;
	enum kind kind;
	size_t offset, size;
} fields[] = {
#define FIELD(kind, name) { #name, kind, offsetof(struct ltgf_mps_state, name), \
			    sizeof(((struct ltgf_mps_state *) NULL)->name) }
	FIELD(TEXT, boot_id), FIELD(COUNT, uid), FIELD(COUNT, gid), FIELD(TEXT, group),
	FIELD(TEXT, devices), FIELD(TEXT, pipe_dir), FIELD(TEXT, log_dir), FIELD(TEXT, control),
	FIELD(TEXT, smi), FIELD(COUNT, exclusive), FIELD(TEXT, mem_limit), FIELD(TEXT, mem_total),
	FIELD(COUNT, threads),
#undef FIELD
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

int ltgf_mps_state_write(int dir_fd, const struct ltgf_mps_state *state)
{
	char text[LTGF_MPS_STATE_TEXT];
	int wrote = snprintf(text, sizeof(text), "pid=%d\nstart=%llu\n",
			     (int) state->daemon.pid, state->daemon.start);
	size_t used = (size_t) wrote;

	for (size_t i = 0; i < FIELDS; i++) {
		const char *at = (const char *) state + fields[i].offset;
		unsigned int number;

		if (fields[i].kind == TEXT) {
			if (strchr(at, '\n')) {
				errno = EINVAL;
				return -1;
			}
			wrote = snprintf(text + used, sizeof(text) - used, "%s=%s\n",
					 fields[i].key, at);
		} else {
			memcpy(&number, at, sizeof(number));
			wrote = snprintf(text + used, sizeof(text) - used, "%s=%u\n",
					 fields[i].key, number);
		}
		if (wrote < 0 || (size_t) wrote >= sizeof(text) - used) {
			errno = EFBIG;
			return -1;
		}
		used += (size_t) wrote;
	}
	return ltgf_tree_write(dir_fd, "state", text);
}

static int read_count(const char *text, unsigned long long *number)
{
	char *end;

	errno = 0;
	*number = strtoull(text, &end, 10);
	return errno || end == text || *end ? -1 : 0;
}

static int take_field(struct ltgf_mps_state *state, const char *key, const char *value)
{
	unsigned long long number;
	unsigned int count;

	if (!strcmp(key, "pid") || !strcmp(key, "start")) {
		if (read_count(value, &number) < 0)
			return -1;
		if (*key == 'p')
			state->daemon.pid = (pid_t) number;
		else
			state->daemon.start = number;
		return 0;
	}
	for (size_t i = 0; i < FIELDS; i++) {
		char *at = (char *) state + fields[i].offset;

		if (strcmp(key, fields[i].key))
			continue;
		if (fields[i].kind == TEXT) {
			if (strlen(value) >= fields[i].size)
				return -1;
			memcpy(at, value, strlen(value) + 1);
			return 0;
		}
		if (read_count(value, &number) < 0 || number > UINT32_MAX)
			return -1;
		count = (unsigned int) number;
		memcpy(at, &count, sizeof(count));
		return 0;
	}
	return 0;	/* a later version's: not ours to judge */
}

int ltgf_mps_state_read(int dir_fd, struct ltgf_mps_state *state)
{
	char text[LTGF_MPS_STATE_TEXT], *rest = text, *line, *equals;
	struct ltgf_mps_state fresh = { 0 };

	if (ltgf_tree_read(dir_fd, "state", text, sizeof(text)) < 0)
		return -1;
	while ((line = strsep(&rest, "\n"))) {
		if (!*line)
			continue;
		equals = strchr(line, '=');
		if (equals)
			*equals = '\0';
		if (!equals || take_field(&fresh, line, equals + 1) < 0) {
			errno = EINVAL;
			return -1;
		}
	}
	if (!fresh.devices[0]) {
		errno = EINVAL;
		return -1;
	}
	*state = fresh;
	return 0;
}

void ltgf_mps_state_name(unsigned int n, char name[16])
{
	(void) snprintf(name, 16, "mps.%u", n % 100000000U);
}

/* Put the daemon of the group's own state into the job's view of it. */
static int put_group_in(int group_fd, struct ltgf_mps_state *state)
{
	struct ltgf_mps_state shared;

	if (ltgf_mps_state_read(group_fd, &shared) < 0)
		return -1;
	state->daemon = shared.daemon;
	memcpy(state->boot_id, shared.boot_id, sizeof(state->boot_id));
	memcpy(state->pipe_dir, shared.pipe_dir, sizeof(state->pipe_dir));
	memcpy(state->log_dir, shared.log_dir, sizeof(state->log_dir));
	return 0;
}

int ltgf_mps_state_of(int rundir_fd, int job_fd, unsigned int n, struct ltgf_mps_state *state,
		      int *dir_fd)
{
	char name[16];
	int fd, saved, group_fd, rc;

	ltgf_mps_state_name(n, name);
	if (ltgf_tree_open(job_fd, name, &fd) < 0)
		return -1;
	rc = ltgf_mps_state_read(fd, state);
	if (rc == 0 && state->group[0]) {
		rc = strchr(state->group, '/') ? -1 :
		     ltgf_tree_open(rundir_fd, state->group, &group_fd);
		if (rc == 0) {
			(void) close(fd);
			fd = group_fd;
			rc = put_group_in(fd, state);
		}
	}
	saved = errno;
	if (rc == 0 && dir_fd)
		*dir_fd = fd;
	else
		(void) close(fd);
	errno = saved;
	return rc;
}

bool ltgf_mps_state_is_alive(const struct ltgf_mps_state *state)
{
	char boot_id[40];

	return ltgf_boot_id(boot_id, sizeof(boot_id)) == 0 && !strcmp(boot_id, state->boot_id) &&
	       ltgf_process_is_alive(&state->daemon);
}
