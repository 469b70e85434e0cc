/*
 * gpumap.c - files that tell monitors which job has which GPU.
 */
#include "gpumap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "mps_why.h"
#include "tree.h"

#define FILE_MAX 4096	/* a GPU has room for a few hundred jobs */
#define NAME_LEN 50
#define DIGITS "0123456789"
#define OF_UUID DIGITS "-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* Whose lines go: one job's, or with `runs` those of all jobs that do not run here. */
struct rule {
	uint32_t job_id;
	int (*runs)(uint32_t job_id, void *arg);
	void *arg;
	unsigned int min_age_s;	/* younger files stay */
};

/* OUT fd: the folder, locked until closed. It must be ours: whoever writes there steers root. */
static int open_folder(const char *folder, int *fd, char *why, size_t why_len)
{
	int found;

	if (ltgf_tree_own(AT_FDCWD, folder, 0755, &found))
		return ltgf_why(why, why_len, "%s: %s; it must be root's, writable by nobody else",
				folder, strerror(errno));
	if (flock(found, LOCK_EX)) {
		close(found);
		return ltgf_why(why, why_len, "%s: lock: %s", folder, strerror(errno));
	}
	*fd = found;
	return 0;
}

/* OUT text: what the file holds, "" if there is none. */
static int read_file(int folder, const char *name, char *text)
{
	text[0] = '\0';
	return ltgf_tree_read(folder, name, text, FILE_MAX) && errno != ENOENT ? -1 : 0;
}

/* Replace the file by this text; no text, no file. */
static int write_file(int folder, const char *name, const char *text)
{
	if (!text[0])
		return unlinkat(folder, name, 0) && errno != ENOENT ? -1 : 0;
	return ltgf_tree_write(folder, name, text);
}

static int is_over(const struct rule *rule, unsigned long job_id)
{
	if (!rule->runs)
		return job_id == rule->job_id;
	return job_id <= UINT32_MAX && !rule->runs((uint32_t)job_id, rule->arg);
}

/* Take the lines whose first word is the id of a job that is over out of `text`. RET: how many. */
static int strike(char *text, const struct rule *rule)
{
	char *to = text, *line = text;
	int struck = 0;

	while (*line) {
		char *end = strchrnul(line, '\n'), *stop;
		size_t len = (size_t)(end - line) + (*end == '\n');

		unsigned long job_id = strtoul(line, &stop, 10);

		if (stop != line && is_over(rule, job_id)) {
			struck++;
		} else {
			memmove(to, line, len);
			to += len;
		}
		line += len;
	}
	*to = '\0';
	return struck;
}

static int add_device(int folder, enum ltgf_gpumap form, const char *name, uint32_t job_id,
		      uid_t uid)
{
	struct rule rule = { .job_id = job_id };
	char text[FILE_MAX], line[32];

	snprintf(line, sizeof(line), "%u\n", job_id);
	if (form == LTGF_GPUMAP_JOBSTATS) {
		snprintf(line, sizeof(line), "%u %u\n", job_id, (unsigned int)uid);
		return write_file(folder, name, line);
	}
	if (read_file(folder, name, text))
		return -1;
	strike(text, &rule);
	if (strlen(text) + strlen(line) >= sizeof(text)) {
		errno = EFBIG;
		return -1;
	}
	strcat(text, line);
	return write_file(folder, name, text);
}

/* Is it how Slurm names a GPU to a job: an index or a UUID? Then it is fit for a file name. */
static int is_device(const char *name, size_t len)
{
	if (!len || len >= NAME_LEN)
		return 0;
	if (strspn(name, DIGITS) >= len)
		return 1;
	return (!strncmp(name, "MIG-", 4) || !strncmp(name, "GPU-", 4)) &&
	       strspn(name, OF_UUID) >= len;
}

/* OUT name: the next GPU of a list. RET its end, NULL at the end. */
static const char *next_device(const char *list, char *name)
{
	size_t len;

	list += *list == ',';
	len = strcspn(list, ",");
	if (!is_device(list, len))
		return NULL;
	memcpy(name, list, len);
	name[len] = '\0';
	return list + len;
}

int ltgf_gpumap_add(const char *folder, enum ltgf_gpumap form, const char *devices,
		    uint32_t job_id, uid_t uid, char *why, size_t why_len)
{
	char name[NAME_LEN];
	int fd, rc = 0;

	if (open_folder(folder, &fd, why, why_len))
		return -1;
	while ((devices = next_device(devices, name))) {
		if (add_device(fd, form, name, job_id, uid))
			rc = ltgf_why(why, why_len, "%s/%s: %s", folder, name, strerror(errno));
	}
	close(fd);
	return rc;
}

/* Files of other names are not ours. */
static int strike_file(int folder, const char *name, const struct rule *rule)
{
	char text[FILE_MAX];
	struct stat st;

	if (!is_device(name, strlen(name)) || fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    (rule->min_age_s && time(NULL) - st.st_mtime < (time_t)rule->min_age_s) ||
	    read_file(folder, name, text))
		return 0;
	return strike(text, rule) ? write_file(folder, name, text) : 0;
}

static int strike_folder(const char *folder, const struct rule *rule, char *why, size_t why_len)
{
	struct dirent *entry;
	int fd, rc = 0;
	DIR *dir;

	if (access(folder, F_OK))
		return 0;
	if (open_folder(folder, &fd, why, why_len))
		return -1;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return ltgf_why(why, why_len, "%s: %s", folder, strerror(errno));
	}
	while ((entry = readdir(dir))) {
		if (strike_file(fd, entry->d_name, rule))
			rc = ltgf_why(why, why_len, "%s/%s: %s", folder, entry->d_name,
				      strerror(errno));
	}
	closedir(dir);
	return rc;
}

int ltgf_gpumap_remove(const char *folder, uint32_t job_id, char *why, size_t why_len)
{
	const struct rule rule = { .job_id = job_id };

	return strike_folder(folder, &rule, why, why_len);
}

int ltgf_gpumap_reap(const char *folder, int (*runs)(uint32_t job_id, void *arg), void *arg,
		     unsigned int min_age_s, char *why, size_t why_len)
{
	const struct rule rule = { .runs = runs, .arg = arg, .min_age_s = min_age_s };

	return strike_folder(folder, &rule, why, why_len);
}
