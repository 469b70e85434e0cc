/*
 * test_options.c - values of the options, which source wins, which combinations are refused.
 */
#include "options.h"

#include "harness.h"

static char why[LTGF_WHY];
static struct ltgf_given given;
static struct ltgf_wish wish;

static int take(enum ltgf_option option, enum ltgf_source from, const char *text)
{
	return ltgf_option_take(&given, option, from, text, why, sizeof(why));
}

static void clear(void)
{
	memset(&given, 0, sizeof(given));
	memset(&wish, 0, sizeof(wish));
	why[0] = '\0';
}

static int decide(void)
{
	return ltgf_wish_read(&given, &wish, why, sizeof(why));
}

static void bad_values(void)
{
	static const struct {
		enum ltgf_option option;
		const char *text;
	} bad[] = {
		{ LTGF_MPS, "yes" }, { LTGF_MPS, "JOB" }, { LTGF_MPS, "job " },
		{ LTGF_MPS_MEM, "" }, { LTGF_MPS_MEM, "4" }, { LTGF_MPS_MEM, "0G" },
		{ LTGF_MPS_MEM, "-4G" }, { LTGF_MPS_MEM, "0%" }, { LTGF_MPS_MEM, "101%" },
		{ LTGF_MPS_MEM, "auto%" }, { LTGF_MPS_MEM, "4G," }, { LTGF_MPS_MEM, "4G,per-gpu" },
		{ LTGF_MPS_MEM, "4G,per-task,per-job" }, { LTGF_MPS_MEM, "0=4G" },
		{ LTGF_MPS_MEM, "99999999999999999999G" }, { LTGF_MPS_MEM, ",per-task" },
		{ LTGF_MPS_MEM, "\xe2\x80\x9c""4G\xe2\x80\x9d" },
		{ LTGF_MPS_MEM, "44444444444444444444444444444444444G" },
		{ LTGF_MPS_THREADS, "0" }, { LTGF_MPS_THREADS, "101" }, { LTGF_MPS_THREADS, "abc" },
		{ LTGF_MPS_THREADS, NULL }, { LTGF_CKPT, "" }, { LTGF_CKPT, NULL },
		{ LTGF_CKPT, "yes" }, { LTGF_CKPT_SIGNAL, "KILL" },
		{ LTGF_CKPT_COMMAND, "save.sh" },
		{ LTGF_CKPT_COMMAND, "/a\n/b" }, { LTGF_CKPT_DIR, "ckpt" },
		{ LTGF_CKPT_DIR, "/a/../../etc" }, { LTGF_CKPT_DIR, "/a/%j" },
		{ LTGF_CKPT_DIR, "/a/%" }, { LTGF_CKPT_TIMEOUT, "0" },
		{ LTGF_CKPT_INTERVAL, "soon" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		clear();
		CHECK_ROW(take(bad[i].option, LTGF_FROM_LINE, bad[i].text),
			  bad[i].text ? bad[i].text : "");
		CHECK_ROW(strstr(why, "is not valid: use "), why);
		CHECK_ROW(strstr(why, ltgf_option_table[bad[i].option].name), why);
		CHECK_ROW(!strchr(why, '\n'), why);
		CHECK(given.from[bad[i].option] == LTGF_FROM_NOWHERE);
	}
}

static void good_values(void)
{
	clear();
	CHECK(!take(LTGF_MPS, LTGF_FROM_LINE, NULL));
	CHECK(!take(LTGF_MPS_MEM, LTGF_FROM_LINE, "12%,per-task"));
	CHECK(!take(LTGF_MPS_THREADS, LTGF_FROM_LINE, "30%"));
	CHECK(!take(LTGF_CKPT, LTGF_FROM_LINE, "app"));
	CHECK(!take(LTGF_CKPT_DIR, LTGF_FROM_LINE, "/scratch/%u/100%%"));
	CHECK(!decide());
	CHECK(wish.mps == LTGF_WISH_JOB && wish.mem.kind == LTGF_MEM_PERCENT);
	CHECK(wish.mem.percent == 12 && wish.mem.per_task && wish.threads == 30);
	CHECK(wish.ckpt == LTGF_CKPT_APP && wish.timeout_s == 0);
	CHECK_TEXT(wish.signal, "USR2");
	CHECK_TEXT(wish.dir, "/scratch/%u/100%%");
	CHECK(!take(LTGF_MPS_MEM, LTGF_FROM_LINE, "4G,per-job") && !decide());
	CHECK(wish.mem.kind == LTGF_MEM_SIZE && wish.mem.mib == 4096 && !wish.mem.per_task);
	CHECK(!take(LTGF_MPS_MEM, LTGF_FROM_LINE, "auto") && !decide());
	CHECK(wish.mem.kind == LTGF_MEM_AUTO && !wish.mem.per_task);
	CHECK(!take(LTGF_CKPT_COMMAND, LTGF_FROM_LINE, "/opt/save") && !decide());
	CHECK_TEXT(wish.signal, ""); /* the command does it */
	CHECK(!take(LTGF_MPS, LTGF_FROM_LINE, "(null)")); /* how 22.05 carries the bare option */
	CHECK_TEXT(given.text[LTGF_MPS], "job");
}

static void sources(void)
{
	clear();
	CHECK(!take(LTGF_MPS_THREADS, LTGF_FROM_SITE, "10"));
	CHECK(!take(LTGF_MPS_THREADS, LTGF_FROM_JOB, "30"));
	CHECK(!take(LTGF_MPS_THREADS, LTGF_FROM_ENV, "20"));
	CHECK_TEXT(given.text[LTGF_MPS_THREADS], "30");
	CHECK(!take(LTGF_MPS_THREADS, LTGF_FROM_LINE, "40"));
	CHECK(!take(LTGF_MPS_THREADS, LTGF_FROM_LINE, "50"));
	CHECK(!take(LTGF_MPS_THREADS, LTGF_FROM_JOB, "60"));
	CHECK_TEXT(given.text[LTGF_MPS_THREADS], "50");
	CHECK(!take(LTGF_MPS_THREADS, LTGF_FROM_ENV, "nonsense")); /* outvoted: nobody's business */
	clear();
	CHECK(take(LTGF_MPS, LTGF_FROM_ENV, "maybe"));
	CHECK(strstr(why, "LTGF_MPS=maybe") == why);
	CHECK(take(LTGF_MPS, LTGF_FROM_SITE, "maybe"));
	CHECK(strstr(why, "plugstack.conf's mps=maybe") == why);
	CHECK(take(LTGF_MPS, LTGF_FROM_LINE, "a\x1b[31mb\n"));
	CHECK(strstr(why, "--mps=a?[31mb?") == why);
}

static void contradictions(void)
{
	static const char *const modes[] = { "driver", "criu" };

	for (int i = 0; i < 2; i++) {
		clear();
		CHECK(!take(LTGF_MPS, LTGF_FROM_LINE, "job"));
		CHECK(!take(LTGF_CKPT, LTGF_FROM_SITE, modes[i]));
		CHECK(decide() && strstr(why, "exclude each other"));
		CHECK(strstr(why, "plugstack.conf's ckpt") != NULL);
		CHECK(!take(LTGF_MPS, LTGF_FROM_LINE, "off") && !decide());
	}
	clear();
	CHECK(!take(LTGF_MPS_MEM, LTGF_FROM_LINE, "4G"));
	CHECK(decide() && strstr(why, "--mps-mem says nothing without --mps"));
	CHECK(!take(LTGF_MPS, LTGF_FROM_LINE, "off") && !decide()); /* a step without it */
	CHECK(!ltgf_option_counts(&wish, LTGF_MPS_MEM));
	clear();
	CHECK(!take(LTGF_CKPT_DIR, LTGF_FROM_ENV, "/x") && !decide()); /* at rest */
	CHECK(!take(LTGF_CKPT_DIR, LTGF_FROM_LINE, "/x"));
	CHECK(decide() && strstr(why, "add --ckpt=app"));
	clear();
	CHECK(!take(LTGF_CKPT, LTGF_FROM_LINE, "app"));
	CHECK(!take(LTGF_CKPT_TIMEOUT, LTGF_FROM_LINE, "10min"));
	CHECK(!take(LTGF_CKPT_INTERVAL, LTGF_FROM_LINE, "600s"));
	CHECK(decide() && strstr(why, "--ckpt-interval (600 s)"));
	CHECK(!take(LTGF_CKPT_INTERVAL, LTGF_FROM_LINE, "601s") && !decide());
}

static void long_values(void)
{
	static char text[2 * LTGF_TEXT];

	memset(text, 'a', sizeof(text) - 1);
	text[0] = '/';
	clear();
	CHECK(take(LTGF_CKPT_DIR, LTGF_FROM_LINE, text));
	CHECK(strlen(why) < 400);
	text[LTGF_TEXT - 1] = '\0';
	CHECK(!take(LTGF_CKPT_DIR, LTGF_FROM_LINE, text));
	CHECK(take(LTGF_MPS_MEM, LTGF_FROM_LINE, text));
}

int main(void)
{
	bad_values();
	good_values();
	sources();
	contradictions();
	long_values();
	return RESULT();
}
