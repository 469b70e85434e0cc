/* bench.c - what a walk over many pending jobs costs, by the functions that slurmctld's walk calls.
 *
 * Three walks: all jobs known to the table, every second new, the same again. One line each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "book.h"

#define JOBS 100000
#define TENANTS 200
#define ANCHORS 700

static void *table_of(uint32_t jobs, uint32_t spacing, size_t *size)
{
	const size_t strings = 1 + TENANTS * 8UL + sizeof("gres/gpu");
	struct ltgf_header *head;
	struct ltgf_anchor *anchors;
	struct ltgf_tenant *tenants;
	struct ltgf_account *accounts;
	struct ltgf_price *price;
	struct ltgf_label *labels;
	char *text;

	*size = sizeof(*head) + ANCHORS * sizeof(*anchors) + TENANTS * sizeof(*tenants) +
		TENANTS * sizeof(*accounts) + sizeof(*price) + jobs * sizeof(*labels) + strings;
	head = calloc(1, *size);
	if (!head)
		abort();
	*head = (struct ltgf_header){ .version = LTGF_VERSION, .generated_ns = 1, .stale_after_s = 1,
				      .anchors = ANCHORS, .tenants = TENANTS, .accounts = TENANTS,
				      .prices = 1, .jobs = jobs, .strings = (uint32_t)strings };
	memcpy(head->magic, LTGF_MAGIC, sizeof(head->magic));
	anchors = (void *)(head + 1);
	tenants = (void *)(anchors + ANCHORS);
	accounts = (void *)(tenants + TENANTS);
	price = (void *)(accounts + TENANTS);
	labels = (void *)(price + 1);
	text = (char *)(labels + jobs);
	for (uint32_t i = 0; i < ANCHORS; i++)
		anchors[i] = (struct ltgf_anchor){ i, LTGF_LARGEST - i * 1000000L };
	for (uint32_t i = 0; i < TENANTS; i++) {
		tenants[i] = (struct ltgf_tenant){ i, 0.01, 1, 0, 0, 0 };
		accounts[i] = (struct ltgf_account){ 1 + i * 8, i };
		snprintf(text + 1 + i * 8, 8, "acct%03u", i);
	}
	*price = (struct ltgf_price){ 1, 1 + TENANTS * 8, LTGF_TOTAL };
	memcpy(text + price->name, "gres/gpu", sizeof("gres/gpu"));
	for (uint32_t i = 0; i < jobs; i++)
		labels[i] = (struct ltgf_label){ 1 + i * spacing, (int32_t)i };
	ltgf_table_seal(head, *size);
	return head;
}

static double now_ms(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec * 1e3 + (double)at.tv_nsec / 1e6;
}

static void walk(struct ltgf_book *book, const char *what)
{
	char account[16];
	struct ltgf_job job = { .tasks = 1, .account = account, .partition = "main",
				.tres = "cpu=8,mem=64G,node=1,billing=8,gres/gpu=2" };
	double began = now_ms();
	int64_t sum = 0;

	for (job.id = 1; job.id <= JOBS; job.id++) {
		snprintf(account, sizeof(account), "acct%03u", job.id % TENANTS);
		sum += ltgf_book_label(book, &job);
	}
	printf("%-44s %7.2f ms (sum %lld)\n", what, now_ms() - began, (long long)sum);
}

int main(void)
{
	for (uint32_t spacing = 1; spacing <= 2; spacing++) {
		struct ltgf_book *book = NULL;
		const char *why = "";
		size_t size;
		void *bytes = table_of(JOBS / spacing, spacing, &size);
		double began = now_ms();

		if (ltgf_book_open(bytes, size, &book, &why)) {
			fprintf(stderr, "the table %s\n", why);
			return 1;
		}
		printf("%-44s %7.2f ms (%zu bytes)\n", "check of a table, in the thread",
		       now_ms() - began, size);
		if (spacing == 1) {
			walk(book, "100,000 pending jobs, all in the table");
		} else {
			walk(book, "100,000 pending jobs, every second new");
			walk(book, "the same again");
		}
		ltgf_book_close(book);
	}
	return 0;
}
