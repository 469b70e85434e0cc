/*
 * test_share.c - shares of a GPU, and the limits of memory and threads that follow.
 */
#include "share.h"

#include "harness.h"
#include "mps.h"

static char why[LTGF_WHY], text[LTGF_MPS_LIST];
static const struct ltgf_share none = { 0, 0 };

static int memory(struct ltgf_mem mem, struct ltgf_share share, const char *total, size_t n,
		  unsigned int clients)
{
	return ltgf_share_memory(&mem, &share, total, n, clients, text, sizeof(text), why,
				 sizeof(why));
}

static void shares(void)
{
	struct ltgf_share share = { 9, 9 };

	CHECK(ltgf_share_devices("") == 0 && ltgf_share_devices("7") == 1);
	CHECK(ltgf_share_devices("0,3,5") == 3);
	CHECK(!ltgf_share_read(NULL, 0, 1, NULL, &share, why, sizeof(why)) && share.whole == 0);
	CHECK(!ltgf_share_read(NULL, 0, 1, "50", &share, why, sizeof(why)));
	CHECK(share.part == 50 && share.whole == 100);
	CHECK(!ltgf_share_read(NULL, 0, 1, "junk", &share, why, sizeof(why)) && share.whole == 0);
	CHECK(!ltgf_share_read("3", 4, 2, "50", &share, why, sizeof(why)));
	CHECK(share.part == 3 && share.whole == 8);
	CHECK(ltgf_share_read("3", 0, 1, NULL, &share, why, sizeof(why)));
	CHECK(strstr(why, "shards=NUMBER") != NULL);
	CHECK(ltgf_share_read("9", 4, 2, NULL, &share, why, sizeof(why)));
	CHECK(strstr(why, "is not this node's") != NULL);
}

static void limits(void)
{
	struct ltgf_mem percent = { .kind = LTGF_MEM_PERCENT, .percent = 12 };
	struct ltgf_mem size = { .kind = LTGF_MEM_SIZE, .mib = 4096 };
	struct ltgf_mem automatic = { .kind = LTGF_MEM_AUTO };

	CHECK(!memory((struct ltgf_mem){ 0 }, none, "", 1, 1));
	CHECK_TEXT(text, "");
	CHECK(!memory(percent, none, "0=81920M", 1, 1));
	CHECK_TEXT(text, "0=9830M");
	CHECK(!memory(size, none, "", 2, 3)); /* 4 GiB a job, 3 tasks a GPU */
	CHECK_TEXT(text, "0=1365M,1=1365M");
	size.per_task = true;
	CHECK(!memory(size, none, "", 2, 3));
	CHECK_TEXT(text, "0=4096M,1=4096M");
	CHECK(!memory(automatic, none, "", 1, 1)); /* whole GPUs */
	CHECK_TEXT(text, "");
	CHECK(!memory(automatic, (struct ltgf_share){ 1, 2 }, "0=81920M,1=40960M", 2, 1));
	CHECK_TEXT(text, "0=40960M,1=20480M");
	CHECK(memory(percent, none, "", 1, 1) && strstr(why, "is not known"));
	CHECK(memory(percent, none, "0=81920M", 2, 1));
	CHECK(memory((struct ltgf_mem){ .kind = LTGF_MEM_SIZE, .mib = 2 }, none, "", 1, 3));
	CHECK(strstr(why, "less than 1 MiB") != NULL);
	CHECK(memory(size, none, "", 0, 1) && memory(size, none, "", 65, 1));
}

static void threads(void)
{
	struct ltgf_wish wish = { .threads = 30 };
	int found;

	CHECK(!ltgf_share_threads(&wish, &none, &found) && found == 30);
	wish = (struct ltgf_wish){ .threads_auto = true };
	CHECK(!ltgf_share_threads(&wish, &none, &found) && found == 0);
	CHECK(!ltgf_share_threads(&wish, &(struct ltgf_share){ 1, 160 }, &found) && found == 1);
	CHECK(!ltgf_share_threads(&wish, &(struct ltgf_share){ 1, 3 }, &found) && found == 33);
}

int main(void)
{
	shares();
	limits();
	threads();
	return RESULT();
}
