/* SPDX-License-Identifier: MIT */
/*
 * Counters and output of both load programs: operations, latencies of acquires, and the CPU time of watched processes
 * in the measured window. The output has lines `name value`, which bench reads.
 */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { WATCHED_MAX = 8 };

struct samples {
    uint32_t *us;
    size_t count;
    size_t capacity; /* further samples are dropped */
};

struct measure {
    int64_t start_us;
    int64_t end_us;
    uint64_t operations; /* granted acquires and releases */
    uint64_t refused;    /* no capacity, or a key that was used before on purpose */
    uint64_t failed;     /* any other answer; a figure with failures is not reached */
    struct samples acquires;
    struct watched {
        pid_t pid;
        size_t figure; /* the number of the figure that its CPU time is added to */
        int64_t cpu_us;
    } watched[WATCHED_MAX];
    size_t watched_count;
};

/* utime + stime of a process; -1 if it has ended. */
int64_t process_cpu_us(pid_t pid);
/* Resident memory; -1 if it has ended. */
int64_t process_rss_kib(pid_t pid);

void samples_add(struct samples *samples, int64_t us);
void samples_release(struct samples *samples);
/* Sorts the samples. part 0.5 is the median; 0 if there are none. */
double samples_percentile(struct samples *samples, double part);

/* "12,34+35": processes to watch; 0 is the calling process. The CPU time of 34 and 35 is one figure. */
void measure_watch(struct measure *measure, const char *pids);
/* Resets the counters and starts the clocks. */
void measure_begin(struct measure *measure);
/* Stops the clocks. No operation may be counted afterwards. */
void measure_end(struct measure *measure);
/*
 * Prints operations, refused, failed, seconds, rate, acquire_p50_us, acquire_p99_us, acquire_max_us, cpu_us_0 (per
 * operation) ...
 */
void measure_print(struct measure *measure);
#endif
