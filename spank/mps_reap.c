/*
 * mps_reap.c - ends the MPS of all jobs that are no more: for the epilog and the start of slurmd.
 */
#include "mps_names.h"
#include "mps_place.h"
#include "mps_why.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct reaper {
	int rundir_fd;
	int (*alive)(uint32_t job_id, void *arg);
	void *arg;
	unsigned int min_age_s;
};

static bool is_young(const struct reaper *reaper, const char *name)
{
	struct stat st;

	return fstatat(reaper->rundir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       time(NULL) - st.st_mtime < (time_t) reaper->min_age_s;
}

/* Look at one name of the run directory. OUT gone: a job or group was ended. */
static int reap_one(const struct reaper *reaper, const char *name, bool *gone, char *why,
		    size_t why_len)
{
	uint32_t job_id;

	if (is_young(reaper, name))
		return 0;
	if (!strncmp(name, ".gone.", 6) && ltgf_tree_remove(reaper->rundir_fd, name) < 0)
		return ltgf_why(why, why_len, "%s cannot be removed: %s", name, strerror(errno));
	if (ltgf_names_job_id(name, &job_id) == 0 && !reaper->alive(job_id, reaper->arg))
		return ltgf_mps_stop_in(reaper->rundir_fd, job_id, 0, gone, why, why_len);
	if (name[0] == 'g')
		return ltgf_mps_trim_group(reaper->rundir_fd, name, reaper->alive, reaper->arg,
					   gone, why, why_len);
	return 0;
}

int ltgf_mps_reap(const char *rundir, int (*alive)(uint32_t job_id, void *arg), void *arg,
		  unsigned int min_age_s, unsigned int *stopped, char *why, size_t why_len)
{
	struct reaper reaper = { .alive = alive, .arg = arg, .min_age_s = min_age_s };
	unsigned int count = 0;
	struct ltgf_names names;
	char line[512];
	int rc = 0;

	if (ltgf_mps_rundir(rundir, false, &reaper.rundir_fd, why, why_len) < 0) {
		rc = errno == ENOENT ? 0 : -1;
		goto out;
	}
	if (ltgf_names_read(reaper.rundir_fd, &names) < 0) {
		rc = ltgf_why(why, why_len, "rundir %s: %s", rundir, strerror(errno));
		(void) close(reaper.rundir_fd);
		goto out;
	}
	for (size_t i = 0; i < names.n; i++) { /* jobs come before groups: '0'..'9' < 'g' */
		bool gone = false;

		if (reap_one(&reaper, names.list[i], &gone, line, sizeof(line)) < 0 && rc == 0)
			rc = ltgf_why(why, why_len, "%s", line);
		count += gone;
	}
	ltgf_names_free(&names);
	(void) close(reaper.rundir_fd);
out:
	if (stopped)
		*stopped = count;
	return rc;
}
