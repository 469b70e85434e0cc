/* factors.h - the factor table that ltgf publishes: its layout, its check, and what it answers.
 *
 * Pure: bytes in, numbers out; no file, no clock, no Slurm. The layout is described in
 * docs/reference/factor-table.md and written by slurm_ltgf/store/factor_table.py; both languages
 * read tests/golden/factor_table.bin. All numbers are little endian, every section begins at a
 * multiple of 8, strings come last.
 */
#ifndef LTGF_FACTORS_H
#define LTGF_FACTORS_H

#include <stddef.h>
#include <stdint.h>

#define LTGF_MAGIC "LTGFFACT"
#define LTGF_VERSION 2
#define LTGF_LARGEST 2147483645 /* SiteFactor lies within +/- this */
#define LTGF_FAR 1e300		/* nothing on the axis lies further */
#define LTGF_NO_DUE 1e280	/* here begin tenants without entitlement; no tag is so far */
#define LTGF_MOST_GPUS 1e9

struct ltgf_header {
	char magic[8];
	uint32_t version;
	uint32_t crc32; /* of the whole table with this field 0 */
	uint64_t size;	/* of the whole table, bytes */
	int64_t generated_ns;
	uint32_t stale_after_s;
	uint32_t anchors, tenants, accounts, prices, partitions, jobs; /* entries of each section */
	uint32_t strings;					       /* bytes of the last one */
};

/* A place on the axis and its label; between two of them labels are interpolated. */
struct ltgf_anchor {
	double x;
	int64_t label;
};

/* A tenant's account, and where its next job stands: has = spent_gpu_s + lease_s * charged_gpus,
 * tag = has / due_gpu_s; with nothing due: behind all tags, at (1 + has) * LTGF_NO_DUE.
 */
struct ltgf_tenant {
	double spent_gpu_s, lease_s, due_gpu_s;
	double held_gpus, floor_gpus; /* while held and charged are less it goes before all others */
	double charged_gpus;	      /* of its jobs that waited when the table was made */
};

struct ltgf_account {
	uint32_t name; /* offset in strings */
	uint32_t tenant;
};

/* Weighted GPUs that one unit of a TRES is worth. */
enum ltgf_price_kind { LTGF_PLAIN, LTGF_TYPED, LTGF_TOTAL /* of the typed ones, if not less */ };

struct ltgf_price {
	double gpus;
	uint32_t name, kind;
};

struct ltgf_partition {
	uint32_t name, unused;
};

struct ltgf_label {
	uint32_t job_id;
	int32_t label;
};

/* A checked table: pointers into the bytes that were checked. */
struct ltgf_table {
	const struct ltgf_header *head;
	const struct ltgf_anchor *anchors;
	const struct ltgf_tenant *tenants;
	const struct ltgf_account *accounts;
	const struct ltgf_price *prices;
	const struct ltgf_partition *partitions;
	const struct ltgf_label *jobs;
	const char *strings;
};

/* Check every byte of a table.
 * IN bytes - at an address that is a multiple of 8; they must outlive `table`
 * OUT table - untouched on failure
 * OUT why - on failure the reason, a constant text
 * RET 0, or -1
 */
extern int ltgf_table_check(const void *bytes, size_t size, struct ltgf_table *table,
			    const char **why);

/* For tests: make size and checksum of a table right, if it has a whole header. */
extern void ltgf_table_seal(void *bytes, size_t size);

/* RET 1 if the table is neither too old at `now_s` nor as far in the future, else 0 */
extern int ltgf_table_is_fresh(const struct ltgf_header *head, int64_t now_s);

/* Look a job up. OUT label - untouched if the job is not in the table. RET 0, or -1: not in it */
extern int ltgf_table_job(const struct ltgf_table *table, uint32_t job_id, int32_t *label);

/* Look an account's tenant up. OUT tenant - its index. RET 0, or -1: the account is no tenant's */
extern int ltgf_table_tenant(const struct ltgf_table *table, const char *account, uint32_t *tenant);

/* RET 1 if a partition of the comma list `names` is managed, or all are; else 0 */
extern int ltgf_table_manages(const struct ltgf_table *table, const char *names);

/* RET weighted GPUs in a TRES list such as "cpu=4,gres/gpu=2"; 0 for NULL */
extern double ltgf_table_gpus(const struct ltgf_table *table, const char *tres);

/* RET label of a tenant's next job when it was charged `charged_gpus` in all */
extern int32_t ltgf_table_next(const struct ltgf_table *table, uint32_t tenant,
			       double charged_gpus);

#endif
