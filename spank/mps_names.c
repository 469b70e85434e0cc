/*
 * mps_names.c - the names in a directory of the run directory.
 */
#include "mps_names.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMES 65536

void ltgf_names_free(struct ltgf_names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->list[i]);
	free(names->list);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

int ltgf_names_read(int dir_fd, struct ltgf_names *names)
{
	struct ltgf_names fresh = { 0 };
	struct dirent *item;
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		if (fd >= 0)
			(void) close(fd);
		return -1;
	}
	while (fresh.n < NAMES && (item = readdir(dir))) {
		char **more = realloc(fresh.list, (fresh.n + 1) * sizeof(*more));

		if (!more)
			break;
		fresh.list = more;
		fresh.list[fresh.n] = strdup(item->d_name);
		if (!fresh.list[fresh.n])
			break;
		fresh.n++;
	}
	(void) closedir(dir);
	if (fresh.n)
		qsort(fresh.list, fresh.n, sizeof(*fresh.list), compare);
	*names = fresh;
	return 0;
}

int ltgf_names_job_id(const char *text, uint32_t *job_id)
{
	unsigned long long number;
	char *end;

	if (!isdigit((unsigned char) text[0]))
		return -1;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || *end || number > UINT32_MAX)
		return -1;
	*job_id = (uint32_t) number;
	return 0;
}
