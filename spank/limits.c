/*
 * limits.c - arithmetic and text of MPS limits: shares of memory and threads; pure.
 */
#include "limits.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* floor(total x part / whole) for part <= whole, without overflow. */
static uint64_t share(uint64_t total, uint64_t part, uint64_t whole)
{
	return (uint64_t) ((unsigned __int128) total * part / whole);
}

int ltgf_limit_share(uint64_t total_mib, uint64_t part, uint64_t whole, uint64_t *mib)
{
	uint64_t due;

	if (!total_mib || !part || part > whole)
		return -1;
	due = share(total_mib, part, whole);
	*mib = due ? due : 1;
	return 0;
}

int ltgf_limit_threads(uint64_t part, uint64_t whole, int *pct)
{
	uint64_t due;

	if (!part || part > whole)
		return -1;
	due = share(100, part, whole);
	*pct = due ? (int) due : 1;
	return 0;
}

int ltgf_limit_divide(uint64_t mib, unsigned int clients, uint64_t *each)
{
	if (!clients || mib < clients)
		return -1;
	*each = mib / clients;
	return 0;
}

unsigned int ltgf_limit_clients(unsigned int tasks, unsigned int devices)
{
	if (!tasks || !devices)
		return 1;
	return tasks / devices + (tasks % devices != 0);
}

/* Digits only, so that strtoull's sign, blanks and 0x never get in; *end is what follows them. */
static int read_number(const char *text, uint64_t *number, const char **end)
{
	char *stop;
	unsigned long long value;

	if (!isdigit((unsigned char) *text))
		return -1;
	errno = 0;
	value = strtoull(text, &stop, 10);
	if (errno)
		return -1;
	*number = value;
	*end = stop;
	return 0;
}

int ltgf_limit_size(const char *text, uint64_t *mib)
{
	static const char letters[] = "KMGT";
	const char *unit, *letter;
	uint64_t number, bytes;
	unsigned int shift;

	if (!text || read_number(text, &number, &unit) < 0 || !*unit)
		return -1;
	letter = strchr(letters, toupper((unsigned char) *unit));
	if (!letter)
		return -1;
	if (unit[1] && strcasecmp(unit + 1, "B") && strcasecmp(unit + 1, "iB"))
		return -1;
	shift = 10U * (unsigned int) (letter - letters + 1);
	if (number > UINT64_MAX >> shift)
		return -1;
	bytes = number << shift;
	if (bytes < LTGF_MIB)
		return -1;
	*mib = bytes / LTGF_MIB;
	return 0;
}

int ltgf_limit_text(const uint64_t *mib, size_t n, char *text, size_t text_len)
{
	char line[4096];
	size_t used = 0;
	int wrote;

	if (!n)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (!mib[i])
			return -1;
		wrote = snprintf(line + used, sizeof(line) - used, "%s%zu=%" PRIu64 "M",
				 i ? "," : "", i, mib[i]);
		if (wrote < 0 || (size_t) wrote >= sizeof(line) - used)
			return -1;
		used += (size_t) wrote;
	}
	if (used >= text_len)
		return -1;
	memcpy(text, line, used + 1);
	return 0;
}

int ltgf_limit_read(const char *text, uint64_t *mib, size_t max, size_t *n)
{
	const char *at = text;
	uint64_t index, size;
	size_t count;

	for (int writing = 0; writing < 2; writing++) {	/* once to check, once to write */
		at = text;
		for (count = 0; ; at++) {
			if (count >= max || read_number(at, &index, &at) < 0 || index != count ||
			    *at++ != '=' || read_number(at, &size, &at) < 0 || !size ||
			    *at++ != 'M' || (*at && *at != ','))
				return -1;
			if (writing)
				mib[count] = size;
			count++;
			if (!*at)
				break;
		}
	}
	*n = count;
	return 0;
}

/* The daemon says "9G" when 9830M is set, and nothing when nothing is. */
bool ltgf_limit_is_answer(const char *answer, uint64_t mib)
{
	const char *unit;
	uint64_t number;

	if (read_number(answer, &number, &unit) < 0)
		return false;
	if (*unit != 'K' && *unit != 'M' && *unit != 'G' && *unit != 'T')
		return number == mib * LTGF_MIB && (!*unit || isspace((unsigned char) *unit));
	if (unit[1] && !isspace((unsigned char) unit[1]) && unit[1] != 'B')
		return false;
	switch (*unit) {
	case 'K':
		return number == mib * 1024;
	case 'M':
		return number == mib;
	case 'G':
		return number == mib / 1024;
	default:
		return number == mib / 1024 / 1024;
	}
}
