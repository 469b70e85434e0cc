/*
 * mps.h - a job's CUDA MPS daemons on one node: start, check, hand to tasks, stop, reap.
 *
 * Everything lives under a run directory (root's, 0755). A job has RUNDIR/JOBID (root's, 0711) with
 * one mps.N a daemon (pipe directory p and log directory l are the user's, 0700; state is root's),
 * `failed` (one line) or `ready` (empty). With LTGF_MPS_GPU the daemon is that of RUNDIR/gDEV.uUID,
 * which jobs of one user share. No function here needs Slurm.
 *
 * RET of all: 0, or -1 with one line in `why` (no newline, cut at why_len, may be NULL). OUT
 * parameters are untouched on failure unless said.
 */
#ifndef LTGF_MPS_H
#define LTGF_MPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LTGF_MPS_PATH 256	/* longest directory of ours, final NUL included */
#define LTGF_MPS_DEVICES 64	/* most devices of one job on one node */
#define LTGF_MPS_LIST 4096	/* longest device or limit list, final NUL included */

enum ltgf_mps_mode {
	LTGF_MPS_JOB = 0,	/* a daemon for this job alone (one a device with MIG) */
	LTGF_MPS_GPU,		/* a daemon for each device, shared by the user's jobs on it */
};

/* What the prolog hook knows of the job. Strings may be NULL where "" is allowed. */
struct ltgf_mps_job {
	uint32_t job_id;
	uid_t uid;
	gid_t gid;
	const char *user;	/* for its groups; NULL or "": no supplementary groups */
	const char *rundir;	/* absolute */
	const char *devices;	/* "2,3": indices on this node; or "GPU-uuid,.." or "MIG-uuid,.." */
	enum ltgf_mps_mode mode;
	const char *mem_limit;	/* "" or "0=9830M,1=9830M": for each client, by place in `devices`;
				 * what ltgf_limit_text() of limits.h makes, nothing else */
	const char *mem_total;	/* "" or "0=81920M,..", one a device: kept for the tasks */
	int threads;		/* 1..100, or 0: none */
	const char *control;	/* absolute path of nvidia-cuda-mps-control */
	const char *smi;	/* absolute path of nvidia-smi; needed with `exclusive` only */
	unsigned int timeout_s;	/* for the whole start; 0: 10 */
	bool exclusive;		/* compute mode EXCLUSIVE_PROCESS while the daemon lives */
};

/* What a task asks. All zero is a good question: everything as the job has it. */
struct ltgf_mps_task {
	unsigned int local_id;		/* SLURM_LOCALID */
	unsigned int local_tasks;	/* of the step on this node; 0: unknown, or batch step */
	const char *devices;		/* the step's or task's own among the job's, in the same
					 * words (SLURM_STEP_GPUS); NULL or "": all of the job's */
	const char *mem_limit;		/* instead of the job's, by place among the job's devices;
					 * NULL: the job's */
	int threads;			/* instead of the job's; 0: the job's */
};

/* What to set in the task's environment; "" means: do not set (and unset what is there). */
struct ltgf_mps_env {
	char pipe_dir[LTGF_MPS_PATH];	/* CUDA_MPS_PIPE_DIRECTORY; a container must bind it */
	char log_dir[LTGF_MPS_PATH];	/* CUDA_MPS_LOG_DIRECTORY */
	char visible[LTGF_MPS_LIST];	/* CUDA_VISIBLE_DEVICES as this daemon's clients say it */
	char mem_limit[LTGF_MPS_LIST];	/* by place in visible; see ltgf_mps_env_limit() */
	char held[LTGF_MPS_LIST];	/* not for the environment: what the daemon holds it to */
	char threads[8];		/* CUDA_MPS_ACTIVE_THREAD_PERCENTAGE */
	char mem_total[LTGF_MPS_LIST];	/* not for the environment: memory of the visible devices */
};

/*
 * Start the job's daemons and wait until they answer and hold the limits. For the prolog; root.
 * Idempotent. On failure nothing of the start is left but `failed` with `why`.
 */
int ltgf_mps_start(const struct ltgf_mps_job *job, char *why, size_t why_len);

/* Is the job's MPS there, ready and alive? Says `failed`'s line if it has one. For any uid. */
int ltgf_mps_check(const char *rundir, uint32_t job_id, char *why, size_t why_len);

/*
 * The environment of one task; for any uid. With several daemons (MIG, LTGF_MPS_GPU) a task gets
 * one device: its own (task->devices), else by local_id; fewer tasks than devices is refused.
 * Does not check that the daemon lives: ltgf_mps_check() does.
 */
int ltgf_mps_client_env(const char *rundir, uint32_t job_id, const struct ltgf_mps_task *task,
			struct ltgf_mps_env *env, char *why, size_t why_len);

/*
 * RET what CUDA_MPS_PINNED_DEVICE_MEM_LIMIT is to be: mem_limit; or "" where the daemon holds
 * several devices to the same. A text that names a device which the client does not see lifts all
 * limits, the daemon's too (driver 580): a task that picks one of its GPUs by CUDA_VISIBLE_DEVICES
 * would run without any.
 */
const char *ltgf_mps_env_limit(const struct ltgf_mps_env *env);

/*
 * End the job's daemons, their servers and clients, and remove their directories; root. No
 * directory is success. -1: something is left; the next stop or reap tries again.
 */
int ltgf_mps_stop(const char *rundir, uint32_t job_id, char *why, size_t why_len);

/*
 * ltgf_mps_stop() for each job of which alive(job_id, arg) says 0, and for groups without a job.
 * A job that is being started or stopped, or whose directory is younger than min_age_s, is let be.
 * OUT stopped: jobs and groups that are gone now, may be NULL. RET -1 with the first `why` if any
 * could not be ended; the others are done all the same.
 */
int ltgf_mps_reap(const char *rundir, int (*alive)(uint32_t job_id, void *arg), void *arg,
		  unsigned int min_age_s, unsigned int *stopped, char *why, size_t why_len);

/*
 * OUT text: "0=81920M,1=81920M", the total memory of each of `devices`, asked of nvidia-smi.
 * For the prolog; takes as long as nvidia-smi does.
 */
int ltgf_mps_device_memory(const char *smi, const char *devices, char *text, size_t text_len,
			   char *why, size_t why_len);

#endif
