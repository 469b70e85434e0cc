/* fuzz.c - libFuzzer on the reader: any bytes, also sealed with a right checksum. */
#include <stdlib.h>
#include <string.h>

#include "book.h"

extern int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void ask(struct ltgf_book *book)
{
	const struct ltgf_table *table = ltgf_book_table(book);
	const uint32_t accounts = table->head->accounts;

	for (uint32_t i = 0; i < 64; i++) {
		struct ltgf_job job = { .id = i + 1, .tasks = i, .partition = "main,other",
					.tres = "cpu=1,gres/gpu=2,gres/gpu:h200=1" };

		if (accounts)
			job.account = table->strings + table->accounts[i % accounts].name;
		if (table->head->prices && i % 2)
			job.tres = table->strings + table->prices[i % table->head->prices].name;
		(void)ltgf_book_label(book, &job);
	}
	(void)ltgf_table_is_fresh(table->head, 1700000000);
}

extern int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	for (int is_sealed = 0; is_sealed < 2; is_sealed++) {
		struct ltgf_book *book = NULL;
		void *copy = malloc(size + !size);
		const char *why;

		if (!copy)
			return 0;
		memcpy(copy, bytes, size);
		if (is_sealed)
			ltgf_table_seal(copy, size);
		if (ltgf_book_open(copy, size, &book, &why)) {
			free(copy);
			continue;
		}
		ask(book);
		ltgf_book_close(book);
	}
	return 0;
}
