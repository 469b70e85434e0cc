/*
 * ckpt.c - a job's checkpoint folder and the records that say how to checkpoint it.
 */
#include "ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mps_why.h"
#include "tree.h"

int ltgf_ckpt_dir(const char *base, const char *user, uint32_t job_id, char *dir, size_t dir_len,
		  char *why, size_t why_len)
{
	char found[LTGF_CKPT_PATH];
	size_t n = 0;
	int len;

	if (strchr(user, '/') || user[0] == '.')
		return ltgf_why(why, why_len, "the user's name is no name of a folder");
	for (const char *c = base; *c; c++) {
		const char *part = c;
		size_t part_len = 1;

		if (*c == '%') {
			part = *++c == 'u' ? user : "%";
			part_len = strlen(part);
		}
		if (!part_len || n + part_len >= sizeof(found))
			return ltgf_why(why, why_len, "--ckpt-dir=%.200s: %s", base,
					part_len ? "too long" : "the user's name is not known");
		memcpy(found + n, part, part_len);
		n += part_len;
	}
	found[n] = '\0';
	len = snprintf(dir, dir_len, "%s/%u", found, job_id);
	if (len < 0 || (size_t)len >= dir_len)
		return ltgf_why(why, why_len, "--ckpt-dir=%.200s: too long", base);
	return 0;
}

/* mkdir -p. */
static int make_all(const char *dir)
{
	char path[LTGF_CKPT_PATH];
	size_t len = strlen(dir);

	if (len >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(path, dir, len + 1);
	for (char *c = path + 1; *c; c++) {
		if (*c != '/')
			continue;
		*c = '\0';
		if (mkdir(path, 0700) && errno != EEXIST && access(path, F_OK))
			return -1;
		*c = '/';
	}
	return mkdir(path, 0700) && errno != EEXIST ? -1 : 0;
}

int ltgf_ckpt_make(const char *dir, uid_t uid, char *why, size_t why_len)
{
	struct stat st;

	if (make_all(dir))
		return ltgf_why(why, why_len, "the checkpoint folder %s cannot be made: %s; choose "
				"another by --ckpt-dir", dir, strerror(errno));
	if (lstat(dir, &st))
		return ltgf_why(why, why_len, "the checkpoint folder %s: %s", dir,
				strerror(errno));
	if (!S_ISDIR(st.st_mode) || st.st_uid != uid)
		return ltgf_why(why, why_len, "%s is no folder of the job's user: choose another "
				"place by --ckpt-dir", dir);
	return 0;
}

void ltgf_ckpt_last(const char *dir, char *path, size_t path_len)
{
	char name[LTGF_CKPT_PATH], found[LTGF_CKPT_PATH];
	struct stat st;
	ssize_t n;
	int len;

	path[0] = '\0';
	len = snprintf(found, sizeof(found), "%s/last", dir);
	if (len < 0 || (size_t)len >= sizeof(found))
		return;
	n = readlink(found, name, sizeof(name) - 1);
	if (n <= 0)
		return;
	name[n] = '\0';
	if (strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		return;
	len = snprintf(found, sizeof(found), "%s/%s", dir, name);
	if (len < 0 || (size_t)len >= sizeof(found) || (size_t)len >= path_len || stat(found, &st))
		return;
	memcpy(path, found, (size_t)len + 1);
}

/* Append a line; a missing value is left out. */
__attribute__((format(printf, 3, 4)))
static bool add(char **at, size_t *left, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(*at, *left, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= *left)
		return false;
	*at += n;
	*left -= (size_t)n;
	return true;
}

int ltgf_ckpt_record(const struct ltgf_ckpt_job *job, const struct ltgf_wish *wish, char *text,
		     size_t text_len, char *why, size_t why_len)
{
	char lead[16] = "";
	bool ok;

	if (wish->signal_s)
		snprintf(lead, sizeof(lead), "@%u", wish->signal_s);
	ok = add(&text, &text_len, "format=1\njob_id=%u\n", job->job_id);
	if (job->array_id)
		ok = ok && add(&text, &text_len, "array=%u_%u\n", job->array_id, job->array_task);
	ok = ok && add(&text, &text_len, "restart=%u\nnode=%s\nmode=%s\ndir=%s\n", job->restart,
		       job->node, ltgf_ckpt_word(wish->ckpt), job->dir);
	if (wish->signal[0])
		ok = ok && add(&text, &text_len, "signal=%s%s\n", wish->signal, lead);
	if (wish->command[0])
		ok = ok && add(&text, &text_len, "command=%s\n", wish->command);
	if (wish->timeout_s)
		ok = ok && add(&text, &text_len, "timeout_s=%u\n", wish->timeout_s);
	if (wish->interval_s)
		ok = ok && add(&text, &text_len, "interval_s=%u\n", wish->interval_s);
	return ok ? 0 : ltgf_why(why, why_len, "the checkpoint record is too long");
}

int ltgf_ckpt_write(const char *folder, const char *name, const char *text, char *why,
		    size_t why_len)
{
	int rc = 0, dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return ltgf_why(why, why_len, "%s: %s", folder, strerror(errno));
	if (ltgf_tree_write(dir, name, text))
		rc = ltgf_why(why, why_len, "%s/%s: %s", folder, name, strerror(errno));
	close(dir);
	return rc;
}
