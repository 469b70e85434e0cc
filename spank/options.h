/*
 * options.h - the options --mps… and --ckpt…: their table, what each value may be, which source
 * wins, which combinations are refused; pure.
 *
 * RET of all: 0, or -1 with one line in `why`; OUT parameters are untouched on failure.
 */
#ifndef LTGF_OPTIONS_H
#define LTGF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LTGF_TEXT 1024	/* longest value of an option, final NUL included */
#define LTGF_WHY 1536	/* room for any line of ours */

enum ltgf_option {
	LTGF_MPS,
	LTGF_MPS_MEM,
	LTGF_MPS_THREADS,
	LTGF_CKPT,
	LTGF_CKPT_SIGNAL,
	LTGF_CKPT_COMMAND,
	LTGF_CKPT_DIR,
	LTGF_CKPT_TIMEOUT,
	LTGF_CKPT_INTERVAL,
	LTGF_OPTIONS,
};

/* Where a value came from; a later one wins. */
enum ltgf_source {
	LTGF_FROM_NOWHERE,
	LTGF_FROM_SITE,		/* plugstack.conf */
	LTGF_FROM_ENV,		/* LTGF_… in the environment */
	LTGF_FROM_JOB,		/* what the job was given, seen from inside it */
	LTGF_FROM_LINE,		/* command line or #SBATCH; Slurm tells the last one last */
};

struct ltgf_option_info {
	const char *name;	/* without -- */
	const char *env;	/* LTGF_… */
	const char *arginfo;
	const char *usage;
	bool bare;		/* may stand without a value */
};

extern const struct ltgf_option_info ltgf_option_table[LTGF_OPTIONS];

/* The values as text, each valid on its own. All zero: none. */
struct ltgf_given {
	char text[LTGF_OPTIONS][LTGF_TEXT];
	enum ltgf_source from[LTGF_OPTIONS];
};

enum ltgf_mps_wish { LTGF_WISH_OFF, LTGF_WISH_JOB, LTGF_WISH_GPU };
enum ltgf_mem_kind { LTGF_MEM_NONE, LTGF_MEM_SIZE, LTGF_MEM_PERCENT, LTGF_MEM_AUTO };
enum ltgf_ckpt { LTGF_CKPT_OFF, LTGF_CKPT_APP, LTGF_CKPT_DRIVER, LTGF_CKPT_CRIU };

struct ltgf_mem {
	enum ltgf_mem_kind kind;
	uint64_t mib;		/* with SIZE */
	int percent;		/* with PERCENT: 1..100 */
	bool per_task;		/* else the job's, divided by its tasks on a GPU */
};

/* What a job asks of us, values and all. The strings lie in the `given` that it was read from. */
struct ltgf_wish {
	enum ltgf_mps_wish mps;
	struct ltgf_mem mem;
	bool threads_auto;
	int threads;		/* 1..100; 0: none */
	enum ltgf_ckpt ckpt;
	char signal[16];	/* "USR2"; "": none */
	uint32_t signal_s;	/* seconds before the end; 0: not said */
	const char *command;	/* "": none */
	const char *dir;	/* "": not said */
	uint32_t timeout_s;	/* 0: not said */
	uint32_t interval_s;	/* 0: not said */
};

/*
 * Take a value if it is valid and no better source has spoken. Later calls from one source win.
 * IN text: NULL or "" stand for the bare option where that is allowed.
 */
int ltgf_option_take(struct ltgf_given *given, enum ltgf_option option, enum ltgf_source from,
		     const char *text, char *why, size_t why_len);

/* OUT wish: the values together; contradictions are refused. */
int ltgf_wish_read(const struct ltgf_given *given, struct ltgf_wish *wish, char *why,
		   size_t why_len);

/* Is the option part of what is on: does it say anything to this job? */
bool ltgf_option_counts(const struct ltgf_wish *wish, enum ltgf_option option);

/* The word of a checkpoint mode: "off", "app", "driver", "criu". */
const char *ltgf_ckpt_word(enum ltgf_ckpt ckpt);

#endif
