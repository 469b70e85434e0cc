/* book.h - one published table and what was admitted since: the label of any pending job.
 *
 * A job that the table does not know is new. The first time it is asked for it is admitted: it
 * gets the label of its tenant's next place and charges its GPUs to the tenant, so that of a
 * burst each job stands behind the one before. Asked again, it keeps that label. A new table
 * starts anew: it knows the jobs that were admitted before.
 *
 * Pure, but for memory. Not for two threads at once: slurmctld's job write lock is around all use.
 */
#ifndef LTGF_BOOK_H
#define LTGF_BOOK_H

#include "factors.h"

/* Most jobs that one book admits; what comes later gets label 0 until the next table. */
#define LTGF_MOST_ADMITTED 49152

struct ltgf_book;

/* What is asked of a job. tasks: of an array, those that may start; else 1. Texts may be NULL. */
struct ltgf_job {
	uint32_t id, tasks;
	const char *account, *partition, *tres;
};

/* Check a table and open a book on it.
 * IN bytes - from malloc(); the book's own on success, the caller's on failure
 * OUT book - to be closed by ltgf_book_close(); untouched on failure
 * OUT why - on failure the reason, a constant text
 * RET 0, or -1
 */
extern int ltgf_book_open(void *bytes, size_t size, struct ltgf_book **book, const char **why);

/* RET the job's label; 0 if it is none of ours */
extern int32_t ltgf_book_label(struct ltgf_book *book, const struct ltgf_job *job);

/* RET the table that the book is on */
extern const struct ltgf_table *ltgf_book_table(const struct ltgf_book *book);

/* Free a book and its table; NULL is fine. */
extern void ltgf_book_close(struct ltgf_book *book);

/* Books that are done with are chained by this. */
extern struct ltgf_book **ltgf_book_chain(struct ltgf_book *book);

#endif
