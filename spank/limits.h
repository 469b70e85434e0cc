/*
 * limits.h - arithmetic and text of MPS limits: shares of memory and threads; pure.
 *
 * RET 0, or -1 with OUT untouched (impossible share, overflow, bad text, buffer too small).
 */
#ifndef LTGF_LIMITS_H
#define LTGF_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LTGF_MIB (1024ULL * 1024ULL)

/* OUT mib: floor(total_mib x part / whole), at least 1; needs 1 <= part <= whole and total >= 1. */
int ltgf_limit_share(uint64_t total_mib, uint64_t part, uint64_t whole, uint64_t *mib);

/* OUT pct: floor(100 x part / whole), at least 1 (0 would mean unset); needs 1 <= part <= whole. */
int ltgf_limit_threads(uint64_t part, uint64_t whole, int *pct);

/*
 * One client's part of a per-job limit, as NVIDIA's limit is per client process.
 * OUT each: floor(mib / clients); -1 if clients is 0 or the part is below 1 MiB.
 */
int ltgf_limit_divide(uint64_t mib, unsigned int clients, uint64_t *each);

/* Tasks that share one device when `tasks` are dealt round-robin to `devices`: the largest number,
 * >= 1. */
unsigned int ltgf_limit_clients(unsigned int tasks, unsigned int devices);

/* OUT mib: of "512M", "4G", "1T", "1048576K"; K M G T and KiB.. or KB.. all mean powers of 1024. */
int ltgf_limit_size(const char *text, uint64_t *mib);

/* OUT text: "0=9830M,1=40960M" of mib[0..n-1], the one form that the driver honours. */
int ltgf_limit_text(const uint64_t *mib, size_t n, char *text, size_t text_len);

/* OUT mib[0..n-1]: of that form and no other: indices from 0 in order, whole M, no blanks. */
int ltgf_limit_read(const char *text, uint64_t *mib, size_t max, size_t *n);

/*
 * Is `answer`, what the daemon says to get_default_device_pinned_mem_limit, the limit of mib MiB?
 * It rounds down to its largest unit: "9G" for 9830M; and says nothing when no limit is set.
 */
bool ltgf_limit_is_answer(const char *answer, uint64_t mib);

#endif
