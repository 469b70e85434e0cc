/*
 * test_files.c - checkpoint folders and records, GPU-to-job files, slurmstepd's names, in a folder.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt.h"
#include "gpumap.h"
#include "harness.h"
#include "node.h"
#include "tree.h"

static char root[64] = "/tmp/ltgf-test-XXXXXX", why[LTGF_WHY];

/* A path in the test's folder; two at a time. */
static const char *at(const char *name)
{
	static char paths[2][256];
	static int turn;

	turn = !turn;
	snprintf(paths[turn], sizeof(paths[turn]), "%s/%s", root, name);
	return paths[turn];
}

/* What a file holds; "-" if there is none. */
static const char *content(const char *name)
{
	static char text[8192];
	int fd = open(at(name), O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n < 0 ? 0 : n] = '\0';
	return n < 0 ? "-" : text;
}

static void folders(void)
{
	char dir[LTGF_CKPT_PATH], last[LTGF_CKPT_PATH];

	CHECK(!ltgf_ckpt_dir("/s/%u/100%%", "ann", 7, dir, sizeof(dir), why, sizeof(why)));
	CHECK_TEXT(dir, "/s/ann/100%/7");
	CHECK(ltgf_ckpt_dir("/s/%u", "", 7, dir, sizeof(dir), why, sizeof(why)));
	CHECK(ltgf_ckpt_dir("/s/%u", "../etc", 7, dir, sizeof(dir), why, sizeof(why)));
	CHECK(ltgf_ckpt_dir("/s", "ann", 7, dir, 4, why, sizeof(why)));

	CHECK(!ltgf_ckpt_make(at("a/b/7"), getuid(), why, sizeof(why)));
	CHECK(!ltgf_ckpt_make(at("a/b/7"), getuid(), why, sizeof(why)));
	CHECK(ltgf_ckpt_make(at("a/b/7"), getuid() + 1, why, sizeof(why)));
	CHECK(!symlink(at("a"), at("link")));
	CHECK(ltgf_ckpt_make(at("link"), getuid(), why, sizeof(why)));
	CHECK(ltgf_ckpt_make("/proc/nowhere/7", getuid(), why, sizeof(why)));
	CHECK(strstr(why, "--ckpt-dir") != NULL);

	ltgf_ckpt_last(at("a/b/7"), last, sizeof(last));
	CHECK_TEXT(last, "");
	CHECK(!symlink("step-20", at("a/b/7/last")));
	ltgf_ckpt_last(at("a/b/7"), last, sizeof(last));
	CHECK_TEXT(last, ""); /* leads nowhere */
	CHECK(!mkdir(at("a/b/7/step-20"), 0700));
	ltgf_ckpt_last(at("a/b/7"), last, sizeof(last));
	CHECK_TEXT(last, at("a/b/7/step-20"));
	ltgf_ckpt_last(at("a/b/7"), last, 8);
	CHECK_TEXT(last, "");
	CHECK(!unlink(at("a/b/7/last")) && !symlink("..", at("a/b/7/last")));
	ltgf_ckpt_last(at("a/b/7"), last, sizeof(last));
	CHECK_TEXT(last, "");
	CHECK(!unlink(at("a/b/7/last")) && !symlink("/etc/passwd", at("a/b/7/last")));
	ltgf_ckpt_last(at("a/b/7"), last, sizeof(last));
	CHECK_TEXT(last, "");
}

static void records(void)
{
	struct ltgf_wish wish = { .ckpt = LTGF_CKPT_APP, .signal = "USR2", .signal_s = 60,
				  .command = "", .dir = "/x", .timeout_s = 90 };
	struct ltgf_ckpt_job job = { .job_id = 12, .array_id = 10, .array_task = 2, .restart = 1,
				     .uid = 5, .node = "n1", .dir = "/x/12" };
	char text[8192];

	CHECK(!ltgf_ckpt_record(&job, &wish, text, sizeof(text), why, sizeof(why)));
	CHECK_TEXT(text, "format=1\njob_id=12\narray=10_2\nrestart=1\nnode=n1\nmode=app\n"
			 "dir=/x/12\nsignal=USR2@60\ntimeout_s=90\n");
	CHECK(ltgf_ckpt_record(&job, &wish, text, 40, why, sizeof(why)));
	CHECK(!ltgf_ckpt_write(root, "12.5", "one\n", why, sizeof(why)));
	CHECK(!ltgf_ckpt_write(root, "12.5", "two\n", why, sizeof(why)));
	CHECK_TEXT(content("12.5"), "two\n");
	CHECK(ltgf_ckpt_write("/nowhere", "12.5", "x", why, sizeof(why)));
}

