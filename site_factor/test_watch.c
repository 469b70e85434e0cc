/* test_watch.c - tests of the watching thread: files good and bad, and two threads at its mailboxes.
 *
 * For TSan. Usage: test_watch GOLDEN; works in a folder of its own below $TMPDIR.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "tap.h"
#include "watch.h"

static char folder[] = "/tmp/ltgf-watch.XXXXXX";
static char table[64], status[80];
static char *golden;
static size_t golden_size;
static _Atomic(int) troubles, goods;

static void say(int is_trouble, const char *line)
{
	printf("# %s\n", line);
	atomic_fetch_add(is_trouble ? &troubles : &goods, 1);
}

/* Replace the table by the golden one as made now; its stale_after is 600 s. */
static void publish(int64_t age_s)
{
	struct ltgf_header *head = (void *)golden;

	head->generated_ns = ((int64_t)time(NULL) - age_s) * 1000000000;
	ltgf_table_seal(golden, golden_size);
	if (ltgf_file_replace(table, golden, golden_size))
		perror(table);
}

static int has_book(struct ltgf_watch *watch)
{
	return ltgf_watch_book(watch) != NULL;
}

/* RET 1 when the watch has a book, or none, as wanted, within 5 s */
static int wait_for(struct ltgf_watch *watch, int wanted)
{
	for (int i = 0; i < 500; i++) {
		if (has_book(watch) == wanted)
			return 1;
		usleep(10000);
	}
	return 0;
}

static int status_has(const char *words)
{
	char text[1024] = "";
	FILE *file = fopen(status, "r");
	size_t got = file ? fread(text, 1, sizeof(text) - 1, file) : 0;

	if (file)
		fclose(file);
	return got && strstr(text, words);
}

static void put(const char *text, mode_t mode)
{
	unlink(table);
	if (ltgf_file_replace(table, text, strlen(text)) || chmod(table, mode))
		perror(table);
}

/* Each of these must be seen, named and survived, and a good table after it be taken. */
static void test_bad_files(struct ltgf_watch *watch)
{
	for (int kind = 0; kind < 7; kind++) {
		static const char *const words[] = { "is not there", "is a symbolic link",
						     "is no plain file", "is no plain file",
						     "may be written by others",
						     "is larger than 64 MiB", "is no factor table" };
		int seen = 0;

		unlink(table);
		if ((kind == 1 && symlink("/etc/passwd", table)) ||
		    (kind == 2 && mkfifo(table, 0600)) || (kind == 3 && mkdir(table, 0700)))
			perror(table);
		if (kind == 4)
			put("x", 0666);
		if (kind == 5) {
			put("x", 0600);
			if (truncate(table, (off_t)LTGF_LARGEST_FILE + 1))
				perror(table);
		}
		if (kind == 6)
			put("this is a text of some length, and not a factor table, but it is long "
			    "enough for one", 0644);
		seen = wait_for(watch, 0);
		for (int i = 0; i < 300 && !status_has(words[kind]); i++)
			usleep(10000);
		OK(seen && status_has(words[kind]), "a table that %s", words[kind]);
		rmdir(table);
		publish(0);
		OK(wait_for(watch, 1), "a good one after it");
	}
}

static void test_age(struct ltgf_watch *watch)
{
	publish(700);
	OK(wait_for(watch, 0), "a table older than its stale_after");
	publish(-700);
	OK(wait_for(watch, 0), "a table from the future");
	publish(0);
	OK(wait_for(watch, 1), "a fresh one");
}

static void test_follow(struct ltgf_watch *watch)
{
	char other[80];

	snprintf(other, sizeof(other), "%s/other", folder);
	OK(!ltgf_watch_follow(watch, other) && wait_for(watch, 0), "another path, nothing there");
	OK(!ltgf_watch_follow(watch, table) && wait_for(watch, 1), "back again");
}

static atomic_int is_over;

static void *publish_fast(void *watch)
{
	while (!atomic_load(&is_over)) {
		publish(0);
		ltgf_watch_follow(watch, table); /* look at once */
		usleep(1000);
	}
	return NULL;
}

/* One thread asks, as whoever holds Slurm's lock does, while another replaces the table. */
static void test_hand_over(struct ltgf_watch *watch)
{
	struct ltgf_job job = { .tasks = 1, .account = "bio", .tres = "gres/gpu=1" };
	struct timespec began, now;
	unsigned long asked = 0, first = 0;
	pthread_t writer;

	clock_gettime(CLOCK_MONOTONIC, &began);
	if (pthread_create(&writer, NULL, publish_fast, watch))
		return;
	do {
		struct ltgf_book *book = ltgf_watch_book(watch);

		job.id = 1000 + asked++ % 4096;
		if (book)
			first += ltgf_book_label(book, &job) == 1500000000;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - began.tv_sec < 3);
	atomic_store(&is_over, 1);
	pthread_join(writer, NULL);
	OK(first > 10, "%lu jobs asked for, %lu first ones of a table", asked, first);
}

int main(int argc, char **argv)
{
	struct ltgf_watch *watch = NULL;

	if (argc < 2 || !mkdtemp(folder))
		return 2;
	golden = tap_file(argv[1], &golden_size);
	snprintf(table, sizeof(table), "%s/factors", folder);
	snprintf(status, sizeof(status), "%s.status", table);
	publish(0);
	OK(!ltgf_watch_start(table, say, &watch) && has_book(watch), "a book from the start");
	test_bad_files(watch);
	test_age(watch);
	/* a look may fall between taking one file away and putting the next there */
	OK(troubles >= 8 && troubles <= 12 && goods >= 9 && goods <= 12,
	   "one line a change, not one a look: %d bad, %d good", troubles, goods);
	test_follow(watch);
	test_hand_over(watch);
	ltgf_watch_stop(watch);
	OK(access(status, F_OK) && errno == ENOENT, "no status after an orderly end");
	unlink(table);
	OK(!rmdir(folder), "nothing is left behind");
	free(golden);
	return tap_end();
}
