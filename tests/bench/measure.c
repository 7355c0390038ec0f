/* SPDX-License-Identifier: MIT */
/* Counters, percentiles, and CPU time and memory of other processes from /proc. */
#include "measure.h"
#include "load_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES_MAX = 4 * 1000 * 1000 };

/* Reads a small file of /proc/PID, with a terminating zero. */
static bool read_proc(pid_t pid, const char *name, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t length = fread(text, 1, size - 1, file);
    text[length] = 0;
    fclose(file);
    return length > 0;
}

int64_t process_cpu_us(pid_t pid)
{
    char text[1024];
    unsigned long user = 0, system = 0;
    /* The name in parentheses may contain any character; the numbers begin after the last parenthesis. */
    const char *rest = read_proc(pid, "stat", text, sizeof(text)) ? strrchr(text, ')') : NULL;
    if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        return -1;
    return (int64_t)(user + system) * 1000000 / sysconf(_SC_CLK_TCK);
}

int64_t process_rss_kib(pid_t pid)
{
    char text[4096];
    long kib;
    const char *line = read_proc(pid, "status", text, sizeof(text)) ? strstr(text, "\nVmRSS:") : NULL;
    return line && sscanf(line, " VmRSS: %ld", &kib) == 1 ? kib : -1;
}

void samples_add(struct samples *samples, int64_t us)
{
    if (!samples->us) {
        samples->us = malloc(SAMPLES_MAX * sizeof(samples->us[0]));
        samples->capacity = samples->us ? SAMPLES_MAX : 0;
    }
    if (samples->count < samples->capacity)
        samples->us[samples->count++] = us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

void samples_release(struct samples *samples)
{
    free(samples->us);
    *samples = (struct samples){NULL, 0, 0};
}

static int compare_us(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

double samples_percentile(struct samples *samples, double part)
{
    if (samples->count == 0)
        return 0;
    qsort(samples->us, samples->count, sizeof(samples->us[0]), compare_us);
    return samples->us[(size_t)(part * (double)(samples->count - 1))];
}

void measure_watch(struct measure *measure, const char *pids)
{
    size_t figure = 0;
    for (const char *at = pids; at && *at && measure->watched_count < WATCHED_MAX; at = strpbrk(at, ",+")) {
        figure += *at == ',';
        at += *at == ',' || *at == '+';
        pid_t pid = (pid_t)atoi(at);
        measure->watched[measure->watched_count++] = (struct watched){.pid = pid ? pid : getpid(), .figure = figure};
    }
}

void measure_begin(struct measure *measure)
{
    measure->operations = measure->refused = measure->failed = 0;
    measure->acquires.count = 0;
    for (size_t i = 0; i < measure->watched_count; i++)
        measure->watched[i].cpu_us = process_cpu_us(measure->watched[i].pid);
    measure->start_us = load_now_us();
}

void measure_end(struct measure *measure)
{
    measure->end_us = load_now_us();
    for (size_t i = 0; i < measure->watched_count; i++)
        measure->watched[i].cpu_us = process_cpu_us(measure->watched[i].pid) - measure->watched[i].cpu_us;
}

void measure_print(struct measure *measure)
{
    double seconds = (double)(measure->end_us - measure->start_us) / 1e6;
    double operations = (double)measure->operations;
    printf("operations %llu\nrefused %llu\nfailed %llu\n", (unsigned long long)measure->operations,
           (unsigned long long)measure->refused, (unsigned long long)measure->failed);
    printf("seconds %.6f\nrate %.1f\n", seconds, seconds > 0 ? operations / seconds : 0);
    printf("acquire_p50_us %.0f\nacquire_p99_us %.0f\nacquire_max_us %.0f\n",
           samples_percentile(&measure->acquires, 0.5), samples_percentile(&measure->acquires, 0.99),
           samples_percentile(&measure->acquires, 1.0));
    for (size_t i = 0, figure = 0; i < measure->watched_count; figure++) {
        int64_t cpu_us = 0;
        for (; i < measure->watched_count && measure->watched[i].figure == figure; i++)
            cpu_us += measure->watched[i].cpu_us;
        printf("cpu_us_%zu %.2f\n", figure, operations > 0 ? (double)cpu_us / operations : 0);
    }
}