static int add(enum ltgf_gpumap form, const char *devices, uint32_t job)
{
	return ltgf_gpumap_add(at("map"), form, devices, job, 1000, why, sizeof(why));
}

static void maps(void)
{
	CHECK(!ltgf_gpumap_remove(at("map"), 1, why, sizeof(why)));
	CHECK(!add(LTGF_GPUMAP_DCGM, "0,3", 11) && !add(LTGF_GPUMAP_DCGM, "3", 112));
	CHECK(!add(LTGF_GPUMAP_DCGM, "3", 112)); /* a requeued job is there once */
	CHECK_TEXT(content("map/0"), "11\n");
	CHECK_TEXT(content("map/3"), "11\n112\n");
	CHECK(!ltgf_gpumap_remove(at("map"), 11, why, sizeof(why)));
	CHECK_TEXT(content("map/0"), "-");
	CHECK_TEXT(content("map/3"), "112\n");
	CHECK(!add(LTGF_GPUMAP_JOBSTATS, "MIG-aa-bb", 5));
	CHECK_TEXT(content("map/MIG-aa-bb"), "5 1000\n");
	CHECK(!add(LTGF_GPUMAP_DCGM, "../../x,1", 9)); /* no name of a file: nothing is made */
	CHECK_TEXT(content("x"), "-");
	CHECK(!symlink(at("12.5"), at("map/7")));
	(void)add(LTGF_GPUMAP_DCGM, "7", 9);
	CHECK_TEXT(content("12.5"), "two\n"); /* what a link leads to is not written */
	CHECK(!chmod(at("map"), 0777));
	CHECK(add(LTGF_GPUMAP_DCGM, "1", 9) && strstr(why, "must be root's"));
}

/* Of jobs 5 and 112; says how often it was asked. */
static int runs(uint32_t job_id, void *asked)
{
	++*(int *)asked;
	return job_id == 5 || job_id == 112;
}

static int reap(unsigned int min_age_s, int *asked)
{
	return ltgf_gpumap_reap(at("map"), runs, asked, min_age_s, why, sizeof(why));
}

static void lost_maps(void)
{
	int asked = 0;

	CHECK(!chmod(at("map"), 0755));
	CHECK(!add(LTGF_GPUMAP_DCGM, "4", 11) && !add(LTGF_GPUMAP_DCGM, "4", 112));
	CHECK(!add(LTGF_GPUMAP_JOBSTATS, "5", 11));
	CHECK(!ltgf_ckpt_write(at("map"), "sshd.pid", "11\n", why, sizeof(why)));
	CHECK(!reap(60, &asked) && !asked); /* they could be those of a job that begins */
	CHECK_TEXT(content("map/4"), "11\n112\n");
	CHECK(!reap(0, &asked) && asked);
	CHECK_TEXT(content("map/4"), "112\n");
	CHECK_TEXT(content("map/5"), "-");
	CHECK_TEXT(content("map/MIG-aa-bb"), "5 1000\n");
	CHECK_TEXT(content("map/sshd.pid"), "11\n"); /* no GPU's */
	CHECK(!ltgf_gpumap_remove(at("map"), 11, why, sizeof(why)));
	CHECK_TEXT(content("map/sshd.pid"), "11\n");
}

static void processes(void)
{
	static const char *const other[] = { "slurmstepd", "slurmstepd: [x.0]", "slurmstepd: []",
					     "slurmstepd: [99999999999.0]", "slurmstepd: [12",
					     "bash slurmstepd: [12.0]", "slurmstepd: [-1.0]" };
	struct ltgf_running running = { 0 };
	char name[256];
	uint32_t job = 0;

	CHECK(!ltgf_stepd_job("slurmstepd: [123.batch]", &job) && job == 123);
	CHECK(!ltgf_stepd_job("slurmstepd: [4.0]", &job) && job == 4);
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		CHECK_ROW(ltgf_stepd_job(other[i], &job) && job == 4, other[i]);
	CHECK(!ltgf_node_runs(4294967290U, &running) && running.is_read);
	ltgf_running_free(&running);
	CHECK(!unsetenv("SLURMD_NODENAME") && !ltgf_node_name(name, sizeof(name)) && name[0]);
	CHECK(!strchr(name, '.'));
	CHECK(!setenv("SLURMD_NODENAME", "n9", 1) && !ltgf_node_name(name, sizeof(name)));
	CHECK_TEXT(name, "n9");
	CHECK(ltgf_node_name(name, 2));
}

int main(void)
{
	if (!mkdtemp(root))
		return 1;
	folders();
	records();
	maps();
	lost_maps();
	processes();
	ltgf_tree_remove(AT_FDCWD, root);
	return RESULT();
}
