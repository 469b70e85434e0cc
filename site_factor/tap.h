/* tap.h - for tests: numbered results, one a line; nothing is left out by NDEBUG. */
#ifndef LTGF_TAP_H
#define LTGF_TAP_H

#include <stdio.h>
#include <stdlib.h>

static int tap_done, tap_failed;

#define OK(condition, ...)                                                                         \
	do {                                                                                       \
		int is_good = !!(condition);                                                       \
		tap_failed += !is_good;                                                            \
		printf("%sok %d - ", is_good ? "" : "not ", ++tap_done);                           \
		printf(__VA_ARGS__);                                                               \
		printf(is_good ? "\n" : " (%s:%d: %s)\n", __FILE__, __LINE__, #condition);         \
	} while (0)

static inline int tap_end(void)
{
	printf("1..%d\n", tap_done);
	return tap_failed != 0;
}

/* RET a file's content from malloc(); ends the program if it cannot be read */
static inline void *tap_file(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	char *bytes = malloc(1 << 20);

	if (!file || !bytes) {
		perror(path);
		exit(2);
	}
	*size = fread(bytes, 1, 1 << 20, file);
	fclose(file);
	return bytes;
}

#endif
