/*
 * gpumap.h - files that tell monitors which job has which GPU.
 *
 * One file a GPU, named by its index or UUID as Slurm names it to the job. dcgm-exporter's job
 * mapping folder: a job id a line, several where a GPU is shared. jobstats' folder: "JOBID UID" of
 * the newest job. The folders are root's; all run as root, in prolog and epilog.
 *
 * RET: 0, or -1 with one line in `why`; what could be done is done all the same.
 */
#ifndef LTGF_GPUMAP_H
#define LTGF_GPUMAP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum ltgf_gpumap { LTGF_GPUMAP_DCGM, LTGF_GPUMAP_JOBSTATS };

/* Enter the job for each of `devices` ("0,3"). A missing folder is made, not its parents. */
int ltgf_gpumap_add(const char *folder, enum ltgf_gpumap form, const char *devices,
		    uint32_t job_id, uid_t uid, char *why, size_t why_len);

/* Strike the job out of every file of the folder; a file without a job is removed. */
int ltgf_gpumap_remove(const char *folder, uint32_t job_id, char *why, size_t why_len);

/*
 * Strike out all jobs that have ended without an epilog of ours: of whom `runs` says 0, in files
 * that nobody has written for min_age_s (a job that begins has no process yet).
 */
int ltgf_gpumap_reap(const char *folder, int (*runs)(uint32_t job_id, void *arg), void *arg,
		     unsigned int min_age_s, char *why, size_t why_len);

#endif
