/*
 * context_submit.c - in sbatch, salloc and srun: settle what the job asks, refuse what cannot be.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

/* End the command. An error code would be ignored, as the plugin is `optional`. */
__attribute__((noreturn)) static void refuse(const struct ltgf_shim *shim, const char *why)
{
	char line[LTGF_WHY];

	ltgf_arguments_rename(why, shim->arguments.prefix, line, sizeof(line));
	slurm_error("ltgf: %s", line);
	exit(1);
}

static void take(struct ltgf_shim *shim, enum ltgf_option option, enum ltgf_source from,
		 const char *text)
{
	char why[LTGF_WHY];

	if (text && ltgf_option_take(&shim->given, option, from, text, why, sizeof(why)))
		refuse(shim, why);
}

/* OUT name: SLURM_SPANK_LTGF_… of an option. */
static const char *control_name(enum ltgf_option option, char *name, size_t len)
{
	snprintf(name, len, LTGF_CONTROL "%s", ltgf_option_table[option].env);
	return name;
}

/* Inside a job its own values stand for what was given, and LTGF_CKPT_… are ours, not a wish. */
static void take_environment(struct ltgf_shim *shim, bool in_job)
{
	bool ours = in_job && getenv("LTGF_CKPT_MODE");
	char name[64];

	for (int i = 0; i < LTGF_OPTIONS; i++) {
		enum ltgf_option option = (enum ltgf_option)i;

		if (in_job)
			take(shim, option, LTGF_FROM_JOB,
			     getenv(control_name(option, name, sizeof(name))));
		if (i < LTGF_CKPT || !ours)
			take(shim, option, LTGF_FROM_ENV, getenv(ltgf_option_table[i].env));
	}
}

/* A step cannot have what its job's prolog did not start. */
static void check_step(const struct ltgf_shim *shim, const struct ltgf_wish *wish)
{
	const struct ltgf_given *site = &shim->arguments.site;
	const char *job = getenv(LTGF_CONTROL "LTGF_MPS");

	if (!job && site->from[LTGF_MPS])
		job = site->text[LTGF_MPS];
	if (spank_context() == S_CTX_LOCAL && wish->mps && (!job || !strcmp(job, "off")))
		refuse(shim, "this job was started without --mps, and a step cannot start it: give "
			     "--mps to sbatch or salloc");
}

/* Without a folder of the user's or the site's, checkpoints go below where the job is submitted. */
static void settle_folder(struct ltgf_shim *shim)
{
	char here[LTGF_TEXT], dir[LTGF_TEXT];
	size_t n = 0;

	if (!getcwd(here, sizeof(here)))
		refuse(shim, "the current directory has no usable name: say --ckpt-dir=DIR");
	for (const char *c = here; *c && n + 2 < sizeof(dir); c++) {
		if (*c == '%')
			dir[n++] = '%';
		dir[n++] = *c;
	}
	dir[n] = '\0';
	if (n + sizeof("/ltgf-ckpt") > sizeof(dir))
		refuse(shim, "the current directory's name is too long: say --ckpt-dir=DIR");
	strcat(dir, "/ltgf-ckpt");
	take(shim, LTGF_CKPT_DIR, LTGF_FROM_JOB, dir);
}

/*
 * Tell prolog and tasks. The job control environment reaches the prolog (SPANK_…) and the job
 * (SLURM_SPANK_…), also with --export=NONE; the environment reaches steps of srun.
 */
static void publish(spank_t spank, const struct ltgf_shim *shim, enum ltgf_option option,
		    const char *text)
{
	char name[64];

	if (spank_job_control_setenv(spank, ltgf_option_table[option].env, text, 1) !=
		    ESPANK_SUCCESS ||
	    setenv(control_name(option, name, sizeof(name)), text, 1))
		refuse(shim, "the options cannot be handed to the job: no memory?");
}

void ltgf_submit(spank_t spank, struct ltgf_shim *shim)
{
	bool in_job = getenv("SLURM_JOB_ID") != NULL;
	struct ltgf_given *given = &shim->given;
	struct ltgf_wish wish;
	char why[LTGF_WHY];

	take_environment(shim, in_job);
	if (ltgf_wish_read(given, &wish, why, sizeof(why)))
		refuse(shim, why);
	if ((wish.mps || wish.ckpt) && shim->arguments.error[0])
		refuse(shim, shim->arguments.error);
	if (in_job)
		check_step(shim, &wish);
	if (wish.ckpt && !given->from[LTGF_CKPT_DIR])
		settle_folder(shim);
	for (int i = 0; i < LTGF_OPTIONS; i++) {
		bool is_switch = i == LTGF_MPS || i == LTGF_CKPT;

		if (given->from[i] > LTGF_FROM_SITE &&	/* the nodes know the site's defaults */
		    (is_switch || ltgf_option_counts(&wish, (enum ltgf_option)i)))
			publish(spank, shim, (enum ltgf_option)i, given->text[i]);
	}
}
