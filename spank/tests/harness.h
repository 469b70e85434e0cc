/*
 * harness.h - the tests' own few macros: count what holds, print what does not, exit 1 if any.
 */
#ifndef LTGF_HARNESS_H
#define LTGF_HARNESS_H

#include <stdio.h>
#include <string.h>

static int harness_checks, harness_failures;

#define CHECK(condition) \
	do { \
		harness_checks++; \
		if (!(condition)) { \
			harness_failures++; \
			printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
		} \
	} while (0)

/* Two texts are one. */
#define CHECK_TEXT(found, wanted) \
	do { \
		harness_checks++; \
		if (strcmp((found), (wanted))) { \
			harness_failures++; \
			printf("%s:%d: %s: \"%s\", not \"%s\"\n", __FILE__, __LINE__, #found, (found), \
			       (wanted)); \
		} \
	} while (0)

/* A row of a table failed: say which. */
#define CHECK_ROW(condition, row) \
	do { \
		harness_checks++; \
		if (!(condition)) { \
			harness_failures++; \
			printf("%s:%d: \"%s\": not so: %s\n", __FILE__, __LINE__, (row), #condition); \
		} \
	} while (0)

#define RESULT() (printf("%d checks, %d failed\n", harness_checks, harness_failures), \
		  harness_failures ? 1 : 0)

#endif
