/*
 * values.h - text to values: numbers, times, signals, paths; pure.
 *
 * RET of all: 0, or -1 with OUT untouched.
 */
#ifndef LTGF_VALUES_H
#define LTGF_VALUES_H

#include <stddef.h>
#include <stdint.h>

/* A whole decimal number of low..high, digits only. */
int ltgf_read_number(const char *text, uint64_t low, uint64_t high, uint64_t *value);

/* A percentage 1..100, with or without %. */
int ltgf_read_percent(const char *text, int *percent);

/*
 * A time of 1 s to 366 days: as Slurm's --time (MINUTES, M:S, H:M:S, D-H, D-H:M, D-H:M:S) or a
 * number with a unit (90s, 15min, 15m, 2h, 1d).
 */
int ltgf_read_time(const char *text, uint32_t *seconds);

/*
 * NAME[@SECONDS]: a signal that a process can catch, by name with or without SIG, or by number.
 * OUT name: without SIG, or the number. OUT seconds: 0 if not said, else 1..65535.
 */
int ltgf_read_signal(const char *text, char *name, size_t name_len, uint32_t *seconds);

/* An absolute path without control characters, `..`, or an empty end. RET only. */
int ltgf_check_path(const char *text);

#endif
