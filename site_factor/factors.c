/* factors.c - answers from a factor table; see factors.h. */
#include "factors.h"

#include <math.h>
#include <string.h>

extern int ltgf_table_is_fresh(const struct ltgf_header *head, int64_t now_s)
{
	int64_t age_s = now_s - head->generated_ns / 1000000000;

	return age_s <= (int64_t)head->stale_after_s && age_s >= -(int64_t)head->stale_after_s;
}

extern int ltgf_table_job(const struct ltgf_table *table, uint32_t job_id, int32_t *label)
{
	const struct ltgf_label *jobs = table->jobs;
	uint32_t first = 0, end = table->head->jobs;

	while (first < end) {
		uint32_t middle = first + (end - first) / 2;

		if (jobs[middle].job_id < job_id)
			first = middle + 1;
		else
			end = middle;
	}
	if (first == table->head->jobs || jobs[first].job_id != job_id)
		return -1;
	*label = jobs[first].label;
	return 0;
}

extern int ltgf_table_tenant(const struct ltgf_table *table, const char *account, uint32_t *tenant)
{
	uint32_t first = 0, end = table->head->accounts;

	while (account && first < end) {
		uint32_t middle = first + (end - first) / 2;
		int side = strcmp(table->strings + table->accounts[middle].name, account);

		if (!side) {
			*tenant = table->accounts[middle].tenant;
			return 0;
		}
		if (side < 0)
			first = middle + 1;
		else
			end = middle;
	}
	return -1;
}

/* RET 1 if `name` is exactly the `length` bytes at `text` */
static int is_name(const char *name, const char *text, size_t length)
{
	return !strncmp(name, text, length) && !name[length];
}

extern int ltgf_table_manages(const struct ltgf_table *table, const char *names)
{
	uint32_t n = table->head->partitions;

	if (!n || !names || !*names)
		return 1;
	for (const char *at = names; *at; at += *at == ',') {
		size_t length = strcspn(at, ",");

		for (uint32_t i = 0; i < n; i++)
			if (is_name(table->strings + table->partitions[i].name, at, length))
				return 1;
		at += length;
	}
	return 0;
}

/* RET the price of the TRES whose name is the `length` bytes at `text`, NULL: it has none */
static const struct ltgf_price *price_of(const struct ltgf_table *table, const char *text,
					 size_t length)
{
	for (uint32_t i = 0; i < table->head->prices; i++)
		if (is_name(table->strings + table->prices[i].name, text, length))
			return table->prices + i;
	return NULL;
}

static double count_at(const char *text)
{
	double count = 0;

	for (; *text >= '0' && *text <= '9'; text++)
		count = fmin(count * 10 + (*text - '0'), LTGF_MOST_GPUS);
	return count;
}

extern double ltgf_table_gpus(const struct ltgf_table *table, const char *tres)
{
	double sum = 0, typed = 0, total = 0, price_of_total = 0;

	for (const char *at = tres; at && *at; at += *at == ',') {
		size_t length = strcspn(at, ",=");
		const struct ltgf_price *price = price_of(table, at, length);
		double count = at[length] == '=' ? count_at(at + length + 1) : 0;

		if (price && price->kind == LTGF_TOTAL) {
			total = count;
			price_of_total = price->gpus;
		} else if (price) {
			sum += count * price->gpus;
			typed += price->kind == LTGF_TYPED ? count : 0;
		}
		at += strcspn(at, ",");
	}
	sum += fmax(total - typed, 0) * price_of_total;
	return fmin(sum, LTGF_MOST_GPUS);
}

/* RET label at a place of the axis: between two anchors in proportion, outside the nearest one's */
static int32_t label_at(const struct ltgf_table *table, double x)
{
	const struct ltgf_anchor *anchors = table->anchors, *at;
	uint32_t first = 0, end = table->head->anchors;

	while (first < end) { /* the first anchor beyond x */
		uint32_t middle = first + (end - first) / 2;

		if (anchors[middle].x <= x)
			first = middle + 1;
		else
			end = middle;
	}
	if (!first)
		return (int32_t)anchors[0].label;
	at = anchors + first - 1;
	if (first == table->head->anchors)
		return (int32_t)at->label;
	return (int32_t)floor((double)at->label - (x - at->x) / (at[1].x - at->x) *
							  (double)(at->label - at[1].label));
}

/* core/order.py (Account.key) in C: rounded as there, or ties would fall to another side */
static double place_of(const struct ltgf_tenant *own, double charged_gpus)
{
	double has = own->spent_gpu_s + own->lease_s * charged_gpus, tag;

	if (own->due_gpu_s <= 0)
		return fmin((1 + has) * LTGF_NO_DUE, LTGF_FAR);
	tag = fmin(has / own->due_gpu_s, LTGF_NO_DUE / 2);
	return own->held_gpus + charged_gpus < own->floor_gpus ? -1 / (1 + tag) : tag;
}

extern int32_t ltgf_table_next(const struct ltgf_table *table, uint32_t tenant,
			       double charged_gpus)
{
	return label_at(table, place_of(table->tenants + tenant, charged_gpus));
}
