/*
 * options.c - the options --mps… and --ckpt…: values, sources, contradictions; pure.
 */
#include "options.h"

#include <stdio.h>
#include <string.h>

#include "limits.h"
#include "mps_why.h"
#include "values.h"

const struct ltgf_option_info ltgf_option_table[LTGF_OPTIONS] = {
	[LTGF_MPS] = { "mps", "LTGF_MPS", "job|gpu|off",
		       "share GPUs among this job's processes by a private CUDA MPS daemon on each "
		       "node (job, the default), or with the user's other jobs on the GPU (gpu)",
		       true },
	[LTGF_MPS_MEM] = { "mps-mem", "LTGF_MPS_MEM", "SIZE|PCT%|auto[,per-task|per-job]",
			   "limit of device memory on each GPU: 4G, 50%, the job's share (auto); "
			   "of the whole job (default) or of each task", false },
	[LTGF_MPS_THREADS] = { "mps-threads", "LTGF_MPS_THREADS", "PCT|auto",
			       "limit of active threads: 1..100 per cent, the job's share (auto)",
			       false },
	[LTGF_CKPT] = { "ckpt", "LTGF_CKPT", "off|app|driver|criu",
			"how this job can be checkpointed: by itself (app), by the CUDA driver, by "
			"CRIU", false },
	[LTGF_CKPT_SIGNAL] = { "ckpt-signal", "LTGF_CKPT_SIGNAL", "NAME[@SECONDS]",
			       "signal that asks the job for a checkpoint, so long before it must "
			       "be done", false },
	[LTGF_CKPT_COMMAND] = { "ckpt-command", "LTGF_CKPT_COMMAND", "PATH",
				"program that makes a checkpoint of the job", false },
	[LTGF_CKPT_DIR] = { "ckpt-dir", "LTGF_CKPT_DIR", "DIR",
			    "where checkpoints go, in a folder JOBID; %u is the user, %% is %",
			    false },
	[LTGF_CKPT_TIMEOUT] = { "ckpt-timeout", "LTGF_CKPT_TIMEOUT", "TIME",
				"a checkpoint not done by then failed: 90s, 15min, or as --time",
				false },
	[LTGF_CKPT_INTERVAL] = { "ckpt-interval", "LTGF_CKPT_INTERVAL", "TIME",
				 "make a checkpoint this often: 90s, 15min, or as --time", false },
};

static const char *const mps_words[] = { "off", "job", "gpu" };
static const char *const ckpt_words[] = { "off", "app", "driver", "criu" };

const char *ltgf_ckpt_word(enum ltgf_ckpt ckpt)
{
	return ckpt_words[ckpt];
}

/* OUT index: the place of the word. */
static int read_word(const char *text, const char *const *words, size_t n, int *index)
{
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(text, words[i])) {
			*index = (int)i;
			return 0;
		}
	}
	return -1;
}

static int read_mps(const char *text, struct ltgf_wish *wish)
{
	int index;

	if (read_word(text, mps_words, 3, &index))
		return -1;
	wish->mps = (enum ltgf_mps_wish)index;
	return 0;
}

/* SIZE, PCT% or auto. */
static int read_amount(const char *text, struct ltgf_mem *mem)
{
	size_t len = strlen(text);

	if (!strcmp(text, "auto")) {
		mem->kind = LTGF_MEM_AUTO;
		return 0;
	}
	if (len && text[len - 1] == '%') {
		mem->kind = LTGF_MEM_PERCENT;
		return ltgf_read_percent(text, &mem->percent);
	}
	mem->kind = LTGF_MEM_SIZE;
	return ltgf_limit_size(text, &mem->mib);
}

