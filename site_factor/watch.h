/* watch.h - a thread that watches the factor table's file and hands over a new book.
 *
 * The thread does all I/O. Books change hands through two mailboxes, each one atomic exchange: the
 * thread puts a new book into `fresh`, and whoever holds slurmctld's job write lock takes it from
 * there and puts the book it had until then into `done`, which the thread empties and frees. A
 * book is thus always in one pair of hands: there is no lock, no wait, and nothing to guess about
 * when nobody uses an old one any more.
 */
#ifndef LTGF_WATCH_H
#define LTGF_WATCH_H

#include "book.h"

struct ltgf_watch;

/* Start to watch; the first look is over when this returns, or is waited for no longer than 1 s.
 * IN path - absolute path of the table; the status is written to PATH.status
 * IN say - called by the thread with one line, when the table's state changes
 * OUT watch - to be stopped by ltgf_watch_stop(); untouched on failure
 * RET 0, or -1 with errno set
 */
extern int ltgf_watch_start(const char *path, void (*say)(int is_trouble, const char *line),
			    struct ltgf_watch **watch);

/* Watch another path from the next look on. RET 0, or -1 with errno set: the old one stays */
extern int ltgf_watch_follow(struct ltgf_watch *watch, const char *path);

/* Under the job write lock: RET the book in force, or NULL: every label is 0. No I/O, no lock. */
extern struct ltgf_book *ltgf_watch_book(struct ltgf_watch *watch);

/* Stop the thread and free all; should it hang in I/O for 5 s, it is left alone. NULL is fine. */
extern void ltgf_watch_stop(struct ltgf_watch *watch);

#endif
