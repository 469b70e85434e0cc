/*
 * context_node.c - as root on a node, before and after a job: MPS, GPU-to-job files, reaping.
 *
 * Nothing here fails the node. What could not be started is written down (`failed` in the job's
 * run directory) and told by the job's tasks, which fail by it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpumap.h"
#include "mps.h"
#include "node.h"
#include "share.h"
#include "shim.h"
#include "tree.h"
#include "values.h"

/* What Slurm tells the prolog of a job. */
struct node_job {
	uint32_t id;
	uid_t uid;
	gid_t gid;
	const char *user, *devices;
	char rundir[LTGF_PATH];
};

/* A variable of this process; "" counts as none. */
static const char *said(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* OUT path: a directory of plugstack.conf with this node's name in it. */
static int local_path(const char *pattern, char *path)
{
	char node[256] = "";

	if (strstr(pattern, "%n") && (ltgf_node_name(node, sizeof(node)) || strchr(node, '/')))
		return -1;
	return ltgf_expand_node(pattern, node, path, LTGF_PATH);
}

static int read_job(spank_t spank, const struct ltgf_shim *shim, struct node_job *job)
{
	const char *gid = said("SLURM_JOB_GID");
	uint64_t number = 0;

	memset(job, 0, sizeof(*job));
	if (spank_get_item(spank, S_JOB_ID, &job->id) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_UID, &job->uid) != ESPANK_SUCCESS) {
		slurm_error("ltgf: Slurm does not say which job this is: nothing done");
		return -1;
	}
	if (gid && !ltgf_read_number(gid, 0, UINT32_MAX, &number))
		job->gid = (gid_t)number;
	else
		job->gid = (gid_t)-1;
	job->user = said("SLURM_JOB_USER");
	job->devices = said("SLURM_JOB_GPUS");
	if (!job->devices || (said("CUDA_VISIBLE_DEVICES") &&
			      !strncmp(said("CUDA_VISIBLE_DEVICES"), "MIG-", 4)))
		job->devices = said("CUDA_VISIBLE_DEVICES");
	if (!job->devices || !strcmp(job->devices, "NoDevFiles"))
		job->devices = "";
	if (local_path(shim->arguments.rundir, job->rundir)) {
		slurm_error("ltgf: job %u: rundir=%s cannot be made a path of this node", job->id,
			    shim->arguments.rundir);
		return -1;
	}
	return 0;
}

/* The job's values: SPANK_LTGF_… hold what was settled at submission; else Slurm's own. */
static void take_options(spank_t spank, struct ltgf_shim *shim, struct spank_option *options)
{
	char why[LTGF_WHY], name[64], *text;

	for (int i = 0; i < LTGF_OPTIONS; i++) {
		const char *settled;

		snprintf(name, sizeof(name), "SPANK_%s", ltgf_option_table[i].env);
		settled = said(name);
		text = NULL;
		if (!settled && spank_option_getopt(spank, &options[i], &text) != ESPANK_SUCCESS)
			continue;
		if (ltgf_option_take(&shim->given, (enum ltgf_option)i, LTGF_FROM_LINE,
				     settled ? settled : text, why, sizeof(why)) &&
		    !shim->error[0])
			memcpy(shim->error, why, sizeof(why));
	}
}

/* Leave the line for the job's tasks. */
static void leave_failure(const struct node_job *job, const char *why)
{
	char name[16], line[LTGF_WHY + 1];
	int rundir = -1, dir = -1;

	slurm_error("ltgf: job %u: MPS not started: %s", job->id, why);
	snprintf(name, sizeof(name), "%u", job->id);
	snprintf(line, sizeof(line), "%s\n", why);
	if (ltgf_tree_own(AT_FDCWD, job->rundir, 0755, &rundir) ||
	    ltgf_tree_own(rundir, name, 0711, &dir) || ltgf_tree_write(dir, "failed", line))
		slurm_error("ltgf: job %u: %s/%s/failed: %s", job->id, job->rundir, name,
			    strerror(errno));
	if (dir >= 0)
		close(dir);
	if (rundir >= 0)
		close(rundir);
}

