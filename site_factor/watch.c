/* watch.c - the thread that reads tables; see watch.h. */
#define _GNU_SOURCE
#include "watch.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "status.h"

#ifndef LOOK_EVERY_MS
#define LOOK_EVERY_MS 1000
#endif
#define STATUS_EVERY_S 5
#define STOP_WITHIN_S 5

/* In `fresh`: there is no good table any more. Never dereferenced. */
static char no_book;
#define NO_BOOK ((struct ltgf_book *)&no_book)

struct ltgf_watch {
	/* between the threads */
	_Atomic(struct ltgf_book *) fresh, done;
	_Atomic(char *) next_path;
	atomic_int is_stopping;
	int wake; /* eventfd */
	sem_t looked;
	/* whose holder has the job write lock */
	struct ltgf_book *book;
	/* the thread's own */
	pthread_t thread;
	void (*say)(int is_trouble, const char *line);
	char *path;
	struct stat seen;
	struct ltgf_header last; /* of the table in force; size 0: none */
	const char *trouble;	 /* NULL: none */
	int is_first, is_silent;
	time_t told_at;
};

/* Free what the lock's holder is done with. */
static void sweep(struct ltgf_watch *watch)
{
	struct ltgf_book *book = atomic_exchange(&watch->done, NULL);

	while (book) {
		struct ltgf_book *next = *ltgf_book_chain(book);

		ltgf_book_close(book);
		book = next;
	}
}

/* Hand a book, or NO_BOOK, over; one that nobody has taken yet comes back and is freed. */
static void hand_over(struct ltgf_watch *watch, struct ltgf_book *book)
{
	struct ltgf_book *old = atomic_exchange(&watch->fresh, book);

	if (old != NO_BOOK)
		ltgf_book_close(old);
}

/* Say what became of the table if it is news. */
static void tell(struct ltgf_watch *watch, const char *trouble)
{
	char line[PATH_MAX + 256];

	if (!watch->is_first && trouble == watch->trouble)
		return;
	if (trouble)
		snprintf(line, sizeof(line), "ltgf: %s %s: all site factors are 0 until it is good",
			 watch->path, trouble);
	else
		snprintf(line, sizeof(line),
			 "ltgf: %s is read: %" PRIu32 " jobs, %" PRIu32 " tenants", watch->path,
			 watch->last.jobs, watch->last.tenants);
	watch->say(trouble != NULL, line);
	watch->is_first = 0;
	watch->trouble = trouble;
	watch->told_at = 0;
}

/* Read the file if it is new. RET why there is no good table, NULL: there is one */
static const char *read_table(struct ltgf_watch *watch)
{
	struct ltgf_book *book;
	const char *why;
	void *bytes;
	size_t size;

	if (ltgf_file_read(watch->path, &watch->seen, &bytes, &size, &why))
		return why;
	if (!bytes) /* as it was */
		return watch->last.size ? NULL : watch->trouble;
	if (ltgf_book_open(bytes, size, &book, &why)) {
		free(bytes);
		return why;
	}
	watch->last = *ltgf_book_table(book)->head;
	watch->told_at = 0;
	hand_over(watch, book);
	return NULL;
}

static void look(struct ltgf_watch *watch)
{
	char *path = atomic_exchange(&watch->next_path, NULL);
	const char *trouble;

	if (path) {
		ltgf_status_remove(watch->path);
		free(watch->path);
		watch->path = path;
		memset(&watch->seen, 0, sizeof(watch->seen));
		watch->is_first = 1;
	}
	sweep(watch);
	trouble = read_table(watch);
	if (trouble && watch->last.size) {
		watch->last.size = 0;
		hand_over(watch, NO_BOOK);
	}
	if (!trouble && !ltgf_table_is_fresh(&watch->last, time(NULL)))
		trouble = "is too old, or its time is in the future: is ltgf daemon running?";
	tell(watch, trouble);
}

