/*
 * share.h - which part of its GPUs a job has, and the MPS limits that follow from its wish; pure.
 */
#ifndef LTGF_SHARE_H
#define LTGF_SHARE_H

#include <stddef.h>
#include <stdint.h>

#include "options.h"

/* part of whole; whole 0: not known. */
struct ltgf_share {
	uint64_t part, whole;
};

/* Devices of "0,3". */
size_t ltgf_share_devices(const char *devices);

/*
 * OUT share: of gres/shard, `shards_on_node` (SLURM_SHARDS_ON_NODE) being spread over n devices of
 * `per_gpu` shards (0: not known to the site); else of gres/mps, `mps_percent`. Both may be NULL.
 * RET 0, or -1 with `why`: a share of which we are told that cannot be reckoned.
 */
int ltgf_share_read(const char *shards_on_node, uint32_t per_gpu, size_t n,
		    const char *mps_percent, struct ltgf_share *share, char *why, size_t why_len);

/*
 * OUT text: the memory limit of each client, "0=9830M,..", of what `mem` wishes of `n` devices.
 * `total` ("0=81920M,..", may be "") says what they have; a per-job limit is divided by `clients`.
 * "" without a wish, and for auto without a share. RET 0, or -1 with `why`.
 */
int ltgf_share_memory(const struct ltgf_mem *mem, const struct ltgf_share *share, const char *total,
		      size_t n, unsigned int clients, char *text, size_t text_len, char *why,
		      size_t why_len);

/* OUT threads: 1..100, or 0 for no limit. */
int ltgf_share_threads(const struct ltgf_wish *wish, const struct ltgf_share *share, int *threads);

#endif
