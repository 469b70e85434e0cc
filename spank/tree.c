/*
 * tree.c - directories and small files that root makes, reads and removes beside what a user owns.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tree.h"
#include "process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOCK_STEP_MS 5
#define REMOVE_MS 5000 /* a user who fills as fast as we remove must not hold us */

static void close_keeping_errno(int fd)
{
	int saved = errno;

	(void) close(fd);
	errno = saved;
}

int ltgf_tree_open(int parent_fd, const char *name, int *fd)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int opened = openat(parent_fd, name, flags);

	if (opened < 0 && errno == EACCES) /* 0711 to others: enough to go through */
		opened = openat(parent_fd, name, flags | O_PATH);
	if (opened < 0)
		return -1;
	*fd = opened;
	return 0;
}

int ltgf_tree_own(int parent_fd, const char *name, mode_t mode, int *fd)
{
	struct stat st;
	int opened, made = mkdirat(parent_fd, name, 0700);

	if (made < 0 && errno != EEXIST)
		return -1;
	if (ltgf_tree_open(parent_fd, name, &opened) < 0)
		return -1;
	if (fstat(opened, &st) < 0)
		goto fail;
	if (st.st_uid != geteuid() || (made < 0 && (st.st_mode & 022))) {
		errno = EPERM;
		goto fail;
	}
	if (made == 0 && fchmod(opened, mode) < 0) /* mkdir's mode went through the umask */
		goto fail;
	*fd = opened;
	return 0;
fail:
	close_keeping_errno(opened);
	return -1;
}

int ltgf_tree_give(int parent_fd, const char *name, uid_t uid, gid_t gid)
{
	struct stat st;
	int fd, rc = -1;

	if (mkdirat(parent_fd, name, 0700) < 0 || ltgf_tree_open(parent_fd, name, &fd) < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		goto out;
	if (st.st_uid != geteuid()) {
		errno = EPERM;
		goto out;
	}
	rc = fchmod(fd, 0700) < 0 || fchown(fd, uid, gid) < 0 ? -1 : 0;
out:
	close_keeping_errno(fd);
	return rc;
}

static int is_dot(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* Remove what is no directory. RET 1: it is a directory, 0: gone, -1 with errno. */
static int remove_plain(int dir_fd, const char *name)
{
	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	return errno == EISDIR || errno == EPERM ? 1 : -1;
}

/* What a user has mounted there (FUSE) is detached, never entered: it may never answer. */
static int detach(int dir_fd, const char *name)
{
	char path[320];

	(void) snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir_fd, name);
	return umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
}

/* OUT fd: of a directory under `top`, not of what is mounted on it. */
static int open_below(int top, const char *name, int *fd)
{
	struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
				.resolve = RESOLVE_NO_XDEV };

	do {
		*fd = (int) syscall(SYS_openat2, top, name, &how, sizeof(how));
	} while (*fd < 0 && errno == EXDEV && detach(top, name) == 0);
	if (*fd < 0 && errno == ENOSYS)	/* before Linux 5.6 */
		return ltgf_tree_open(top, name, fd);
	return *fd < 0 ? -1 : 0;
}

/* Move a directory up. A mount on it is in the way. */
static int move_up(int dir_fd, const char *name, int top, const char *fresh)
{
	while (renameat(dir_fd, name, top, fresh) < 0 && errno != ENOENT) {
		if (errno != EBUSY || detach(dir_fd, name) < 0)
			return -1;
	}
	return 0;
}

/*
 * Take a directory's own directories up into `top`, remove the rest: so depth costs neither stack
 * nor descriptors. It is made ours first, so that its owner adds nothing more.
 */
static int hoist(int top, const char *name, unsigned int *serial)
{
	struct dirent *item;
	char fresh[32];
	int fd, rc = -1, is_dir;
	DIR *dir;

	if (open_below(top, name, &fd) < 0)
		return -1;
	if (fchown(fd, geteuid(), getegid()) < 0 || fchmod(fd, 0700) < 0 ||
	    !(dir = fdopendir(fd))) {
		close_keeping_errno(fd);
		return -1;
	}
	while ((errno = 0, item = readdir(dir))) {
		if (is_dot(item->d_name))
			continue;
		is_dir = remove_plain(dirfd(dir), item->d_name);
		(void) snprintf(fresh, sizeof(fresh), "ltgf.%u", (*serial)++);
		if (is_dir < 0 || (is_dir && move_up(dirfd(dir), item->d_name, top, fresh) < 0))
			goto out;
	}
	rc = errno ? -1 : 0;
out:
	(void) closedir(dir);
	if (rc == 0 && unlinkat(top, name, AT_REMOVEDIR) < 0 && errno != ENOENT &&
	    errno != ENOTEMPTY)
		rc = -1;
	return rc;
}