/* Tell ltgf that we are here and what we have read, every few seconds and when that changes. */
static void write_status(struct ltgf_watch *watch)
{
	char line[PATH_MAX + 256];
	time_t now = time(NULL);

	if (now - watch->told_at < STATUS_EVERY_S && now >= watch->told_at)
		return;
	watch->told_at = now;
	if (!ltgf_status_write(watch->path, &watch->last, watch->trouble, now)) {
		watch->is_silent = 0;
	} else if (!watch->is_silent) {
		snprintf(line, sizeof(line),
			 "ltgf: %s.status cannot be written: %s: ltgf goes on with scontrol; let "
			 "SlurmUser write into that folder", watch->path, strerrordesc_np(errno));
		watch->say(1, line);
		watch->is_silent = 1;
	}
}

static void *watch_run(void *argument)
{
	struct ltgf_watch *watch = argument;
	struct pollfd wake = { .fd = watch->wake, .events = POLLIN };
	uint64_t times;

	look(watch);
	write_status(watch);
	sem_post(&watch->looked);
	while (!atomic_load(&watch->is_stopping)) {
		if (poll(&wake, 1, LOOK_EVERY_MS) > 0 &&
		    read(watch->wake, &times, sizeof(times)) < 0 && errno != EINTR)
			sleep(1);
		if (atomic_load(&watch->is_stopping))
			break;
		look(watch);
		write_status(watch);
	}
	ltgf_status_remove(watch->path);
	return NULL;
}

static void wait_for_first_look(struct ltgf_watch *watch)
{
	struct timespec until;

	if (clock_gettime(CLOCK_REALTIME, &until))
		return;
	until.tv_sec++;
	while (sem_timedwait(&watch->looked, &until) && errno == EINTR)
		;
}

static void release(struct ltgf_watch *watch)
{
	struct ltgf_book *fresh = atomic_exchange(&watch->fresh, NULL);

	sweep(watch);
	if (fresh != NO_BOOK)
		ltgf_book_close(fresh);
	ltgf_book_close(watch->book);
	free(atomic_exchange(&watch->next_path, NULL));
	free(watch->path);
	if (watch->wake >= 0)
		close(watch->wake);
	sem_destroy(&watch->looked);
	free(watch);
}

/* Signals are for slurmctld's own threads. RET 0, or an errno */
static int start_thread(struct ltgf_watch *watch)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	rc = pthread_sigmask(SIG_SETMASK, &all, &before);
	if (rc)
		return rc;
	rc = pthread_create(&watch->thread, NULL, watch_run, watch);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

extern int ltgf_watch_start(const char *path, void (*say)(int is_trouble, const char *line),
			    struct ltgf_watch **watch)
{
	struct ltgf_watch *made = calloc(1, sizeof(*made));
	int rc;

	if (!made)
		return -1;
	made->say = say;
	made->is_first = 1;
	sem_init(&made->looked, 0, 0);
	made->path = strdup(path);
	made->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = !made->path || made->wake < 0 ? errno : start_thread(made);
	if (rc) {
		release(made);
		errno = rc;
		return -1;
	}
	wait_for_first_look(made);
	*watch = made;
	return 0;
}

static void wake_up(struct ltgf_watch *watch)
{
	uint64_t one = 1;

	while (write(watch->wake, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

extern int ltgf_watch_follow(struct ltgf_watch *watch, const char *path)
{
	char *copy = strdup(path);

	if (!copy)
		return -1;
	free(atomic_exchange(&watch->next_path, copy));
	wake_up(watch);
	return 0;
}

extern struct ltgf_book *ltgf_watch_book(struct ltgf_watch *watch)
{
	struct ltgf_book *fresh = atomic_exchange(&watch->fresh, NULL), *old = watch->book;

	if (fresh) {
		watch->book = fresh == NO_BOOK ? NULL : fresh;
		if (old) {
			*ltgf_book_chain(old) = atomic_load(&watch->done);
			while (!atomic_compare_exchange_weak(&watch->done, ltgf_book_chain(old),
							     old))
				;
		}
	}
	if (!watch->book ||
	    !ltgf_table_is_fresh(ltgf_book_table(watch->book)->head, time(NULL)))
		return NULL;
	return watch->book;
}

extern void ltgf_watch_stop(struct ltgf_watch *watch)
{
	struct timespec until;

	if (!watch)
		return;
	atomic_store(&watch->is_stopping, 1);
	wake_up(watch);
	if (clock_gettime(CLOCK_REALTIME, &until))
		return;
	until.tv_sec += STOP_WITHIN_S;
	if (!pthread_timedjoin_np(watch->thread, NULL, &until))
		release(watch);
}
