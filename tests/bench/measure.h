/* SPDX-License-Identifier: MIT */
/*
 * What both load programs count and print: operations, latencies of acquires, and the CPU time that watched processes
 * used in the measured window. They print lines `name value`, which bench reads.
 */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { WATCHED_MAX = 4 };

struct samples {
    uint32_t *us;
    size_t count;
    size_t capacity; /* beyond it samples are dropped */
};

struct measure {
    int64_t start_us;
    int64_t end_us;
    uint64_t operations; /* transitions that were granted: an acquire, a release */
    uint64_t refused;    /* no capacity */
    uint64_t failed;     /* anything else; a figure with failures does not count */
    struct samples acquires;
    pid_t watched[WATCHED_MAX];
    size_t watched_count;
    int64_t cpu_us[WATCHED_MAX];
};

int64_t measure_now_us(void);
/* utime + stime of a process, -1 if it is gone. */
int64_t process_cpu_us(pid_t pid);
/* Resident memory, -1 if it is gone. */
int64_t process_rss_kib(pid_t pid);

void samples_add(struct samples *samples, int64_t us);
void samples_release(struct samples *samples);
/* Sorts. part 0.5 is the median; 0 if there are none. */
double samples_percentile(struct samples *samples, double part);

/* "12,34": processes to watch; 0 is the calling one. */
void measure_watch(struct measure *measure, const char *pids);
/* Throws away what was counted so far and starts the clocks. */
void measure_begin(struct measure *measure);
/* Stops the clocks; operations that are counted after it are a mistake. */
void measure_end(struct measure *measure);
/* operations, refused, failed, seconds, rate, acquire_p50_us, acquire_p99_us, acquire_max_us, cpu_us_0 (per operation)
 * ... */
void measure_print(struct measure *measure);
#endif