/* One look over `top`. RET how many names were there, -1 with errno. */
static int sweep(int top, unsigned int *serial)
{
	struct dirent *item;
	int fd = dup(top), n = 0, is_dir;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		if (fd >= 0)
			close_keeping_errno(fd);
		return -1;
	}
	rewinddir(dir);
	while (n >= 0 && (errno = 0, item = readdir(dir))) {
		if (is_dot(item->d_name))
			continue;
		is_dir = remove_plain(top, item->d_name);
		n = is_dir < 0 || (is_dir && hoist(top, item->d_name, serial) < 0) ? -1 : n + 1;
	}
	fd = errno;
	(void) closedir(dir);
	errno = fd;
	return n;
}

int ltgf_tree_remove(int parent_fd, const char *name)
{
	int64_t until = ltgf_now_ms() + REMOVE_MS;
	unsigned int serial = 0;
	int top, n, kind = remove_plain(parent_fd, name);

	if (kind <= 0)
		return kind;
	if (ltgf_tree_open(parent_fd, name, &top) < 0)
		return errno == ENOENT ? 0 : -1;
	n = fchown(top, geteuid(), getegid()) < 0 || fchmod(top, 0700) < 0 ? -1 : 1;
	while (n > 0) {
		n = sweep(top, &serial);
		if (n > 0 && ltgf_now_ms() > until) {
			errno = ETIMEDOUT;
			n = -1;
		}
	}
	close_keeping_errno(top);
	if (n < 0)
		return -1;
	return unlinkat(parent_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -1 : 0;
}

int ltgf_tree_write(int dir_fd, const char *name, const char *text)
{
	size_t length = strlen(text);
	char fresh[64];
	int fd, rc;

	rc = snprintf(fresh, sizeof(fresh), ".%s.new", name);
	if (rc < 0 || (size_t) rc >= sizeof(fresh)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	(void) unlinkat(dir_fd, fresh, 0); /* of a writer that was killed */
	fd = openat(dir_fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -1;
	rc = 0;
	if (fchmod(fd, 0644) < 0 || write(fd, text, length) != (ssize_t) length)
		rc = -1;
	close_keeping_errno(fd);
	if (rc == 0)
		rc = renameat(dir_fd, fresh, dir_fd, name);
	if (rc < 0) {
		rc = errno ? errno : ENOSPC; /* a short write leaves no errno */
		(void) unlinkat(dir_fd, fresh, 0);
		errno = rc;
		return -1;
	}
	return 0;
}

int ltgf_tree_read(int dir_fd, const char *name, char *text, size_t text_len)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	ssize_t got;
	int rc = -1;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		goto out;
	if (!S_ISREG(st.st_mode) || st.st_size < 0 || (size_t) st.st_size >= text_len) {
		errno = S_ISREG(st.st_mode) ? EFBIG : EINVAL;
		goto out;
	}
	got = read(fd, text, text_len - 1);
	if (got < 0)
		goto out;
	text[got] = '\0';
	rc = 0;
out:
	close_keeping_errno(fd);
	return rc;
}

int ltgf_tree_lock(int dir_fd, unsigned int wait_ms, int *lock_fd)
{
	int64_t until = ltgf_now_ms() + wait_ms;
	int fd = openat(dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0) {
		errno = errno == ENOENT ? ESTALE : errno; /* the directory is gone */
		return -1;
	}
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if ((errno != EWOULDBLOCK && errno != EINTR) || ltgf_now_ms() >= until)
			goto fail;
		ltgf_sleep_ms(LOCK_STEP_MS);
	}
	if (fstat(fd, &st) < 0)
		goto fail;
	if (!st.st_nlink) {
		errno = ESTALE;
		goto fail;
	}
	*lock_fd = fd;
	return 0;
fail:
	close_keeping_errno(fd);
	return -1;
}
