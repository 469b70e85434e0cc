/* status.h - the file beside the table by which the plugin tells ltgf that it is there. */
#ifndef LTGF_STATUS_H
#define LTGF_STATUS_H

#include <time.h>

#include "factors.h"

/* Write TABLE.status: lines KEY=VALUE.
 * IN last - header of the table in force, all 0: none
 * IN trouble - why every factor is 0, NULL: it is not
 * RET 0, or -1 with errno set
 */
extern int ltgf_status_write(const char *table, const struct ltgf_header *last,
			     const char *trouble, time_t now);

/* Take the file away: the plugin goes. */
extern void ltgf_status_remove(const char *table);

#endif
