/*
 * ckpt.h - a job's checkpoint folder and the records that say how to checkpoint it.
 *
 * All of it runs with the job user's rights: nothing here is for root. RET: 0, or -1 with one line
 * in `why`; OUT untouched on failure.
 */
#ifndef LTGF_CKPT_H
#define LTGF_CKPT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "options.h"

#define LTGF_CKPT_PATH 1536	/* longest checkpoint path, final NUL included */

struct ltgf_ckpt_job {
	uint32_t job_id;
	uint32_t array_id;	/* 0: no array */
	uint32_t array_task;
	uint32_t restart;	/* SLURM_RESTART_COUNT; 0 in the first run */
	uid_t uid;
	const char *node;	/* where the job's first task is */
	const char *dir;	/* the job's folder */
};

/* OUT dir: `base` with %u, then /JOBID. */
int ltgf_ckpt_dir(const char *base, const char *user, uint32_t job_id, char *dir, size_t dir_len,
		  char *why, size_t why_len);

/* Make the folder, 0700, and what is missing above it; it must be a folder of `uid` itself. */
int ltgf_ckpt_make(const char *dir, uid_t uid, char *why, size_t why_len);

/*
 * OUT path: the last good checkpoint, which the link `last` in the folder names; "" if there is
 * none, or if it leads out of the folder or nowhere.
 */
void ltgf_ckpt_last(const char *dir, char *path, size_t path_len);

/* OUT text: the record, lines key=value, the first format=1. */
int ltgf_ckpt_record(const struct ltgf_ckpt_job *job, const struct ltgf_wish *wish, char *text,
		     size_t text_len, char *why, size_t why_len);

/* Put the text into FOLDER/NAME, whole or not at all. */
int ltgf_ckpt_write(const char *folder, const char *name, const char *text, char *why,
		    size_t why_len);

#endif
