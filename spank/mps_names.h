/*
 * mps_names.h - the names in a directory of the run directory.
 */
#ifndef LTGF_MPS_NAMES_H
#define LTGF_MPS_NAMES_H

#include <stddef.h>
#include <stdint.h>

struct ltgf_names {
	char **list;
	size_t n;
};

/* OUT names: all, in byte order, read before any is touched; to be freed. RET 0, -1 with errno. */
int ltgf_names_read(int dir_fd, struct ltgf_names *names);

void ltgf_names_free(struct ltgf_names *names);

/* OUT job_id: of a name that is a job's number and nothing else. RET 0, else -1. */
int ltgf_names_job_id(const char *name, uint32_t *job_id);

#endif
