/*
 * share.c - which part of its GPUs a job has, and the MPS limits that follow from its wish; pure.
 */
#include "share.h"

#include <string.h>

#include "limits.h"
#include "mps.h"
#include "mps_why.h"
#include "values.h"

size_t ltgf_share_devices(const char *devices)
{
	size_t n = devices[0] != '\0';

	for (const char *c = devices; *c; c++)
		n += *c == ',';
	return n;
}

int ltgf_share_read(const char *shards_on_node, uint32_t per_gpu, size_t n,
		    const char *mps_percent, struct ltgf_share *share, char *why, size_t why_len)
{
	struct ltgf_share found = { 0, 0 };

	if (shards_on_node) {
		if (!per_gpu)
			return ltgf_why(why, why_len, "the job's share of its GPUs is not known: "
					"plugstack.conf must say shards=NUMBER of a GPU");
		found.whole = (uint64_t)per_gpu * (n ? n : 1);
		if (ltgf_read_number(shards_on_node, 1, found.whole, &found.part))
			return ltgf_why(why, why_len, "%.20s shards on %zu GPUs of %u shards each: "
					"plugstack.conf's shards= is not this node's",
					shards_on_node, n, per_gpu);
	} else if (mps_percent && !ltgf_read_number(mps_percent, 1, 100, &found.part)) {
		found.whole = 100;
	}
	*share = found;
	return 0;
}

/* OUT mib: what the wish is of one device. */
static int one_device(const struct ltgf_mem *mem, const struct ltgf_share *share, uint64_t total,
		      uint64_t *mib)
{
	if (mem->kind == LTGF_MEM_SIZE) {
		*mib = mem->mib;
		return 0;
	}
	if (mem->kind == LTGF_MEM_PERCENT)
		return ltgf_limit_share(total, (uint64_t)mem->percent, 100, mib);
	return ltgf_limit_share(total, share->part, share->whole, mib);
}

int ltgf_share_memory(const struct ltgf_mem *mem, const struct ltgf_share *share, const char *total,
		      size_t n, unsigned int clients, char *text, size_t text_len, char *why,
		      size_t why_len)
{
	uint64_t totals[LTGF_MPS_DEVICES] = { 0 }, limits[LTGF_MPS_DEVICES];
	size_t known = 0;

	if (mem->kind == LTGF_MEM_NONE || (mem->kind == LTGF_MEM_AUTO && !share->whole)) {
		text[0] = '\0';
		return 0;
	}
	if (n < 1 || n > LTGF_MPS_DEVICES)
		return ltgf_why(why, why_len, "%zu GPUs: from 1 to %d can have memory limits", n,
				LTGF_MPS_DEVICES);
	if (mem->kind != LTGF_MEM_SIZE &&
	    (ltgf_limit_read(total, totals, LTGF_MPS_DEVICES, &known) || known < n))
		return ltgf_why(why, why_len, "the memory of the GPUs is not known: ask for a "
				"size, as --mps-mem=4G; or give --mps-mem to sbatch or salloc");
	for (size_t i = 0; i < n; i++) {
		if (one_device(mem, share, totals[i], &limits[i]) ||
		    (!mem->per_task && ltgf_limit_divide(limits[i], clients, &limits[i])))
			return ltgf_why(why, why_len, "the memory limit is less than 1 MiB for "
					"each of %u tasks: raise --mps-mem", clients);
	}
	if (ltgf_limit_text(limits, n, text, text_len))
		return ltgf_why(why, why_len, "too many GPUs for one list of limits");
	return 0;
}

int ltgf_share_threads(const struct ltgf_wish *wish, const struct ltgf_share *share, int *threads)
{
	if (!wish->threads_auto || !share->whole) {
		*threads = wish->threads;
		return 0;
	}
	return ltgf_limit_threads(share->part, share->whole, threads);
}
