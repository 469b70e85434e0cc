/* file.h - reads the factor table's file and replaces the status file beside it, distrusting both.
 *
 * A table is read into memory and not mapped: a mapped file that somebody cuts off would end
 * slurmctld with SIGBUS.
 */
#ifndef LTGF_FILE_H
#define LTGF_FILE_H

#include <stddef.h>
#include <sys/stat.h>

#define LTGF_LARGEST_FILE (64UL << 20)

/* Read a file anew if it is not the one of `seen` any more.
 *
 * It must be a plain file (no link) of root or of this process's user that no other may write.
 * IN/OUT seen - what the file was at the last call; all 0: never read
 * OUT bytes - the content, from malloc(); NULL if the file has not changed
 * OUT size - of the content
 * OUT why - on failure the reason, a constant text
 * RET 0, or -1: bytes and size are untouched, seen is what was found
 */
extern int ltgf_file_read(const char *path, struct stat *seen, void **bytes, size_t *size,
			  const char **why);

/* Replace a file in one step; what stands there, link or not, is not followed.
 * IN path - absolute
 * RET 0, or -1 with errno set
 */
extern int ltgf_file_replace(const char *path, const char *text, size_t length);

#endif
