/*
 * tree.h - directories and small files that root makes, reads and removes beside what a user owns.
 *
 * Nothing here follows a symbolic link below the directory it is given. RET 0, or -1 with errno.
 */
#ifndef LTGF_TREE_H
#define LTGF_TREE_H

#include <stddef.h>
#include <sys/types.h>

/* OUT fd: of a directory under parent_fd (AT_FDCWD: an absolute path); no link. */
int ltgf_tree_open(int parent_fd, const char *name, int *fd);

/*
 * OUT fd: of a directory of ours, made with `mode` if it is not there. EPERM when what is there is
 * not the caller's own or others may write to it.
 */
int ltgf_tree_own(int parent_fd, const char *name, mode_t mode, int *fd);

/* Make a new directory, 0700 and uid's. EEXIST when the name is taken, whatever it is. */
int ltgf_tree_give(int parent_fd, const char *name, uid_t uid, gid_t gid);

/* Remove a name and, when it is a directory, all in it, however deep. None there is success. */
int ltgf_tree_remove(int parent_fd, const char *name);

/* Put a small file, 0644, there at once: readers see the old text or the new. */
int ltgf_tree_write(int dir_fd, const char *name, const char *text);

/* OUT text: a small regular file, NUL-ended. EFBIG when it does not fit. */
int ltgf_tree_read(int dir_fd, const char *name, char *text, size_t text_len);

/*
 * OUT lock_fd: the directory's lock, held until closed. EWOULDBLOCK after wait_ms; ESTALE when the
 * directory was removed meanwhile (open it anew and try again).
 */
int ltgf_tree_lock(int dir_fd, unsigned int wait_ms, int *lock_fd);

#endif
