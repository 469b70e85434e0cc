/* status.c - writes what the plugin has read; see status.h. */
#include "status.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "file.h"

static int path_of(const char *table, char path[PATH_MAX])
{
	int length = snprintf(path, PATH_MAX, "%s.status", table);

	errno = ENAMETOOLONG;
	return length < 0 || length >= PATH_MAX ? -1 : 0;
}

extern int ltgf_status_write(const char *table, const struct ltgf_header *last,
			     const char *trouble, time_t now)
{
	char path[PATH_MAX], text[512];
	int length = snprintf(text, sizeof(text),
			      "version=%d\npid=%d\ntime=%lld\nstate=%s\ngenerated_ns=%" PRId64
			      "\njobs=%" PRIu32 "\ntenants=%" PRIu32 "\n",
			      LTGF_VERSION, getpid(), (long long)now, trouble ? trouble : "ok",
			      last->generated_ns, last->jobs, last->tenants);

	errno = EOVERFLOW;
	if (length < 0 || (size_t)length >= sizeof(text) || path_of(table, path))
		return -1;
	return ltgf_file_replace(path, text, (size_t)length);
}

extern void ltgf_status_remove(const char *table)
{
	char path[PATH_MAX];

	if (!path_of(table, path))
		unlink(path);
}
