/*
 * mps_smi.c - what only nvidia-smi can do: compute mode and a device's memory; run as root.
 */
#include "limits.h"
#include "mps_daemon.h"
#include "mps_run.h"
#include "mps_why.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMI_MS 10000 /* without persistence mode it wakes the GPU first */

/* Only a program that root alone can have put there runs as root. */
static int check_program(const char *path, char *why, size_t why_len)
{
	struct stat st;

	if (!path || path[0] != '/')
		return ltgf_why(why, why_len,
				"\"%s\" is no absolute path: say smi=/… of nvidia-smi "
				"in plugstack.conf",
				path ? path : "");
	if (stat(path, &st) < 0)
		return ltgf_why(why, why_len, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || (st.st_uid && st.st_uid != geteuid()) || (st.st_mode & 022))
		return ltgf_why(why, why_len, "%s is not root's alone: not run", path);
	return 0;
}

static int run_smi(char *const *argv, char *out, size_t out_len, char *why, size_t why_len)
{
	static char *const envp[] = { "PATH=/usr/bin:/bin", "CUDA_DEVICE_ORDER=PCI_BUS_ID", NULL };
	struct ltgf_run run = {
		.uid = geteuid(),
		.gid = getegid(),
		.argv = argv,
		.envp = envp,
		.until_ms = ltgf_now_ms() + SMI_MS,
	};
	int rc = check_program(argv[0], why, why_len) < 0
			 ? -1
			 : ltgf_run(&run, out, out_len, why, why_len);

	if (rc > 0) {
		out[strcspn(out, "\n")] = '\0';
		ltgf_why(why, why_len, "%s failed with status %d: %s", argv[0], rc, out);
	}
	return rc ? -1 : 0;
}

int ltgf_mps_compute_mode(const struct ltgf_mps_state *state, bool exclusive, char *why,
			  size_t why_len)
{
	char *argv[] = { (char *) state->smi,
			 "-i",
			 (char *) state->devices,
			 "-c",
			 exclusive ? "EXCLUSIVE_PROCESS" : "DEFAULT",
			 NULL };
	char out[512];

	return run_smi(argv, out, sizeof(out), why, why_len);
}

int ltgf_mps_device_memory(const char *smi, const char *devices, char *text, size_t text_len,
			   char *why, size_t why_len)
{
	char *argv[] = { (char *) smi,
			 "-i",
			 (char *) devices,
			 "--query-gpu=memory.total",
			 "--format=csv,noheader,nounits",
			 NULL };
	uint64_t mib[LTGF_MPS_DEVICES];
	char out[2048], *rest = out, *line, *end;
	size_t n = 0, wanted = 1;

	if (run_smi(argv, out, sizeof(out), why, why_len) < 0)
		return -1;
	for (const char *c = devices; *c; c++)
		wanted += *c == ',';
	while (n < LTGF_MPS_DEVICES && (line = strsep(&rest, "\n")) && *line) {
		errno = 0;
		mib[n] = strtoull(line, &end, 10);
		if (errno || end == line || *end || !mib[n])
			return ltgf_why(why, why_len, "%s says \"%s\" for a device's memory", smi,
					line);
		n++;
	}
	if (n != wanted || ltgf_limit_text(mib, n, text, text_len) < 0)
		return ltgf_why(why, why_len, "%s named %zu of the %zu devices %s", smi, n, wanted,
				devices);
	return 0;
}
