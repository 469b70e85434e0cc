/*
 * node.h - which node this is and which jobs have a slurmstepd on it, as a process of root sees it.
 */
#ifndef LTGF_NODE_H
#define LTGF_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The jobs that run here; read once, when first asked. All zero: not read yet. */
struct ltgf_running {
	uint32_t *jobs;
	size_t n;
	bool is_read, failed;
};

/* OUT name: SLURMD_NODENAME, else slurmd's -N, else the host's name up to the first dot. */
int ltgf_node_name(char *name, size_t name_len);

/* Has the job a slurmstepd of root's here? Also 1 when that cannot be read. */
int ltgf_node_runs(uint32_t job_id, void *running);

/* Free the list. */
void ltgf_running_free(struct ltgf_running *running);

/* OUT job_id: of a slurmstepd's command line, "slurmstepd: [123.batch]". RET 0 or -1. */
int ltgf_stepd_job(const char *command_line, uint32_t *job_id);

#endif
