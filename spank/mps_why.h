/*
 * mps_why.h - one line that says why something failed, kept in the caller's buffer.
 */
#ifndef LTGF_MPS_WHY_H
#define LTGF_MPS_WHY_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/*
 * Write the line (cut at why_len; control characters become blanks, so that hostile text stays one
 * line). RET always -1: `return ltgf_why(why, why_len, ...)`.
 */
__attribute__((format(printf, 3, 4)))
static inline int ltgf_why(char *why, size_t why_len, const char *format, ...)
{
	va_list args;

	if (!why || !why_len)
		return -1;
	va_start(args, format);
	if (vsnprintf(why, why_len, format, args) < 0)
		why[0] = '\0';
	va_end(args);
	for (char *c = why; *c; c++) {
		if ((unsigned char) *c < ' ' || *c == 0x7f)
			*c = ' ';
	}
	return -1;
}

#endif