static int read_mem(const char *text, struct ltgf_wish *wish)
{
	static const char *const scopes[] = { "per-job", "per-task" };
	const char *comma = strchrnul(text, ',');
	struct ltgf_mem mem = { 0 };
	int scope = 0;
	char amount[32];

	if ((size_t)(comma - text) >= sizeof(amount))
		return -1;
	memcpy(amount, text, (size_t)(comma - text));
	amount[comma - text] = '\0';
	if (*comma && read_word(comma + 1, scopes, 2, &scope))
		return -1;
	if (read_amount(amount, &mem))
		return -1;
	mem.per_task = scope == 1;
	wish->mem = mem;
	return 0;
}

static int read_threads(const char *text, struct ltgf_wish *wish)
{
	wish->threads_auto = !strcmp(text, "auto");
	return wish->threads_auto ? 0 : ltgf_read_percent(text, &wish->threads);
}

static int read_ckpt(const char *text, struct ltgf_wish *wish)
{
	int index;

	if (read_word(text, ckpt_words, 4, &index))
		return -1;
	wish->ckpt = (enum ltgf_ckpt)index;
	return 0;
}

static int read_signal(const char *text, struct ltgf_wish *wish)
{
	return ltgf_read_signal(text, wish->signal, sizeof(wish->signal), &wish->signal_s);
}

static int read_command(const char *text, struct ltgf_wish *wish)
{
	wish->command = text;
	return ltgf_check_path(text);
}

static int read_dir(const char *text, struct ltgf_wish *wish)
{
	for (const char *c = strchr(text, '%'); c; c = strchr(c + 2, '%')) {
		if (c[1] != 'u' && c[1] != '%')
			return -1;
	}
	wish->dir = text;
	return ltgf_check_path(text);
}

static int read_timeout(const char *text, struct ltgf_wish *wish)
{
	return ltgf_read_time(text, &wish->timeout_s);
}

static int read_interval(const char *text, struct ltgf_wish *wish)
{
	return ltgf_read_time(text, &wish->interval_s);
}

static const struct {
	int (*read)(const char *text, struct ltgf_wish *wish);
	const char *rule;
} readers[LTGF_OPTIONS] = {
	[LTGF_MPS] = { read_mps, "use job, gpu or off" },
	[LTGF_MPS_MEM] = { read_mem, "use a size with unit (4G, 9830M), a percentage (50%) or "
				     "auto, then ,per-task or ,per-job if wanted" },
	[LTGF_MPS_THREADS] = { read_threads, "use 1 to 100 (per cent), or auto" },
	[LTGF_CKPT] = { read_ckpt, "use off, app, driver or criu" },
	[LTGF_CKPT_SIGNAL] = { read_signal, "use a signal that a program can catch, as USR2, or "
					    "USR2@60 for 60 s ahead" },
	[LTGF_CKPT_COMMAND] = { read_command, "use an absolute path of a program, without .." },
	[LTGF_CKPT_DIR] = { read_dir, "use an absolute path, without .., where %u is the user and "
				      "%% is %" },
	[LTGF_CKPT_TIMEOUT] = { read_timeout,
				"use 1 s to 366 days, as 90s, 15min, 2h or as --time" },
	[LTGF_CKPT_INTERVAL] = { read_interval,
				 "use 1 s to 366 days, as 90s, 15min, 2h or as --time" },
};

/* "--mps-mem", "LTGF_MPS_MEM", "the site's default mps-mem": as its writer knows it. */
static const char *shown(enum ltgf_option option, enum ltgf_source from, char *buf, size_t len)
{
	const struct ltgf_option_info *info = &ltgf_option_table[option];

	if (from == LTGF_FROM_ENV)
		snprintf(buf, len, "%s", info->env);
	else if (from == LTGF_FROM_SITE)
		snprintf(buf, len, "plugstack.conf's %s", info->name);
	else
		snprintf(buf, len, "--%s", info->name);
	return buf;
}

