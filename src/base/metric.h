/* SPDX-License-Identifier: MIT */
/*
 * Lines of /metrics, in the text format of Prometheus. Labels and numbers of the other lines are printed by the caller.
 */
#ifndef BASE_METRIC_H
#define BASE_METRIC_H

#include "base/buf.h"

/* Writes the two lines before the first value of a metric. */
static inline void metric_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Writes a metric that has one value. */
static inline void metric_write(struct buf *out, const char *name, const char *type, const char *help, uint64_t value)
{
    metric_head(out, name, type, help);
    buf_printf(out, "%s %llu\n", name, (unsigned long long)value);
}
#endif
