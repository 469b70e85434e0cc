/* file.c - the two files of the plugin; see file.h. */
#define _GNU_SOURCE
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static const char *check_stat(const struct stat *found)
{
	if (!S_ISREG(found->st_mode))
		return "is no plain file";
	if (found->st_uid && found->st_uid != geteuid())
		return "belongs to neither root nor SlurmUser";
	if (found->st_mode & (S_IWGRP | S_IWOTH))
		return "may be written by others: chmod 644";
	if ((unsigned long)found->st_size > LTGF_LARGEST_FILE)
		return "is larger than 64 MiB";
	return NULL;
}

static const char *read_all(int fd, char *to, size_t size)
{
	size_t have = 0;

	while (have < size) {
		ssize_t got = pread(fd, to + have, size - have, (off_t)have);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return "cannot be read";
		if (!got)
			return "became shorter while it was read";
		have += (size_t)got;
	}
	return NULL;
}

static const char *open_failed(void)
{
	if (errno == ENOENT)
		return "is not there";
	if (errno == ELOOP)
		return "is a symbolic link";
	return errno == EACCES ? "is closed to SlurmUser" : "cannot be opened";
}

extern int ltgf_file_read(const char *path, struct stat *seen, void **bytes, size_t *size,
			  const char **why)
{
	struct stat found = {};
	char *made = NULL;
	int rc = -1, fd;

	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	*why = fd < 0 ? open_failed() : fstat(fd, &found) ? "cannot be looked at" : NULL;
	if (!*why && is_same(&found, seen)) {
		*bytes = NULL;
		*size = 0;
		rc = 0;
		goto out;
	}
	if (!*why)
		*why = check_stat(&found);
	if (!*why) {
		made = malloc((size_t)found.st_size + 1);
		*why = made ? read_all(fd, made, (size_t)found.st_size) : "does not fit into memory";
	}
	*seen = found;
	if (*why)
		goto out;
	*bytes = made;
	*size = (size_t)found.st_size;
	made = NULL;
	rc = 0;
out:
	free(made);
	if (fd >= 0)
		close(fd);
	return rc;
}

static int write_all(int fd, const char *text, size_t length)
{
	while (length) {
		ssize_t put = write(fd, text, length);

		if (put < 0 && errno != EINTR)
			return -1;
		if (put > 0) {
			text += put;
			length -= (size_t)put;
		}
	}
	return 0;
}

extern int ltgf_file_replace(const char *path, const char *text, size_t length)
{
	const char *name = strrchr(path, '/');
	char folder_path[PATH_MAX], fresh[NAME_MAX + 1];
	int rc = -1, folder = -1, fd = -1, wanted;

	errno = EINVAL;
	if (!name)
		return -1;
	wanted = snprintf(folder_path, sizeof(folder_path), "%.*s/", (int)(name - path), path);
	errno = ENAMETOOLONG;
	if (wanted < 0 || (size_t)wanted >= sizeof(folder_path))
		return -1;
	wanted = snprintf(fresh, sizeof(fresh), ".%s.new", ++name);
	if (wanted < 0 || (size_t)wanted >= sizeof(fresh))
		return -1;
	folder = open(folder_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0 || (unlinkat(folder, fresh, 0) && errno != ENOENT))
		goto out;
	fd = openat(folder, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0 || write_all(fd, text, length) || fchmod(fd, 0644))
		goto out;
	rc = renameat(folder, fresh, folder, name);
out:
	wanted = errno;
	if (fd >= 0)
		close(fd);
	if (folder >= 0)
		close(folder);
	errno = wanted;
	return rc;
}