/* A value as it may be printed: no control characters, not endless. */
static const char *printable(const char *text, char *buf, size_t len)
{
	size_t i;

	for (i = 0; text[i] && i + 1 < len; i++)
		buf[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
	buf[i] = '\0';
	return buf;
}

int ltgf_option_take(struct ltgf_given *given, enum ltgf_option option, enum ltgf_source from,
		     const char *text, char *why, size_t why_len)
{
	struct ltgf_wish scratch = { 0 };
	char name[64], value[80];

	/* Slurm 22.05 carries a missing value as the text "(null)". */
	if (ltgf_option_table[option].bare && (!text || !text[0] || !strcmp(text, "(null)")))
		text = mps_words[LTGF_WISH_JOB];
	if (from < given->from[option])
		return 0;
	if (!text || strlen(text) >= LTGF_TEXT || readers[option].read(text, &scratch))
		return ltgf_why(why, why_len, "%s=%s is not valid: %s",
			      shown(option, from, name, sizeof(name)),
			      printable(text ? text : "", value, sizeof(value)),
			      readers[option].rule);
	memcpy(given->text[option], text, strlen(text) + 1);
	given->from[option] = from;
	return 0;
}

/* A detail typed on the line whose switch nobody gave is a mistake; from elsewhere it rests. */
static int check_switches(const struct ltgf_given *given, char *why, size_t why_len)
{
	for (int i = 0; i < LTGF_OPTIONS; i++) {
		enum ltgf_option owner = i < LTGF_CKPT ? LTGF_MPS : LTGF_CKPT;

		if (given->from[i] == LTGF_FROM_LINE && given->from[owner] == LTGF_FROM_NOWHERE)
			return ltgf_why(why, why_len, "--%s says nothing without --%s: add --%s%s",
				      ltgf_option_table[i].name, ltgf_option_table[owner].name,
				      ltgf_option_table[owner].name,
				      owner == LTGF_CKPT ? "=app" : "");
	}
	return 0;
}

static int check_together(const struct ltgf_given *given, const struct ltgf_wish *wish, char *why,
			  size_t why_len)
{
	char mps[64], ckpt[64];

	if (wish->mps && wish->ckpt >= LTGF_CKPT_DRIVER)
		return ltgf_why(why, why_len, "%s=%s and %s=%s exclude each other, as the driver "
			      "cannot checkpoint MPS clients: use --ckpt=app or --mps=off",
			      shown(LTGF_MPS, given->from[LTGF_MPS], mps, sizeof(mps)),
			      given->text[LTGF_MPS],
			      shown(LTGF_CKPT, given->from[LTGF_CKPT], ckpt, sizeof(ckpt)),
			      given->text[LTGF_CKPT]);
	if (wish->ckpt && wish->timeout_s && wish->interval_s &&
	    wish->interval_s <= wish->timeout_s)
		return ltgf_why(why, why_len, "--ckpt-interval (%u s) must be longer than "
			      "--ckpt-timeout (%u s), or one checkpoint runs into the next",
			      wish->interval_s, wish->timeout_s);
	return 0;
}

int ltgf_wish_read(const struct ltgf_given *given, struct ltgf_wish *wish, char *why,
		   size_t why_len)
{
	struct ltgf_wish found = { .command = "", .dir = "" };

	if (check_switches(given, why, why_len))
		return -1;
	for (int i = 0; i < LTGF_OPTIONS; i++) {
		if (given->from[i] && readers[i].read(given->text[i], &found))
			return ltgf_why(why, why_len, "--%s is not valid: %s",
				      ltgf_option_table[i].name, readers[i].rule);
	}
	if (check_together(given, &found, why, why_len))
		return -1;
	if (found.ckpt == LTGF_CKPT_APP && !found.signal[0] && !found.command[0])
		memcpy(found.signal, "USR2", sizeof("USR2"));
	*wish = found;
	return 0;
}

bool ltgf_option_counts(const struct ltgf_wish *wish, enum ltgf_option option)
{
	return option < LTGF_CKPT ? wish->mps != LTGF_WISH_OFF : wish->ckpt != LTGF_CKPT_OFF;
}
