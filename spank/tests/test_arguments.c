/*
 * test_arguments.c - plugstack.conf's words: each key, defaults for options, what is refused.
 */
#include "arguments.h"

#include "harness.h"

static struct ltgf_arguments arguments;

static int read1(const char *word)
{
	char *words[] = { (char *)word };

	return ltgf_arguments_read(1, words, &arguments);
}

static void good(void)
{
	char *words[] = { "rundir=/run/x/%n", "control=/opt/c", "smi=/opt/s", "gpumap=/m",
			  "gpustat=/g", "records=/r", "prefix=lt-", "gpumem=80G",
			  "shards=4", "clients=48", "timeout=5s",
			  "reap_after=0", "lease=90min", "exclusive=yes", "mps-mem=auto",
			  "ckpt-dir=/scratch/%u" };

	CHECK(!ltgf_arguments_read(0, NULL, &arguments));
	CHECK_TEXT(arguments.rundir, "/run/ltgf");
	CHECK(arguments.clients == 60);
	CHECK(arguments.timeout_s == 10 && arguments.reap_after_s == 600 && !arguments.lease_s);
	CHECK(!ltgf_arguments_read(sizeof(words) / sizeof(words[0]), words, &arguments));
	CHECK_TEXT(arguments.error, "");
	CHECK_TEXT(arguments.rundir, "/run/x/%n");
	CHECK_TEXT(arguments.prefix, "lt-");
	CHECK(arguments.gpumem_mib == 80 * 1024 && arguments.shards == 4);
	CHECK(arguments.clients == 48);
	CHECK(arguments.timeout_s == 5 && arguments.reap_after_s == 0 && arguments.lease_s == 5400);
	CHECK(arguments.exclusive && arguments.site.from[LTGF_MPS_MEM] == LTGF_FROM_SITE);
	CHECK_TEXT(arguments.site.text[LTGF_CKPT_DIR], "/scratch/%u");
	CHECK(arguments.site.from[LTGF_MPS] == LTGF_FROM_NOWHERE);
}

static void bad(void)
{
	static const char *const words[] = { "rundir=run", "rundir=", "rundir", "rundri=/run", "=",
					     "", "shards=0", "shards=x", "clients=0",
					     "timeout=0", "exclusive=1",
					     "prefix=-x", "prefix=UP", "gpumem=80", "lease=x",
					     "mps=maybe", "ckpt-dir=rel", "mps-memory=4G" };
	char *two[] = { "mpps=job", "shards=4", "zzz" };
	static char path[600];

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		CHECK_ROW(read1(words[i]), words[i]);
		CHECK_ROW(strstr(arguments.error, "plugstack.conf") == arguments.error, words[i]);
	}
	CHECK(ltgf_arguments_read(3, two, &arguments));
	CHECK(strstr(arguments.error, "mpps=job is not a word") != NULL); /* the first bad one */
	CHECK(arguments.shards == 4); /* the others count */
	strcpy(path, "smi=/");
	memset(path + 5, 'a', LTGF_PATH);
	CHECK(read1(path));
	CHECK_TEXT(arguments.smi, "/usr/bin/nvidia-smi");
}

static void node(void)
{
	char path[32];

	CHECK(!ltgf_expand_node("/run/%n/x%%%n", "n1", path, sizeof(path)));
	CHECK_TEXT(path, "/run/n1/x%n1");
	CHECK(!ltgf_expand_node("/run/%", "n1", path, sizeof(path)));
	CHECK_TEXT(path, "/run/%");
	CHECK(ltgf_expand_node("/run/%n%n", "aaaaaaaaaaaaaaaa", path, sizeof(path)));
}

static void prefixes(void)
{
	static const char *const rows[][3] = {
		{ "--mps-mem says nothing without --mps: add --mps", "lt-",
		  "--lt-mps-mem says nothing without --lt-mps: add --lt-mps" },
		{ "use --ckpt=app or --mps=off", "lt-", "use --lt-ckpt=app or --lt-mps=off" },
		{ "add --gres=gpu:1, --mpsy or --mp", "lt-", "add --gres=gpu:1, --mpsy or --mp" },
		{ "--mps --", "", "--mps --" },
		{ "", "lt-", "" },
	};
	char line[LTGF_WHY], eight[8];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		ltgf_arguments_rename(rows[i][0], rows[i][1], line, sizeof(line));
		CHECK_TEXT(line, rows[i][2]);
	}
	ltgf_arguments_rename("--mps=job", "lt-", eight, sizeof(eight));
	CHECK_TEXT(eight, "--lt-mp");
	ltgf_arguments_rename("a --mps", "long-", eight, sizeof(eight));
	CHECK_TEXT(eight, "a --");
}

int main(void)
{
	good();
	bad();
	node();
	prefixes();
	return RESULT();
}
