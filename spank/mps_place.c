/*
 * mps_place.c - the run directory and the directories of jobs and groups in it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mps_place.h"
#include "mps_why.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define TMP "/tmp/ltgf."
#define LONGEST_SOCKET "control_privileged"
#define ENTRIES 20 /* times a directory may vanish under us before we give up */

int ltgf_mps_rundir(const char *rundir, bool make, int *fd, char *why, size_t why_len)
{
	int rc, saved;

	if (!rundir || rundir[0] != '/') {
		ltgf_why(why, why_len, "rundir \"%s\" is no absolute path", rundir ? rundir : "");
		errno = EINVAL;
		return -1;
	}
	rc = make ? ltgf_tree_own(AT_FDCWD, rundir, 0755, fd)
		  : ltgf_tree_open(AT_FDCWD, rundir, fd);
	if (rc == 0)
		return 0;
	saved = errno;
	ltgf_why(why, why_len, "rundir %s: %s%s", rundir, strerror(saved),
		 saved == EPERM ? "; it must be root's and writable by nobody else" : "");
	errno = saved;
	return -1;
}

/* Does the name still lead to this directory? */
static bool is_there(int rundir_fd, const char *name, int dir_fd)
{
	struct stat there, here;

	return fstatat(rundir_fd, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstat(dir_fd, &here) == 0 && there.st_ino == here.st_ino &&
	       there.st_dev == here.st_dev;
}

int ltgf_mps_enter(int rundir_fd, const char *name, bool make, unsigned int wait_ms,
		   struct ltgf_mps_place *place)
{
	int saved;

	for (int i = 0; i < ENTRIES; i++) {
		int rc = make ? ltgf_tree_own(rundir_fd, name, 0711, &place->dir)
			      : ltgf_tree_open(rundir_fd, name, &place->dir);
		if (rc < 0)
			return -1;
		if (ltgf_tree_lock(place->dir, wait_ms, &place->lock) == 0) {
			if (is_there(rundir_fd, name, place->dir))
				return 0;
			errno = ESTALE;
			(void) close(place->lock);
		}
		saved = errno;
		(void) close(place->dir);
		errno = saved;
		if (saved != ESTALE)
			return -1;
	}
	errno = EWOULDBLOCK;
	return -1;
}

void ltgf_mps_leave(struct ltgf_mps_place *place)
{
	(void) close(place->dir);
	(void) close(place->lock);
}

int ltgf_mps_retire(int rundir_fd, const char *name)
{
	char gone[LTGF_MPS_NAME + 32];

	(void) snprintf(gone, sizeof(gone), ".gone.%s.%d", name, (int) getpid());
	if (ltgf_tree_remove(rundir_fd, gone) < 0)
		return -1;
	if (renameat(rundir_fd, name, rundir_fd, gone) < 0)
		return errno == ENOENT ? 0 : -1;
	return ltgf_tree_remove(rundir_fd, gone);
}

/* RET whether the daemon's longest socket has a path that the kernel takes; bytes are counted. */
static bool fits(const char *base)
{
	struct sockaddr_un address;

	return strlen(base) + strlen("/p/" LONGEST_SOCKET) < sizeof(address.sun_path);
}

static int make_two(int fd, const struct ltgf_mps_state *state)
{
	static const char *const names[] = { "p", "l" };

	for (size_t i = 0; i < 2; i++) {
		if (ltgf_tree_remove(fd, names[i]) < 0 ||
		    ltgf_tree_give(fd, names[i], state->uid, state->gid) < 0)
			return -1;
	}
	return 0;
}

int ltgf_mps_make_dirs(struct ltgf_mps_state *state, const char *rundir, const char *name,
		       int dir_fd, char *why, size_t why_len)
{
	char base[LTGF_MPS_PATH - 8];
	int fd = dir_fd, rc;

	rc = snprintf(base, sizeof(base), "%s/%s", rundir, name);
	if (rc < 0 || (size_t) rc >= sizeof(base) || !fits(base)) {
		rc = snprintf(base, sizeof(base), TMP "%s", name);
		for (char *c = base + strlen(TMP); *c; c++)
			*c = *c == '/' ? '.' : *c;
		if (rc < 0 || (size_t) rc >= sizeof(base) || !fits(base))
			return ltgf_why(why, why_len,
					"no place for the MPS sockets: %s/%s and %s are "
					"too long (107 bytes): set a shorter rundir= in "
					"plugstack.conf",
					rundir, name, base);
		if (ltgf_tree_own(AT_FDCWD, base, 0711, &fd) < 0)
			return ltgf_why(why, why_len,
					"%s cannot be made: %s (rundir %s is too long for "
					"MPS sockets)",
					base, strerror(errno), rundir);
	}
	(void) snprintf(state->pipe_dir, sizeof(state->pipe_dir), "%s/p", base);
	(void) snprintf(state->log_dir, sizeof(state->log_dir), "%s/l", base);
	rc = make_two(fd, state);
	if (rc < 0)
		ltgf_why(why, why_len, "%s/p and /l cannot be made: %s", base, strerror(errno));
	if (fd != dir_fd)
		(void) close(fd);
	return rc;
}

int ltgf_mps_remove_dirs(const struct ltgf_mps_state *state)
{
	size_t length = strlen(state->pipe_dir);
	char base[LTGF_MPS_PATH];

	if (strncmp(state->pipe_dir, TMP, strlen(TMP)) || length < 2)
		return 0;
	memcpy(base, state->pipe_dir, length + 1);
	base[length - 2] = '\0'; /* without "/p" */
	return ltgf_tree_remove(AT_FDCWD, base);
}
