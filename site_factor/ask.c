/* ask.c - answers for jobs from a table, as the plugin would: for tests and for a curious admin.
 *
 * Usage: ask TABLE < JOBS: a job a line, "ID TASKS ACCOUNT PARTITION TRES", - for a text that is
 * not there; prints a label a line. 1 and a reason if the table is not good.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "book.h"
#include "file.h"

static const char *text_or_null(const char *text)
{
	return strcmp(text, "-") ? text : NULL;
}

int main(int argc, char **argv)
{
	char account[256], partition[256], tres[1024];
	struct ltgf_book *book = NULL;
	struct ltgf_job job;
	struct stat seen = { 0 };
	const char *why = "usage: ask TABLE < JOBS";
	void *bytes = NULL;
	size_t size;

	if (argc != 2 || ltgf_file_read(argv[1], &seen, &bytes, &size, &why) ||
	    ltgf_book_open(bytes, size, &book, &why)) {
		fprintf(stderr, "ask: %s %s\n", argc > 1 ? argv[1] : "", why);
		free(bytes);
		return 1;
	}
	while (scanf("%u %u %255s %255s %1023s", &job.id, &job.tasks, account, partition, tres) ==
	       5) {
		job.account = text_or_null(account);
		job.partition = text_or_null(partition);
		job.tres = text_or_null(tres);
		printf("%d\n", ltgf_book_label(book, &job));
	}
	ltgf_book_close(book);
	return 0;
}
