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
#include <unistd.h>

#include "mps_why.h"
#include "tree.h"

#define FILE_MAX 4096	/* a GPU has room for a few hundred jobs */
#define NAME_LEN 50

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

/* Take the lines whose first word is the job's id out of `text`. RET: how many there were. */
static int strike(char *text, uint32_t job_id)
{
	char *to = text, *line = text;
	int struck = 0;

	while (*line) {
		char *end = strchrnul(line, '\n'), *stop;
		size_t len = (size_t)(end - line) + (*end == '\n');

		if (strtoul(line, &stop, 10) == job_id && stop != line) {
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
	char text[FILE_MAX], line[32];

	snprintf(line, sizeof(line), "%u\n", job_id);
	if (form == LTGF_GPUMAP_JOBSTATS) {
		snprintf(line, sizeof(line), "%u %u\n", job_id, (unsigned int)uid);
		return write_file(folder, name, line);
	}
	if (read_file(folder, name, text))
		return -1;
	strike(text, job_id);
	if (strlen(text) + strlen(line) >= sizeof(text)) {
		errno = EFBIG;
		return -1;
	}
	strcat(text, line);
	return write_file(folder, name, text);
}

/* OUT name: the next word of a device list, fit for a file name. RET its end, NULL at the end. */
static const char *next_device(const char *list, char *name)
{
	size_t len;

	list += *list == ',';
	len = strcspn(list, ",");
	if (!len || len >= NAME_LEN ||
	    strspn(list, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") < len)
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

static int strike_file(int folder, const char *name, uint32_t job_id)
{
	char text[FILE_MAX];

	if (strlen(name) >= NAME_LEN || read_file(folder, name, text))
		return 0; /* not ours */
	return strike(text, job_id) ? write_file(folder, name, text) : 0;
}

int ltgf_gpumap_remove(const char *folder, uint32_t job_id, char *why, size_t why_len)
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
		if (entry->d_name[0] != '.' && strike_file(fd, entry->d_name, job_id))
			rc = ltgf_why(why, why_len, "%s/%s: %s", folder, entry->d_name,
				      strerror(errno));
	}
	closedir(dir);
	return rc;
}
