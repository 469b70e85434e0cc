/* test_pure.c - tests of the table's reader and of admission, without Slurm; for ASan and UBSan.
 *
 * Usage: test_pure GOLDEN [FILE...]: the golden table that Python wrote, then any other inputs.
 */
#include <stdint.h>
#include <string.h>

#include "book.h"
#include "tap.h"

static struct ltgf_book *book_on(const void *bytes, size_t size, const char **why)
{
	struct ltgf_book *book = NULL;
	void *copy = malloc(size ? size : 1); /* of exact size: ASan sees the first byte too far */

	if (!copy)
		abort();
	memcpy(copy, bytes, size);
	if (ltgf_book_open(copy, size, &book, why))
		free(copy);
	return book;
}

/* Ask everything that a book answers; what it says does not matter, that it ends well does. */
static void ask_all(struct ltgf_book *book)
{
	static const char *const texts[] = { NULL, "", ",", "=", "bio", "astro,main",
					     "gres/gpu=2,gres/gpu:h200=1", "gres/gpu=", "x=1,,=2" };
	const size_t n = sizeof(texts) / sizeof(texts[0]);

	for (uint32_t i = 0; i < n * n; i++) {
		struct ltgf_job job = { .id = i * 977, .tasks = i, .account = texts[i % n],
					.partition = texts[i / n], .tres = texts[(i + 3) % n] };

		(void)ltgf_book_label(book, &job);
	}
}

static void test_golden(const void *bytes, size_t size)
{
	const char *why = NULL;
	struct ltgf_book *book = book_on(bytes, size, &why);
	struct ltgf_job job = { .id = 7, .tasks = 1, .account = "bio", .partition = "main",
				.tres = "cpu=1,mem=1G,gres/gpu=2" };

	OK(book, "the table that Python wrote is read");
	if (!book)
		return;
	OK(ltgf_book_label(book, &job) == 1500000000, "a job of the table has its label");
	job.id = 9;
	OK(ltgf_book_label(book, &job) == -5, "the last one too, below 0");
	/* bio: tag 0.5 + 0.25 a GPU; anchors (0, 2000), (1, 1000), (3, 500) in millions */
	job.id = 100;
	OK(ltgf_book_label(book, &job) == 1500000000, "a new job: half way between two anchors");
	job.id = 101;
	OK(ltgf_book_label(book, &job) == 1000000000, "the next: 2 GPUs were charged, tag 1.0");
	job.id = 102;
	OK(ltgf_book_label(book, &job) == 875000000, "the third: tag 1.5 of 1 to 3");
	job.id = 101;
	OK(ltgf_book_label(book, &job) == 1000000000, "asked again, a job keeps its label");
	job = (struct ltgf_job){ .id = 103, .tasks = 3, .account = "chem", .partition = "x,main",
				 .tres = "gres/gpu:h200=1,gres/gpu=1" };
	OK(ltgf_book_label(book, &job) == 2050000000, "below its floor: before all tags");
	job.id = 104; /* 3 tasks of 2 weighted GPUs: 6 of the floor's 4, tag 6 x 0.5 = 3 */
	OK(ltgf_book_label(book, &job) == 500000000, "an array is charged for each task");
	job.id = 105;
	job.partition = "x,mai";
	OK(ltgf_book_label(book, &job) == 0, "a partition that is not managed");
	job.partition = NULL;
	job.account = "nobody";
	OK(ltgf_book_label(book, &job) == 0, "an account of no tenant");
	job.account = NULL;
	OK(ltgf_book_label(book, &job) == 0, "no account");
	job.account = "none";
	OK(ltgf_book_label(book, &job) == 2, "a tenant without entitlement: behind all tags");
	ask_all(book);
	ltgf_book_close(book);
}

static void test_freshness(const void *bytes)
{
	const struct ltgf_header *head = bytes;
	int64_t made_s = head->generated_ns / 1000000000;

	OK(ltgf_table_is_fresh(head, made_s + head->stale_after_s), "as old as may be: fresh");
	OK(!ltgf_table_is_fresh(head, made_s + head->stale_after_s + 1), "older: stale");
	OK(!ltgf_table_is_fresh(head, made_s - head->stale_after_s - 1), "from the future: stale");
	OK(!ltgf_table_is_fresh(head, INT64_MAX / 2), "the end of time: stale");
}

