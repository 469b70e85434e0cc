/*
 * test_values.c - numbers, times, signals and paths as people write them, and as they should not.
 */
#include "values.h"

#include "harness.h"

static void times(void)
{
	static const struct {
		const char *text;
		uint32_t seconds;
	} good[] = {
		{ "90s", 90 }, { "15m", 900 }, { "15min", 900 }, { "2h", 7200 }, { "1d", 86400 },
		{ "10", 600 }, { "10:30", 630 }, { "1:00:05", 3605 }, { "2-0", 172800 },
		{ "1-12", 129600 }, { "0-1:30", 5400 }, { "0-0:0:7", 7 }, { "366d", 31622400 },
	};
	static const char *const bad[] = { "", "0", "0s", "-5", "5-", "1:2:3:4", "1:", ":1", "5x",
					   "1.5h", " 5", "5 ", "367d", "99999999999999999999", "h",
					   "1-1:1:1:1", "--1", "1-90s", "5mins" };
	uint32_t seconds;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		seconds = 1;
		CHECK_ROW(!ltgf_read_time(good[i].text, &seconds), good[i].text);
		CHECK_ROW(seconds == good[i].seconds, good[i].text);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		seconds = 4711;
		CHECK_ROW(ltgf_read_time(bad[i], &seconds) && seconds == 4711, bad[i]);
	}
}

static void signals(void)
{
	static const char *const bad[] = { "", "KILL", "SIGKILL", "9", "STOP", "19", "0", "65",
					   "usr2", "USR2@", "USR2@0", "USR2@70000", "USR2@-1",
					   "@60", "USR3", "USR2@1@2", "SIGSIGUSR2",
					   "AAAAAAAAAAAAAAAAAAAAAAAAA@1" };
	char name[16];
	uint32_t seconds = 7;

	CHECK(!ltgf_read_signal("USR2", name, sizeof(name), &seconds) && seconds == 0);
	CHECK_TEXT(name, "USR2");
	CHECK(!ltgf_read_signal("SIGTERM@65535", name, sizeof(name), &seconds) && seconds == 65535);
	CHECK_TEXT(name, "TERM");
	CHECK(!ltgf_read_signal("12@60", name, sizeof(name), &seconds) && seconds == 60);
	CHECK_TEXT(name, "12");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_ROW(ltgf_read_signal(bad[i], name, sizeof(name), &seconds), bad[i]);
	CHECK(ltgf_read_signal("VTALRM", name, 4, &seconds));
}

static void numbers_and_paths(void)
{
	uint64_t number = 5;
	int percent = 5;

	CHECK(!ltgf_read_number("0", 0, 10, &number) && number == 0);
	CHECK(!ltgf_read_number("18446744073709551615", 0, UINT64_MAX, &number));
	CHECK(number == UINT64_MAX);
	CHECK(ltgf_read_number("18446744073709551616", 0, UINT64_MAX, &number));
	CHECK(ltgf_read_number("+1", 0, 10, &number));
	CHECK(ltgf_read_number("1a", 0, 10, &number));
	CHECK(ltgf_read_number("11", 0, 10, &number));
	CHECK(!ltgf_read_percent("100%", &percent) && percent == 100);
	CHECK(!ltgf_read_percent("1", &percent) && percent == 1);
	CHECK(ltgf_read_percent("0", &percent) && ltgf_read_percent("101%", &percent));
	CHECK(ltgf_read_percent("%", &percent) && ltgf_read_percent("", &percent));
	CHECK(!ltgf_check_path("/a/b.c") && !ltgf_check_path("/a/..b") && !ltgf_check_path("/"));
	CHECK(ltgf_check_path("a/b") && ltgf_check_path("") && ltgf_check_path("/a/../b"));
	CHECK(ltgf_check_path("/a/..") && ltgf_check_path("/a\nb") && ltgf_check_path("/a\x7f"));
}

int main(void)
{
	times();
	signals();
	numbers_and_paths();
	return RESULT();
}
