/* factors_check.c - checks every byte of a factor table; see factors.h. */
#include "factors.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the table is little endian");
_Static_assert(sizeof(struct ltgf_header) == 64 && sizeof(struct ltgf_anchor) == 16 &&
		       sizeof(struct ltgf_tenant) == 48 && sizeof(struct ltgf_account) == 8 &&
		       sizeof(struct ltgf_price) == 16 && sizeof(struct ltgf_partition) == 8 &&
		       sizeof(struct ltgf_label) == 8,
	       "the table's layout has no holes");

#define LONGEST_STALE_S (366 * 86400)

/* One nibble a step: 64 bytes of constants instead of 1 KiB, 1 MB in some 5 ms. */
static uint32_t crc32_more(uint32_t crc, const unsigned char *bytes, size_t size)
{
	static const uint32_t step[16] = {
		0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158,
		0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4,
		0xa00ae278, 0xbdbdf21c };

	for (size_t i = 0; i < size; i++) {
		crc ^= bytes[i];
		crc = (crc >> 4) ^ step[crc & 15];
		crc = (crc >> 4) ^ step[crc & 15];
	}
	return crc;
}

static uint32_t crc32_of(const unsigned char *bytes, size_t size)
{
	static const unsigned char zero[sizeof(uint32_t)];
	size_t at = offsetof(struct ltgf_header, crc32);
	uint32_t crc = crc32_more(0xffffffff, bytes, at);

	crc = crc32_more(crc, zero, sizeof(zero));
	at += sizeof(zero);
	return ~crc32_more(crc, bytes + at, size - at);
}

extern void ltgf_table_seal(void *bytes, size_t size)
{
	struct ltgf_header *head = bytes;

	if (size < sizeof(*head))
		return;
	head->size = size;
	head->crc32 = crc32_of(bytes, size);
}

static const char *check_header(const struct ltgf_header *head, size_t size)
{
	uint64_t need = sizeof(*head);

	if (memcmp(head->magic, LTGF_MAGIC, sizeof(head->magic)))
		return "is no factor table";
	if (head->version != LTGF_VERSION)
		return "is of another version than this plugin: install both from one release";
	need += (uint64_t)head->anchors * sizeof(struct ltgf_anchor);
	need += (uint64_t)head->tenants * sizeof(struct ltgf_tenant);
	need += (uint64_t)head->accounts * sizeof(struct ltgf_account);
	need += (uint64_t)head->prices * sizeof(struct ltgf_price);
	need += (uint64_t)head->partitions * sizeof(struct ltgf_partition);
	need += (uint64_t)head->jobs * sizeof(struct ltgf_label);
	need += head->strings;
	if (head->size != size || need != size)
		return "is cut off or has bytes too many";
	if (head->crc32 != crc32_of((const unsigned char *)head, size))
		return "is damaged: its checksum is wrong";
	if (!head->stale_after_s || head->stale_after_s > LONGEST_STALE_S)
		return "has a stale_after out of range";
	if (head->generated_ns <= 0)
		return "has no time";
	return NULL;
}

static void lay_out(const struct ltgf_header *head, struct ltgf_table *table)
{
	const unsigned char *at = (const unsigned char *)(head + 1);

	table->head = head;
	table->anchors = (const void *)at;
	table->tenants = (const void *)(table->anchors + head->anchors);
	table->accounts = (const void *)(table->tenants + head->tenants);
	table->prices = (const void *)(table->accounts + head->accounts);
	table->partitions = (const void *)(table->prices + head->prices);
	table->jobs = (const void *)(table->partitions + head->partitions);
	table->strings = (const void *)(table->jobs + head->jobs);
}

static int in_range(double value, double least, double most)
{
	return value >= least && value <= most; /* never of NaN */
}

static int is_label(int64_t label)
{
	return label >= -LTGF_LARGEST && label <= LTGF_LARGEST;
}

static const char *check_anchors(const struct ltgf_table *table)
{
	uint32_t n = table->head->anchors;

	if (n < 2)
		return "has fewer than two anchors";
	for (uint32_t i = 0; i < n; i++) {
		const struct ltgf_anchor *at = table->anchors + i;

		if (!in_range(at->x, -LTGF_FAR, LTGF_FAR) || !is_label(at->label))
			return "has an anchor out of range";
		if (i && (at->x <= at[-1].x || at->label > at[-1].label))
			return "has anchors out of order";
	}
	return NULL;
}

static const char *check_tenants(const struct ltgf_table *table)
{
	for (uint32_t i = 0; i < table->head->tenants; i++) {
		const struct ltgf_tenant *at = table->tenants + i;

		if (!in_range(at->spent_gpu_s, 0, LTGF_FAR) ||
		    !in_range(at->lease_s, 0, LTGF_FAR) || !in_range(at->due_gpu_s, 0, LTGF_FAR) ||
		    !in_range(at->held_gpus, 0, LTGF_MOST_GPUS) ||
		    !in_range(at->floor_gpus, 0, LTGF_MOST_GPUS) ||
		    !in_range(at->charged_gpus, 0, LTGF_MOST_GPUS))
			return "has a tenant out of range";
	}
	return NULL;
}

static const char *check_names(const struct ltgf_table *table)
{
	const struct ltgf_header *head = table->head;

	if (!head->strings || table->strings[head->strings - 1])
		return "has strings without end";
	for (uint32_t i = 0; i < head->accounts; i++) {
		const struct ltgf_account *at = table->accounts + i;

		if (at->name >= head->strings || at->tenant >= head->tenants)
			return "has an account out of range";
		if (i && strcmp(table->strings + at[-1].name, table->strings + at->name) >= 0)
			return "has accounts out of order";
	}
	for (uint32_t i = 0; i < head->prices; i++)
		if (table->prices[i].name >= head->strings ||
		    table->prices[i].kind > LTGF_TOTAL ||
		    !in_range(table->prices[i].gpus, 0, LTGF_MOST_GPUS))
			return "has a price out of range";
	for (uint32_t i = 0; i < head->partitions; i++)
		if (table->partitions[i].name >= head->strings)
			return "has a partition out of range";
	return NULL;
}

static const char *check_jobs(const struct ltgf_table *table)
{
	for (uint32_t i = 0; i < table->head->jobs; i++) {
		const struct ltgf_label *at = table->jobs + i;

		if (!at->job_id || !is_label(at->label))
			return "has a job out of range";
		if (i && at->job_id <= at[-1].job_id)
			return "has jobs out of order";
	}
	return NULL;
}

extern int ltgf_table_check(const void *bytes, size_t size, struct ltgf_table *table,
			    const char **why)
{
	static const char *(*const checks[])(const struct ltgf_table *) = {
		check_anchors, check_tenants, check_names, check_jobs };
	const struct ltgf_header *head = bytes;
	struct ltgf_table found;

	*why = size < sizeof(*head) ? "is shorter than a table's header" : check_header(head, size);
	if (*why)
		return -1;
	lay_out(head, &found);
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		*why = checks[i](&found);
		if (*why)
			return -1;
	}
	*table = found;
	return 0;
}
