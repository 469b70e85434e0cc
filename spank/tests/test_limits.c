/*
 * test_limits.c - shares of memory and threads, and the one form of limit the driver honours.
 */
#include "limits.h"

#include <stdint.h>

#include "harness.h"

static void shares(void)
{
	uint64_t mib = 4711;
	int pct = 4711;

	CHECK(ltgf_limit_share(81920, 12, 100, &mib) == 0 && mib == 9830);	/* floor, MPS-03 */
	CHECK(ltgf_limit_share(81920, 1, 2, &mib) == 0 && mib == 40960);
	CHECK(ltgf_limit_share(81920, 100, 100, &mib) == 0 && mib == 81920);
	CHECK(ltgf_limit_share(100, 1, 1000, &mib) == 0 && mib == 1);
	CHECK(ltgf_limit_share(UINT64_MAX, UINT64_MAX - 1, UINT64_MAX, &mib) == 0 &&
	      mib == UINT64_MAX - 1);
	mib = 4711;
	CHECK(ltgf_limit_share(81920, 0, 100, &mib) < 0 && mib == 4711);
	CHECK(ltgf_limit_share(81920, 101, 100, &mib) < 0 && mib == 4711);
	CHECK(ltgf_limit_share(0, 1, 2, &mib) < 0 && mib == 4711);

	CHECK(ltgf_limit_threads(1, 160, &pct) == 0 && pct == 1);	/* never 0, MPS-09 */
	CHECK(ltgf_limit_threads(1, 3, &pct) == 0 && pct == 33);
	CHECK(ltgf_limit_threads(8, 8, &pct) == 0 && pct == 100);
	pct = 4711;
	CHECK(ltgf_limit_threads(0, 3, &pct) < 0 && pct == 4711);
	CHECK(ltgf_limit_threads(4, 3, &pct) < 0 && pct == 4711);
}

static void a_job_limit_is_divided_by_its_clients(void)
{
	uint64_t mib = 4711;

	CHECK(ltgf_limit_divide(8192, 2, &mib) == 0 && mib == 4096);
	CHECK(ltgf_limit_divide(10000, 3, &mib) == 0 && mib == 3333);
	mib = 4711;
	CHECK(ltgf_limit_divide(10, 0, &mib) < 0 && mib == 4711);
	CHECK(ltgf_limit_divide(2, 3, &mib) < 0 && mib == 4711);
	CHECK(ltgf_limit_clients(4, 2) == 2);
	CHECK(ltgf_limit_clients(5, 2) == 3);
	CHECK(ltgf_limit_clients(1, 4) == 1);
	CHECK(ltgf_limit_clients(0, 4) == 1);
	CHECK(ltgf_limit_clients(3, 0) == 1);
	CHECK(ltgf_limit_clients(UINT32_MAX, 1) == UINT32_MAX);
}

static void sizes(void)
{
	static const struct {
		const char *text;
		uint64_t mib;
	} good[] = {
		{ "4G", 4096 }, { "9830M", 9830 }, { "1T", 1048576 }, { "2048K", 2 },
		{ "4g", 4096 }, { "4GB", 4096 }, { "4GiB", 4096 }, { "1m", 1 }, { "1025K", 1 },
	};
	static const char *const bad[] = { "", "4", "G", "-4G", "+4G", " 4G", "4 G", "4GG", "4X",
					   "1K", "0M", "0x4G", "4G,", "4.5G",
					   "99999999999999999999G",
					   "18446744073709551615T", "\"4G\"", "\xe2\x80\x9c" "4G" };
	uint64_t mib;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		CHECK_ROW(ltgf_limit_size(good[i].text, &mib) == 0 && mib == good[i].mib,
			  good[i].text);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		mib = 4711;
		CHECK_ROW(ltgf_limit_size(bad[i], &mib) < 0 && mib == 4711, bad[i]);
	}
	CHECK(ltgf_limit_size(NULL, &mib) < 0);
}

static void a_text_has_an_index_for_each_device(void)
{
	const uint64_t one[] = { 9830 }, two[] = { 40960, 40960 }, none[] = { 4, 0 };
	char text[32] = "as it was", small[8];

	CHECK(ltgf_limit_text(two, 0, text, sizeof(text)) < 0);
	CHECK(ltgf_limit_text(none, 2, text, sizeof(text)) < 0);
	CHECK_TEXT(text, "as it was");
	CHECK(ltgf_limit_text(one, 1, text, sizeof(text)) == 0);
	CHECK_TEXT(text, "0=9830M");
	CHECK(ltgf_limit_text(two, 2, text, sizeof(text)) == 0);
	CHECK_TEXT(text, "0=40960M,1=40960M");
	CHECK(ltgf_limit_text(one, 1, small, 8) == 0);
	CHECK(ltgf_limit_text(one, 1, small, 7) < 0);
}

static void only_our_own_form_is_read(void)
{
	static const char *const bad[] = { "", "4G", "4GB", "0=4G", "10240MB", "0=10240MB", "1=4M",
					   "0=4M,", ",0=4M", "0=4M,0=4M", "0=4M,2=4M", "0=4M, 1=4M",
					   "0=M", "0=0M", "0=-4M", "GPU-aaaa=4M", "0=4M1=4M", "00",
					   "0=99999999999999999999M", "0=1M,1=1M,2=1M,3=1M,4=1M" };
	uint64_t mib[4] = { 4711, 4711, 4711, 4711 };
	size_t n = 4711;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_ROW(ltgf_limit_read(bad[i], mib, 4, &n) < 0 && n == 4711 && mib[0] == 4711,
			  bad[i]);
	CHECK(ltgf_limit_read("0=9830M,1=40960M", mib, 4, &n) == 0 && n == 2 && mib[0] == 9830 &&
	      mib[1] == 40960 && mib[2] == 4711);
}

/* What driver 580 says: seen on an H200. */
static void answers_are_rounded_down(void)
{
	CHECK(ltgf_limit_is_answer("9G", 9830));
	CHECK(ltgf_limit_is_answer("5G", 5120));
	CHECK(ltgf_limit_is_answer("512M", 512));
	CHECK(ltgf_limit_is_answer("1T", 1536 * 1024));
	CHECK(ltgf_limit_is_answer("10307502080", 9830));
	CHECK(!ltgf_limit_is_answer("", 9830));
	CHECK(!ltgf_limit_is_answer("10G", 9830));
	CHECK(!ltgf_limit_is_answer("8G", 9830));
	CHECK(!ltgf_limit_is_answer("9M", 9830));
	CHECK(!ltgf_limit_is_answer("9", 9830));
	CHECK(!ltgf_limit_is_answer("9Gx", 9830));
	CHECK(!ltgf_limit_is_answer("Unknown command \"9G\"", 9830));
}

int main(void)
{
	shares();
	a_job_limit_is_divided_by_its_clients();
	sizes();
	a_text_has_an_index_for_each_device();
	only_our_own_form_is_read();
	answers_are_rounded_down();
	return RESULT();
}
