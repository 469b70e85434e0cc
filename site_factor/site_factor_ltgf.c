/* site_factor_ltgf.c - Slurm's side of the plugin: site factors of jobs from ltgf's table.
 *
 * Callbacks only. Slurm calls site_factor_p_set() and site_factor_p_update() with its job write
 * lock held: they look into memory and never wait. Jobs that are held, run, or have a priority
 * set by hand stay as they are. Without a good table every factor is 0, as if we were not here.
 * Failure never reaches slurmctld: init() succeeds whatever the table is.
 */
#include "config.h"

#include "src/common/slurm_xlator.h"

#include "src/common/log.h"
#include "src/common/xmalloc.h"
#include "src/common/xstring.h"
#include "src/slurmctld/slurmctld.h"

#if __has_include("src/common/job_record.h")
#include "src/common/job_record.h"
#endif

#include "watch.h"

#define DEFAULT_TABLE "/run/ltgf/factors"

const char plugin_name[] = "site factors from slurm-ltgf's table";
const char plugin_type[] = "site_factor/ltgf";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

static struct {
	struct ltgf_watch *watch;
	char *path; /* of the table that is watched */
	/* Whether the last walk had a table. The first table, or one after a time without, counts for
	 * all jobs from the same walk on: else newcomers would pass those that still have 0. */
	bool is_applied;
} plugin;

static void say(int is_trouble, const char *line)
{
	if (is_trouble)
		error("%s", line);
	else
		info("%s", line);
}

/* RET the table's path; NULL, and a line in the log, if it is not absolute */
static const char *table_path(void)
{
	const char *path = slurm_conf.site_factor_params;

	if (!path || !*path)
		return DEFAULT_TABLE;
	if (*path == '/')
		return path;
	error("ltgf: PrioritySiteFactorParameters=%s is no absolute path: all site factors stay 0; "
	      "write the path of site.factor_table of ltgf.toml there", path);
	return NULL;
}

extern int init(void)
{
	const char *path = table_path();

	if (path && ltgf_watch_start(path, say, &plugin.watch))
		error("ltgf: %s cannot be watched: %m: all site factors stay 0 until slurmctld is "
		      "restarted", path);
	plugin.path = xstrdup(path);
	return SLURM_SUCCESS;
}

extern int fini(void)
{
	ltgf_watch_stop(plugin.watch);
	plugin.watch = NULL;
	xfree(plugin.path);
	return SLURM_SUCCESS;
}

extern void site_factor_p_reconfig(void)
{
	const char *path = table_path();

	if (!path || (plugin.watch && !xstrcmp(path, plugin.path)))
		return;
	if (plugin.watch && ltgf_watch_follow(plugin.watch, path)) {
		error("ltgf: %s cannot be watched: %m: the table of before stays", path);
		return;
	}
	xfree(plugin.path);
	if (plugin.watch)
		plugin.path = xstrdup(path);
	else
		init();
}

/* RET tasks of a job that can start: of an array as many as its throttle lets */
static uint32_t tasks_of(const job_record_t *job)
{
	const job_array_struct_t *array = job->array_recs;
	uint32_t tasks = array && array->task_cnt ? array->task_cnt : 1;

	if (!array || !array->max_run_tasks || array->max_run_tasks >= tasks)
		return tasks;
	return array->max_run_tasks;
}

static void set(job_record_t *job, struct ltgf_book *book)
{
	struct ltgf_job asked = {
		.id = job->job_id,
		.tasks = tasks_of(job),
		.account = job->account,
		.partition = job->partition,
		.tres = job->tres_fmt_req_str,
	};

	job->site_factor = (uint32_t)(NICE_OFFSET + (book ? ltgf_book_label(book, &asked) : 0));
}

extern void site_factor_p_set(job_record_t *job_ptr)
{
	if (plugin.watch && IS_JOB_PENDING(job_ptr) && !job_ptr->direct_set_prio)
		set(job_ptr, plugin.is_applied ? ltgf_watch_book(plugin.watch) : NULL);
}

struct walk {
	struct ltgf_book *book;
	uint32_t jobs;
};

static int update(void *item, void *argument)
{
	job_record_t *job = item;
	struct walk *walk = argument;

	if (IS_JOB_PENDING(job) && job->priority && !job->direct_set_prio) {
		set(job, walk->book);
		walk->jobs++;
	}
	return 0;
}

extern void site_factor_p_update(void)
{
	struct walk walk = { 0 };
	struct timeval began, ended;

	if (!plugin.watch)
		return;
	gettimeofday(&began, NULL);
	walk.book = ltgf_watch_book(plugin.watch);
	plugin.is_applied = walk.book != NULL;
	list_for_each(job_list, update, &walk);
	gettimeofday(&ended, NULL);
	debug("ltgf: site factors of %u pending jobs took %ld us", walk.jobs,
	      (ended.tv_sec - began.tv_sec) * 1000000L + (ended.tv_usec - began.tv_usec));
}
