/* book.c - labels from a table, and admission of jobs that it does not know; see book.h. */
#include "book.h"

#include <stdlib.h>

#define SLOTS 65536 /* a power of two; at most three quarters are ever taken */
_Static_assert(LTGF_MOST_ADMITTED <= SLOTS / 4 * 3, "an empty slot ends every search");

struct ltgf_book {
	struct ltgf_book *chain;
	void *bytes;
	struct ltgf_table table;
	double *charged_gpus; /* of each tenant */
	uint32_t admitted;
	struct ltgf_label slots[SLOTS]; /* job_id 0: empty */
};

extern int ltgf_book_open(void *bytes, size_t size, struct ltgf_book **book, const char **why)
{
	struct ltgf_table table;
	struct ltgf_book *made;

	if (ltgf_table_check(bytes, size, &table, why))
		return -1;
	made = calloc(1, sizeof(*made));
	if (made)
		made->charged_gpus = calloc(table.head->tenants + 1UL, sizeof(double));
	if (!made || !made->charged_gpus) {
		free(made);
		*why = "does not fit into memory";
		return -1;
	}
	for (uint32_t i = 0; i < table.head->tenants; i++)
		made->charged_gpus[i] = table.tenants[i].charged_gpus;
	made->bytes = bytes;
	made->table = table;
	*book = made;
	return 0;
}

/* RET the slot of a job, or the empty one where it belongs */
static struct ltgf_label *slot_of(struct ltgf_book *book, uint32_t job_id)
{
	uint32_t at = job_id * 2654435769u;

	at ^= at >> 16;
	while (book->slots[at % SLOTS].job_id && book->slots[at % SLOTS].job_id != job_id)
		at++;
	return &book->slots[at % SLOTS];
}

static int32_t admit(struct ltgf_book *book, struct ltgf_label *slot, const struct ltgf_job *job)
{
	uint32_t tenant;

	if (!ltgf_table_manages(&book->table, job->partition) ||
	    ltgf_table_tenant(&book->table, job->account, &tenant) ||
	    book->admitted >= LTGF_MOST_ADMITTED)
		return 0;
	book->admitted++;
	slot->job_id = job->id;
	slot->label = ltgf_table_next(&book->table, tenant, book->charged_gpus[tenant]);
	book->charged_gpus[tenant] += ltgf_table_gpus(&book->table, job->tres) * job->tasks;
	return slot->label;
}

extern int32_t ltgf_book_label(struct ltgf_book *book, const struct ltgf_job *job)
{
	struct ltgf_label *slot;
	int32_t label;

	if (!job->id)
		return 0;
	if (!ltgf_table_job(&book->table, job->id, &label))
		return label;
	slot = slot_of(book, job->id);
	return slot->job_id ? slot->label : admit(book, slot, job);
}

extern const struct ltgf_table *ltgf_book_table(const struct ltgf_book *book)
{
	return &book->table;
}

extern struct ltgf_book **ltgf_book_chain(struct ltgf_book *book)
{
	return &book->chain;
}

extern void ltgf_book_close(struct ltgf_book *book)
{
	if (!book)
		return;
	free(book->charged_gpus);
	free(book->bytes);
	free(book);
}
