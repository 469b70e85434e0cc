/*
 * test_tree.c - directories that hostile owners fill: made, read, removed; no link is followed.
 */
#include "process.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"

static char base[] = "/dev/shm/ltgf-tree.XXXXXX";
static int top;

static int is_there(const char *name)
{
	return faccessat(top, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void touch(const char *name)
{
	int fd = openat(top, name, O_WRONLY | O_CREAT, 0600);

	CHECK(fd >= 0);
	(void) close(fd);
}

static void a_link_is_removed_and_never_followed(void)
{
	CHECK(mkdirat(top, "victim", 0700) == 0);
	touch("victim/file");
	CHECK(mkdirat(top, "own", 0700) == 0 && mkdirat(top, "own/a", 0700) == 0);
	CHECK(symlinkat("../victim", top, "own/link") == 0);
	CHECK(symlinkat("../../victim", top, "own/a/link") == 0);
	CHECK(linkat(top, "victim/file", top, "own/hard", 0) == 0);
	CHECK(mkfifoat(top, "own/fifo", 0600) == 0);
	CHECK(ltgf_tree_remove(top, "own") == 0 && !is_there("own"));
	CHECK(is_there("victim/file"));
	CHECK(symlinkat("victim", top, "own") == 0);
	CHECK(ltgf_tree_remove(top, "own") == 0 && !is_there("own") && is_there("victim/file"));
	CHECK(ltgf_tree_remove(top, "own") == 0);	/* none there */
	CHECK(ltgf_tree_remove(top, "victim") == 0);
}

static void depth_and_number_do_not_matter(void)
{
	int fd = dup(top), next;
	char name[32];

	for (int i = 0; i < 3000; i++) {
		CHECK(mkdirat(fd, "d", i % 2 ? 0700 : 0701) == 0);
		next = openat(fd, "d", O_RDONLY | O_DIRECTORY);
		CHECK(next >= 0);
		(void) close(fd);
		fd = next;
	}
	(void) close(fd);
	for (int i = 0; i < 2000; i++) {
		(void) snprintf(name, sizeof(name), "d/%d\n%d", i, i);
		touch(name);
	}
	CHECK(fchmodat(top, "d/d", 0, 0) == 0);
	CHECK(ltgf_tree_remove(top, "d") == 0 && !is_there("d"));
}

static void our_directory_is_ours(void)
{
	struct stat st;
	int fd;

	(void) umask(077);
	CHECK(ltgf_tree_own(top, "mine", 0711, &fd) == 0);
	CHECK(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0711);
	(void) close(fd);
	CHECK(ltgf_tree_own(top, "mine", 0711, &fd) == 0);
	(void) close(fd);
	(void) umask(022);
	CHECK(fchmodat(top, "mine", 0777, 0) == 0);
	CHECK(ltgf_tree_own(top, "mine", 0711, &fd) < 0 && errno == EPERM);
	CHECK(ltgf_tree_remove(top, "mine") == 0);
	CHECK(mkdirat(top, "other", 0700) == 0 && symlinkat("other", top, "mine") == 0);
	CHECK(ltgf_tree_own(top, "mine", 0711, &fd) < 0 && (errno == ENOTDIR || errno == ELOOP));
	CHECK(ltgf_tree_give(top, "mine", getuid(), getgid()) < 0 && errno == EEXIST);
	if (getuid() == 0) {
		CHECK(fchownat(top, "other", 12345, 12345, 0) == 0);
		CHECK(ltgf_tree_own(top, "other", 0711, &fd) < 0 && errno == EPERM);
	}
	CHECK(ltgf_tree_remove(top, "mine") == 0 && ltgf_tree_remove(top, "other") == 0);
}

static void a_file_is_replaced_whole(void)
{
	char text[16], small[4];

	CHECK(ltgf_tree_write(top, "file", "one") == 0 && ltgf_tree_write(top, "file", "two") == 0);
	CHECK(ltgf_tree_read(top, "file", text, sizeof(text)) == 0);
	CHECK_TEXT(text, "two");
	CHECK(ltgf_tree_read(top, "file", small, 4) == 0);
	CHECK(ltgf_tree_read(top, "file", small, 3) < 0 && errno == EFBIG);
	CHECK(!is_there(".file.new"));
	CHECK(symlinkat("file", top, ".link.new") == 0 && symlinkat("file", top, "link") == 0);
	CHECK(ltgf_tree_read(top, "link", text, sizeof(text)) < 0);
	CHECK(ltgf_tree_write(top, "link", "three") == 0);	/* replaces the link */
	CHECK(ltgf_tree_read(top, "file", text, sizeof(text)) == 0 && !strcmp(text, "two"));
	CHECK(mkfifoat(top, "fifo", 0600) == 0);
	CHECK(ltgf_tree_read(top, "fifo", text, sizeof(text)) < 0 && errno == EINVAL);
	for (int i = 0; i < 3; i++)
		CHECK(ltgf_tree_remove(top, ((const char *[]) { "file", "link", "fifo" })[i]) == 0);
}

static void a_lock_waits_its_time_and_knows_a_removed_directory(void)
{
	int64_t begin = ltgf_now_ms();
	int fd, lock, second;

	CHECK(ltgf_tree_own(top, "place", 0711, &fd) == 0 && ltgf_tree_lock(fd, 0, &lock) == 0);
	CHECK(ltgf_tree_lock(fd, 100, &second) < 0 && errno == EWOULDBLOCK);
	CHECK(ltgf_now_ms() - begin >= 100 && ltgf_now_ms() - begin < 1000);
	(void) close(lock);
	CHECK(ltgf_tree_lock(fd, 0, &lock) == 0);
	CHECK(ltgf_tree_remove(top, "place") == 0);
	CHECK(ltgf_tree_lock(fd, 0, &second) < 0 && errno == ESTALE);
	(void) close(lock);
	(void) close(fd);
}

int main(void)
{
	if (!mkdtemp(base) || (top = open(base, O_RDONLY | O_DIRECTORY)) < 0)
		return 1;
	a_link_is_removed_and_never_followed();
	depth_and_number_do_not_matter();
	our_directory_is_ours();
	a_file_is_replaced_whole();
	a_lock_waits_its_time_and_knows_a_removed_directory();
	(void) close(top);
	CHECK(rmdir(base) == 0);	/* nothing left */
	return RESULT();
}
