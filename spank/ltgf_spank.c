/*
 * ltgf_spank.c - Slurm's callbacks: which part of us runs in which process, nothing else.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "shim.h"

#pragma GCC visibility push(default)
SPANK_PLUGIN(ltgf, 1)
spank_f slurm_spank_init, slurm_spank_init_post_opt, slurm_spank_job_prolog, slurm_spank_job_epilog,
	slurm_spank_task_init;
#pragma GCC visibility pop

static struct ltgf_shim shim;
static struct spank_option options[LTGF_OPTIONS];
static char names[LTGF_OPTIONS][SPANK_OPTION_MAXLEN];

/* A value of an option: refused where it is typed, remembered where a node would suffer. */
static int option_given(int option, const char *text, int remote)
{
	char why[LTGF_WHY], line[LTGF_WHY];

	if (!ltgf_option_take(&shim.given, (enum ltgf_option)option, LTGF_FROM_LINE, text, why,
			      sizeof(why)))
		return 0;
	if (!remote) {
		ltgf_arguments_rename(why, shim.arguments.prefix, line, sizeof(line));
		slurm_error("ltgf: %s", line);
		return -1;
	}
	if (!shim.error[0])
		memcpy(shim.error, why, sizeof(why));
	return 0;
}

/* The site's words and our options' names; a bad word is told when somebody needs us. */
static void prepare(int count, char *words[])
{
	ltgf_arguments_read(count, words, &shim.arguments);
	shim.given = shim.arguments.site;
	for (int i = 0; i < LTGF_OPTIONS; i++) {
		const struct ltgf_option_info *info = &ltgf_option_table[i];

		snprintf(names[i], sizeof(names[i]), "%s%s", shim.arguments.prefix, info->name);
		options[i] = (struct spank_option){ names[i], (char *)info->arginfo,
						    (char *)info->usage, info->bare ? 2 : 1, i,
						    option_given };
	}
}

int slurm_spank_init(spank_t spank, int count, char *words[])
{
	prepare(count, words);
	if (spank_context() == S_CTX_SLURMD) {
		if (shim.arguments.error[0])
			slurm_error("ltgf: %s", shim.arguments.error);
		ltgf_slurmd_begins(&shim);
		return 0;
	}
	for (int i = 0; i < LTGF_OPTIONS; i++) {
		if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS)
			slurm_error("ltgf: option --%s cannot be registered: another has "
				    "it? plugstack.conf's prefix= renames ours", names[i]);
	}
	return 0;
}

int slurm_spank_init_post_opt(spank_t spank, int count, char *words[])
{
	(void)count, (void)words;
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
		ltgf_submit(spank, &shim);
		return 0;
	default:
		return 0;
	}
}

int slurm_spank_job_prolog(spank_t spank, int count, char *words[])
{
	prepare(count, words);	/* Slurm does not call slurm_spank_init in this process */
	ltgf_job_begins(spank, &shim, options);
	return 0;
}

int slurm_spank_task_init(spank_t spank, int count, char *words[])
{
	struct timespec from, to;

	(void)count, (void)words;
	clock_gettime(CLOCK_MONOTONIC, &from);
	ltgf_task_begins(spank, &shim);
	clock_gettime(CLOCK_MONOTONIC, &to);
	slurm_debug("ltgf: task_init took %ld us", (to.tv_sec - from.tv_sec) * 1000000L +
		    (to.tv_nsec - from.tv_nsec) / 1000L);
	return 0;
}

int slurm_spank_job_epilog(spank_t spank, int count, char *words[])
{
	prepare(count, words);
	ltgf_job_ends(spank, &shim);
	return 0;
}