/* OUT total: the memory of the job's GPUs, if the limits need it; else "". */
static int find_memory(const struct ltgf_arguments *arguments, const struct node_job *job,
		       const struct ltgf_wish *wish, const struct ltgf_share *share, char *total,
		       char *why)
{
	struct ltgf_mem whole = { .kind = LTGF_MEM_SIZE, .mib = arguments->gpumem_mib,
				  .per_task = true };

	total[0] = '\0';
	if (wish->mem.kind < LTGF_MEM_PERCENT ||
	    (wish->mem.kind == LTGF_MEM_AUTO && !share->whole && !arguments->shards))
		return 0;
	if (arguments->gpumem_mib)
		return ltgf_share_memory(&whole, share, "", ltgf_share_devices(job->devices), 1,
					 total, LTGF_MPS_LIST, why, LTGF_WHY);
	return ltgf_mps_device_memory(arguments->smi, job->devices, total, LTGF_MPS_LIST, why,
				      LTGF_WHY);
}

/* The limits here are what one client may have at most; tasks get their part of a job's. */
static int start_mps(const struct ltgf_arguments *arguments, const struct node_job *job,
		     const struct ltgf_wish *wish, char *why)
{
	size_t n = ltgf_share_devices(job->devices);
	char limit[LTGF_MPS_LIST], total[LTGF_MPS_LIST];
	struct ltgf_share share = { 0, 0 };
	struct ltgf_mps_job mps = {
		.job_id = job->id, .uid = job->uid, .gid = job->gid, .user = job->user,
		.rundir = job->rundir, .devices = job->devices, .mem_limit = limit,
		.mem_total = total, .control = arguments->control, .smi = arguments->smi,
		.mode = wish->mps == LTGF_WISH_GPU ? LTGF_MPS_GPU : LTGF_MPS_JOB,
		.timeout_s = arguments->timeout_s, .exclusive = arguments->exclusive,
	};

	if ((wish->mem.kind == LTGF_MEM_AUTO || wish->threads_auto) &&
	    ltgf_share_read(said("SLURM_SHARDS_ON_NODE"), arguments->shards, n,
			    said("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), &share, why, LTGF_WHY))
		return -1;
	if (find_memory(arguments, job, wish, &share, total, why) ||
	    ltgf_share_memory(&wish->mem, &share, total, n, 1, limit, sizeof(limit), why,
			      LTGF_WHY))
		return -1;
	if (ltgf_share_threads(wish, &share, &mps.threads)) {
		snprintf(why, LTGF_WHY, "the job's share of its GPUs cannot be reckoned");
		return -1;
	}
	return ltgf_mps_start(&mps, why, LTGF_WHY);
}

/* RET: is there anything to start? OUT why: "" or why it cannot be. */
static bool wants_mps(const struct ltgf_shim *shim, const struct node_job *job,
		      struct ltgf_wish *wish, char *why)
{
	why[0] = '\0';
	if (shim->error[0]) {
		snprintf(why, LTGF_WHY, "%s", shim->error);
		return shim->given.from[LTGF_MPS] != LTGF_FROM_NOWHERE;
	}
	if (ltgf_wish_read(&shim->given, wish, why, LTGF_WHY))
		return shim->given.from[LTGF_MPS] != LTGF_FROM_NOWHERE;
	if (!wish->mps || (!job->devices[0] && shim->given.from[LTGF_MPS] == LTGF_FROM_SITE))
		return false;
	if (shim->arguments.error[0])
		snprintf(why, LTGF_WHY, "%s", shim->arguments.error);
	else if (!job->devices[0])
		snprintf(why, LTGF_WHY, "--mps in a job without GPUs on this node: add --gres=gpu:1"
			 " or the like, or --mps=off");
	else if (job->gid == (gid_t)-1)
		snprintf(why, LTGF_WHY, "Slurm does not tell the prolog SLURM_JOB_GID");
	return true;
}

static void map_gpus(const struct ltgf_arguments *arguments, const struct node_job *job)
{
	const char *const folders[] = { [LTGF_GPUMAP_DCGM] = arguments->gpumap,
					[LTGF_GPUMAP_JOBSTATS] = arguments->gpustat };
	char path[LTGF_PATH], why[LTGF_WHY] = "bad path";

	for (int form = LTGF_GPUMAP_DCGM; form <= LTGF_GPUMAP_JOBSTATS; form++) {
		if (!folders[form][0] || !job->devices[0])
			continue;
		if (local_path(folders[form], path) ||
		    ltgf_gpumap_add(path, (enum ltgf_gpumap)form, job->devices, job->id, job->uid,
				    why, sizeof(why)))
			slurm_error("ltgf: job %u: GPU-to-job file: %s", job->id, why);
	}
}

/* Take a job out of the GPU-to-job files; or with `running`, all that are no more. */
static void unmap_gpus(const struct ltgf_arguments *arguments, uint32_t job_id,
		       struct ltgf_running *running)
{
	const char *const folders[] = { arguments->gpumap, arguments->gpustat };
	char path[LTGF_PATH], why[LTGF_WHY] = "bad path";

	for (int i = 0; i < 2; i++) {
		int rc;

		if (!folders[i][0])
			continue;
		rc = local_path(folders[i], path);
		if (!rc && running)
			rc = ltgf_gpumap_reap(path, ltgf_node_runs, running,
					      arguments->reap_after_s, why, sizeof(why));
		else if (!rc)
			rc = ltgf_gpumap_remove(path, job_id, why, sizeof(why));
		if (rc)
			slurm_error("ltgf: GPU-to-job file: %s", why);
	}
}

void ltgf_job_begins(spank_t spank, struct ltgf_shim *shim, struct spank_option *options)
{
	struct ltgf_wish wish;
	struct node_job job;
	char why[LTGF_WHY];

	if (read_job(spank, shim, &job))
		return;
	map_gpus(&shim->arguments, &job);
	take_options(spank, shim, options);
	if (!wants_mps(shim, &job, &wish, why))
		return;
	if (why[0] || start_mps(&shim->arguments, &job, &wish, why))
		leave_failure(&job, why);
}

/* What is left of jobs that have no process here any more. */
static void reap(const struct ltgf_arguments *arguments, const char *rundir)
{
	struct ltgf_running running = { 0 };
	unsigned int stopped = 0;
	char why[LTGF_WHY];

	unmap_gpus(arguments, 0, &running);
	if (!access(rundir, F_OK) &&
	    ltgf_mps_reap(rundir, ltgf_node_runs, &running, arguments->reap_after_s, &stopped, why,
			  sizeof(why)))
		slurm_error("ltgf: reaping in %s: %s", rundir, why);
	if (stopped)
		slurm_info("ltgf: MPS of %u jobs that are no more was ended", stopped);
	ltgf_running_free(&running);
}

void ltgf_job_ends(spank_t spank, const struct ltgf_shim *shim)
{
	struct node_job job;
	char why[LTGF_WHY];

	if (read_job(spank, shim, &job))
		return;
	unmap_gpus(&shim->arguments, job.id, NULL);
	if (!access(job.rundir, F_OK) && ltgf_mps_stop(job.rundir, job.id, why, sizeof(why)))
		slurm_error("ltgf: job %u: MPS not ended: %s", job.id, why);
	reap(&shim->arguments, job.rundir);
}

void ltgf_slurmd_begins(const struct ltgf_shim *shim)
{
	char rundir[LTGF_PATH];

	if (local_path(shim->arguments.rundir, rundir))
		slurm_error("ltgf: rundir=%s cannot be made a path of this node",
			    shim->arguments.rundir);
	else
		reap(&shim->arguments, rundir);
}