static void test_prices(const void *bytes, size_t size)
{
	struct ltgf_table table;
	const char *why;

	if (ltgf_table_check(bytes, size, &table, &why))
		return;
	OK(ltgf_table_gpus(&table, "gres/gpu=3") == 3, "untyped GPUs");
	OK(ltgf_table_gpus(&table, "gres/gpu=3,gres/gpu:h200=2") == 5, "of 3, 2 weigh double");
	OK(ltgf_table_gpus(&table, "gres/gpu:h200=2") == 4, "typed alone");
	OK(ltgf_table_gpus(&table, "gres/gpu:a100=2,gres/gpu=2") == 2, "a type without weight");
	OK(ltgf_table_gpus(&table, "gres/mps=50") == 0.5, "half a GPU by MPS");
	OK(ltgf_table_gpus(&table, "gres/gpufs=9,cpu=4") == 0, "what only starts alike");
	OK(ltgf_table_gpus(&table, "gres/gpu=99999999999999999999") == 1e9, "no end of digits");
	OK(ltgf_table_gpus(&table, NULL) == 0, "nothing asked for");
}

static void test_burst(const void *bytes, size_t size)
{
	const char *why;
	struct ltgf_book *book = book_on(bytes, size, &why);
	struct ltgf_job job = { .tasks = 1, .account = "bio", .tres = "gres/gpu=1" };
	int32_t before = LTGF_LARGEST, label = 1;
	int falls = 1;

	for (job.id = 1000; job.id < 1000 + LTGF_MOST_ADMITTED; job.id++) {
		label = ltgf_book_label(book, &job);
		falls &= label <= before && label > 0 && (label < before || label == 1);
		before = label;
	}
	OK(falls, "of a burst each job stands behind the one before");
	OK(ltgf_book_label(book, &job) == 0, "more than can be admitted: no label");
	job.id = 1000;
	OK(ltgf_book_label(book, &job) == 1500000000, "the first still has its own");
	ltgf_book_close(book);
}

static void test_damage(const char *bytes, size_t size)
{
	char *copy = malloc(size);
	const char *why;
	size_t refused = 0;

	for (size_t cut = 0; cut < size; cut++) {
		struct ltgf_book *book = book_on(bytes, cut, &why);

		refused += !book;
		ltgf_book_close(book);
	}
	OK(refused == size, "cut off at any byte it is refused");
	refused = 0;
	for (size_t i = 0; copy && i < size * 8; i++) {
		struct ltgf_book *book;

		memcpy(copy, bytes, size);
		copy[i / 8] = (char)(copy[i / 8] ^ (1 << i % 8));
		book = book_on(copy, size, &why);
		refused += !book;
		ltgf_book_close(book);
	}
	OK(refused == size * 8, "with any bit turned it is refused");
	free(copy);
}

/* Damage that a checksum does not find: whoever writes the table can write anything. */
static void test_hostile(const char *bytes, size_t size)
{
	static const unsigned char values[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
	char *copy = malloc(size);

	for (size_t i = 0; copy && i < size * sizeof(values); i++) {
		struct ltgf_book *book;
		const char *why;

		memcpy(copy, bytes, size);
		copy[i / sizeof(values)] = (char)values[i % sizeof(values)];
		ltgf_table_seal(copy, size);
		book = book_on(copy, size, &why);
		if (book)
			ask_all(book);
		ltgf_book_close(book);
	}
	OK(1, "with any byte changed and sealed anew nothing breaks");
	free(copy);
}

int main(int argc, char **argv)
{
	size_t size;
	char *bytes;

	if (argc < 2)
		return 2;
	bytes = tap_file(argv[1], &size);
	test_golden(bytes, size);
	test_freshness(bytes);
	test_prices(bytes, size);
	test_burst(bytes, size);
	test_damage(bytes, size);
	test_hostile(bytes, size);
	free(bytes);
	for (int i = 2; i < argc; i++) {
		struct ltgf_book *book;
		const char *why;

		bytes = tap_file(argv[i], &size);
		book = book_on(bytes, size, &why);
		if (book)
			ask_all(book);
		ltgf_book_close(book);
		free(bytes);
	}
	OK(1, "%d more inputs", argc - 2);
	return tap_end();
}
