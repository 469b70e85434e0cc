/*
 * arguments.c - plugstack.conf's words `key=value`; pure.
 */
#include "arguments.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "limits.h"
#include "values.h"

static int read_path(const char *text, void *field)
{
	size_t len = strlen(text);

	if (len >= LTGF_PATH || ltgf_check_path(text))
		return -1;
	memcpy(field, text, len + 1);
	return 0;
}

static int read_time(const char *text, void *field)
{
	return ltgf_read_time(text, field);
}

/* As a time, and 0 too. */
static int read_age(const char *text, void *field)
{
	if (!strcmp(text, "0")) {
		*(uint32_t *)field = 0;
		return 0;
	}
	return ltgf_read_time(text, field);
}

static int read_size(const char *text, void *field)
{
	return ltgf_limit_size(text, field);
}

static int read_count(const char *text, void *field)
{
	uint64_t value;

	if (ltgf_read_number(text, 1, 1000000, &value))
		return -1;
	*(uint32_t *)field = (uint32_t)value;
	return 0;
}

static int read_yes(const char *text, void *field)
{
	if (strcmp(text, "yes") && strcmp(text, "no"))
		return -1;
	*(bool *)field = !strcmp(text, "yes");
	return 0;
}

static int read_prefix(const char *text, void *field)
{
	size_t len = strlen(text);

	if (len >= sizeof(((struct ltgf_arguments *)0)->prefix) ||
	    strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") != len || text[0] == '-')
		return -1;
	memcpy(field, text, len + 1);
	return 0;
}

static const struct {
	const char *key;
	size_t offset;
	int (*read)(const char *text, void *field);
	const char *rule;
} keys[] = {
#define KEY(name, field, read, rule) { name, offsetof(struct ltgf_arguments, field), read, rule }
	KEY("rundir", rundir, read_path, "an absolute path"),
	KEY("control", control, read_path, "an absolute path"),
	KEY("smi", smi, read_path, "an absolute path"),
	KEY("gpumap", gpumap, read_path, "an absolute path"),
	KEY("gpustat", gpustat, read_path, "an absolute path"),
	KEY("records", records, read_path, "an absolute path"),
	KEY("prefix", prefix, read_prefix, "letters a-z, digits and -, at most 31"),
	KEY("gpumem", gpumem_mib, read_size, "a size with unit, as 80G"),
	KEY("shards", shards, read_count, "a number of shards per GPU"),
	KEY("clients", clients, read_count, "a number of clients per GPU"),
	KEY("timeout", timeout_s, read_time, "a time, as 10s"),
	KEY("reap_after", reap_after_s, read_age, "a time, as 10min, or 0"),
	KEY("lease", lease_s, read_time, "a time, as 90min"),
	KEY("exclusive", exclusive, read_yes, "yes or no"),
#undef KEY
};

#define KEYS (sizeof(keys) / sizeof(keys[0]))

/* Keep the first error of all. */
__attribute__((format(printf, 2, 3)))
static int complain(struct ltgf_arguments *arguments, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (!arguments->error[0])
		vsnprintf(arguments->error, sizeof(arguments->error), format, args);
	va_end(args);
	return -1;
}

/* Does `word` begin with `key` and `=`? The value follows. */
static const char *value_of(const char *word, const char *key)
{
	size_t len = strlen(key);

	return !strncmp(word, key, len) && word[len] == '=' ? word + len + 1 : NULL;
}

static int read_default(const char *word, struct ltgf_arguments *arguments)
{
	char why[LTGF_WHY];

	for (int i = 0; i < LTGF_OPTIONS; i++) {
		const char *value = value_of(word, ltgf_option_table[i].name);

		if (!value)
			continue;
		if (!ltgf_option_take(&arguments->site, (enum ltgf_option)i, LTGF_FROM_SITE, value,
				      why, sizeof(why)))
			return 0;
		return complain(arguments, "%s", why);
	}
	return complain(arguments, "plugstack.conf: %.80s is not a word of spank_ltgf.so: see its "
			"reference page, spank-options", word);
}

static int read_word(const char *word, struct ltgf_arguments *arguments)
{
	for (size_t i = 0; i < KEYS; i++) {
		const char *value = value_of(word, keys[i].key);

		if (!value)
			continue;
		if (!keys[i].read(value, (char *)arguments + keys[i].offset))
			return 0;
		return complain(arguments, "plugstack.conf: %s=%.80s is not valid: use %s",
				keys[i].key, value, keys[i].rule);
	}
	return read_default(word, arguments);
}

int ltgf_arguments_read(int count, char *const words[], struct ltgf_arguments *arguments)
{
	memset(arguments, 0, sizeof(*arguments));
	strcpy(arguments->rundir, "/run/ltgf");
	strcpy(arguments->control, "/usr/bin/nvidia-cuda-mps-control");
	strcpy(arguments->smi, "/usr/bin/nvidia-smi");
	arguments->clients = 60;	/* Volta and later, at CUDA_DEVICE_MAX_CONNECTIONS=2 */
	arguments->timeout_s = 10;
	arguments->reap_after_s = 600;
	for (int i = 0; i < count; i++)
		read_word(words[i], arguments);
	return arguments->error[0] ? -1 : 0;
}

int ltgf_expand_node(const char *pattern, const char *node, char *path, size_t path_len)
{
	size_t n = 0;

	for (const char *c = pattern; *c; c++) {
		const char *part = c;
		size_t len = 1;

		if (c[0] == '%' && (c[1] == 'n' || c[1] == '%')) {
			part = c[1] == 'n' ? node : "%";
			len = strlen(part);
			c++;
		}
		if (n + len >= path_len)
			return -1;
		memcpy(path + n, part, len);
		n += len;
	}
	path[n] = '\0';
	return 0;
}

/* Does `text` begin with the whole name of an option of ours? */
static bool is_name(const char *text)
{
	size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz-");

	for (int i = 0; i < LTGF_OPTIONS; i++) {
		const char *name = ltgf_option_table[i].name;

		if (strlen(name) == len && !strncmp(text, name, len))
			return true;
	}
	return false;
}

void ltgf_arguments_rename(const char *why, const char *prefix, char *line, size_t line_len)
{
	size_t n = 0, len = strlen(prefix);

	for (const char *c = why; *c && n + 1 < line_len; c++) {
		line[n++] = *c;
		if (c == why || c[-1] != '-' || *c != '-' || !is_name(c + 1))
			continue;
		if (len > line_len - 1 - n)
			break;
		memcpy(line + n, prefix, len);
		n += len;
	}
	line[n] = '\0';
}
