/*
 * values.c - text to values: numbers, times, signals, paths; pure.
 */
#include "values.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY_S 86400ULL
#define LONGEST_S (366ULL * DAY_S)

int ltgf_read_number(const char *text, uint64_t low, uint64_t high, uint64_t *value)
{
	unsigned long long number;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return -1;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || *end || number < low || number > high)
		return -1;
	*value = number;
	return 0;
}

/* `text` up to `end` as a number. */
static int read_part(const char *text, const char *end, uint64_t high, uint64_t *value)
{
	char part[24];
	size_t len = (size_t)(end - text);

	if (len >= sizeof(part))
		return -1;
	memcpy(part, text, len);
	part[len] = '\0';
	return ltgf_read_number(part, 0, high, value);
}

int ltgf_read_percent(const char *text, int *percent)
{
	size_t len = strlen(text);
	uint64_t value;

	if (len && text[len - 1] == '%')
		len--;
	if (read_part(text, text + len, 100, &value) || value < 1)
		return -1;
	*percent = (int)value;
	return 0;
}

/* H, H:M or H:M:S after the days of Slurm's form; else M, M:S or H:M:S. */
static int read_clock(const char *text, int after_days, uint64_t *seconds)
{
	static const uint64_t without_days[][3] = { { 60 }, { 60, 1 }, { 3600, 60, 1 } };
	static const uint64_t with_days[3] = { 3600, 60, 1 };
	const uint64_t *unit;
	uint64_t part[3];
	const char *end;
	size_t n = 0;

	for (;; text = end + 1) {
		end = strchrnul(text, ':');
		if (n == 3 || read_part(text, end, LONGEST_S, &part[n]))
			return -1;
		n++;
		if (!*end)
			break;
	}
	unit = after_days ? with_days : without_days[n - 1];
	*seconds = 0;
	for (size_t i = 0; i < n; i++)
		*seconds += part[i] * unit[i];
	return 0;
}

/* A number with a unit: 90s. */
static int read_unit(const char *text, uint64_t *seconds)
{
	static const struct {
		const char *word;
		uint64_t seconds;
	} units[] = { { "s", 1 }, { "m", 60 }, { "min", 60 }, { "h", 3600 }, { "d", DAY_S } };
	const char *end = text + strspn(text, "0123456789");
	uint64_t value;

	if (read_part(text, end, LONGEST_S, &value))
		return -1;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (!strcmp(end, units[i].word)) {
			*seconds = value * units[i].seconds;
			return 0;
		}
	}
	return -1;
}

int ltgf_read_time(const char *text, uint32_t *seconds)
{
	const char *dash = strchr(text, '-');
	uint64_t days = 0, rest;

	if (dash && read_part(text, dash, LONGEST_S / DAY_S, &days))
		return -1;
	if (dash ? read_clock(dash + 1, 1, &rest) :
		   read_unit(text, &rest) && read_clock(text, 0, &rest))
		return -1;
	rest += days * DAY_S;
	if (rest < 1 || rest > LONGEST_S)
		return -1;
	*seconds = (uint32_t)rest;
	return 0;
}

/* The signals that may be caught and mean nothing else to a job's control. */
static int read_signal_name(const char *text, char *name, size_t name_len)
{
	static const char *const names[] = { "HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "ALRM",
					     "URG", "XCPU", "VTALRM", "PROF", "WINCH", "IO",
					     "PWR" };
	uint64_t number;

	if (!strncmp(text, "SIG", 3))
		text += 3;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(text, names[i]))
			return snprintf(name, name_len, "%s", text) < (int)name_len ? 0 : -1;
	}
	if (ltgf_read_number(text, 1, 64, &number) || number == 9 || number == 19)
		return -1;
	return snprintf(name, name_len, "%d", (int)number) < (int)name_len ? 0 : -1;
}

int ltgf_read_signal(const char *text, char *name, size_t name_len, uint32_t *seconds)
{
	const char *at = strchrnul(text, '@');
	uint64_t value = 0;
	char word[16], found[16];

	if ((size_t)(at - text) >= sizeof(word))
		return -1;
	memcpy(word, text, (size_t)(at - text));
	word[at - text] = '\0';
	if (*at && ltgf_read_number(at + 1, 1, 65535, &value))
		return -1;
	if (read_signal_name(word, found, sizeof(found)) || strlen(found) >= name_len)
		return -1;
	memcpy(name, found, strlen(found) + 1);
	*seconds = (uint32_t)value;
	return 0;
}

int ltgf_check_path(const char *text)
{
	size_t len = strlen(text);

	if (text[0] != '/')
		return -1;
	for (const char *c = text; *c; c++) {
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return -1;
	}
	if (strstr(text, "/../") || (len >= 3 && !strcmp(text + len - 3, "/..")))
		return -1;
	return 0;
}
