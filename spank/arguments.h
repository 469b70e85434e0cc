/*
 * arguments.h - plugstack.conf's words `key=value`: where things are on a node, and the site's
 * defaults for the options; pure.
 */
#ifndef LTGF_ARGUMENTS_H
#define LTGF_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

#define LTGF_PATH 256	/* longest path of plugstack.conf, final NUL included */

struct ltgf_arguments {
	char rundir[LTGF_PATH];		/* %n is the node's name; so in gpumap and gpustat */
	char control[LTGF_PATH];	/* nvidia-cuda-mps-control */
	char smi[LTGF_PATH];		/* nvidia-smi */
	char gpumap[LTGF_PATH];		/* "": no GPU-to-job files for dcgm-exporter */
	char gpustat[LTGF_PATH];	/* "": none for jobstats */
	char records[LTGF_PATH];	/* "": no records besides those in the checkpoint folders */
	char prefix[32];		/* before every option's name */
	uint64_t gpumem_mib;		/* 0: ask nvidia-smi */
	uint32_t shards;		/* per GPU; 0: not said */
	uint32_t clients;		/* that a GPU's MPS takes */
	uint32_t timeout_s;		/* for the start of MPS */
	uint32_t reap_after_s;
	uint32_t lease_s;		/* 0: no leases */
	bool exclusive;			/* EXCLUSIVE_PROCESS while a job's MPS lives */
	struct ltgf_given site;		/* defaults for the options */
	char error[LTGF_WHY];		/* the first bad word; "": none */
};

/*
 * OUT arguments: the defaults, then the words. Every bad word is skipped and the first one
 * reported. RET -1 if there was one, with the line in arguments->error.
 */
int ltgf_arguments_read(int count, char *const words[], struct ltgf_arguments *arguments);

/*
 * OUT line: `why` with `prefix` before each option's name in it, as plugstack.conf's prefix= has
 * renamed them: our lines say --mps, the user typed --lt-mps. Cut at line_len.
 */
void ltgf_arguments_rename(const char *why, const char *prefix, char *line, size_t line_len);

/* OUT path: `pattern` with %n replaced by `node` and %% by %; RET -1 if it does not fit. */
int ltgf_expand_node(const char *pattern, const char *node, char *path, size_t path_len);

#endif
