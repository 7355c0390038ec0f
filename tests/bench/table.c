/* SPDX-License-Identifier: MIT */
/* Medians and Markdown. */
#include "table.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { FLUSHES = 200, TEXTS = 8, TEXT_SIZE = 512 };

const char *text(const char *format, ...)
{
    static char texts[TEXTS][TEXT_SIZE];
    static unsigned next;
    char *at = texts[next++ % TEXTS];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(at, TEXT_SIZE, format, arguments);
    va_end(arguments);
    return at;
}

void series_add(struct series *series, struct result result)
{
    if (series->count < ROUNDS_MAX)
        series->results[series->count++] = result;
}

static double member_of(const struct result *result, size_t member)
{
    double value;
    memcpy(&value, (const char *)result + member, sizeof(value));
    return value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, size_t count)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof(values[0]), compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

double series_median(const struct series *series, size_t member)
{
    double values[ROUNDS_MAX];
    for (size_t i = 0; i < series->count; i++)
        values[i] = member_of(&series->results[i], member);
    return median(values, series->count);
}

double series_ratio(const struct series *a, const struct series *b, size_t member)
{
    double values[ROUNDS_MAX];
    size_t count = a->count < b->count ? a->count : b->count;
    for (size_t i = 0; i < count; i++) {
        double below = member_of(&b->results[i], member);
        values[i] = below > 0 ? member_of(&a->results[i], member) / below : 0;
    }
    return median(values, count);
}

double series_failures(const struct series *series)
{
    double sum = 0;
    for (size_t i = 0; i < series->count; i++)
        sum += series->results[i].failed + series->results[i].unanswered;
    return sum;
}

/* The cost of a small write and its flush: the minimum of every commit. */
static double flush_us(void)
{
    double values[FLUSHES];
    char block[512] = "x", *path = kit_path("flush");
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    KIT_CHECK(fd >= 0);
    for (int i = 0; i < FLUSHES; i++) {
        int64_t start = kit_now_us();
        KIT_CHECK(pwrite(fd, block, sizeof(block), (off_t)(i * (int)sizeof(block))) == sizeof(block) && !fdatasync(fd));
        values[i] = (double)(kit_now_us() - start);
    }
    close(fd);
    free(path);
    return median(values, FLUSHES);
}

static void print_processor(void)
{
    char *text = kit_read_file("/proc/cpuinfo");
    const char *name = text ? strstr(text, "model name") : NULL;
    name = name ? strchr(name, ':') : NULL;
    int length = name ? (int)strcspn(name + 2, "\n") : 0;
    printf("- Machine: %ld cores, %.*s, %.0f GiB of memory\n", sysconf(_SC_NPROCESSORS_ONLN), length,
           name ? name + 2 : "", (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1 << 30));
    free(text);
}

void print_machine_alone(void)
{
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &utc));
    printf("- Date: %s\n", date);
    print_processor();
}

void print_machine(struct instance *instance)
{
    struct utsname system;
    uname(&system);
    char *version = instance_variable(instance, "version");
    char *flush = instance_variable(instance, "innodb_flush_log_at_trx_commit");
    char *pool = instance_variable(instance, "innodb_buffer_pool_size");
    print_machine_alone();
    printf("- Software: permitd %s, MariaDB %s, Linux %s\n", PERMIT_VERSION, version, system.release);
    printf("- Database: permitd's private MariaDB for both designs, innodb_flush_log_at_trx_commit = %s, buffer pool "
           "%ld MiB\n",
           flush, atol(pool) >> 20);
    printf("- A write of 512 bytes and its fdatasync in the same file system: %.0f us (median)\n", flush_us());
    free(version);
    free(flush);
    free(pool);
}

void print_target_head(void)
{
    printf("| figure | target | measured | reached |\n|---|---|---|---|\n");
}

void print_target(const char *what, const char *asked, const char *measured, bool reached, double failures)
{
    printf("| %s | %s | %s", what, asked, measured);
    if (failures > 0)
        printf(", **%.0f failed**", failures);
    printf(" | %s |\n", reached && failures <= 0 ? "yes" : "**no**");
}

void print_rates_head(void)
{
    printf("\n| run | operations/s | acquire: median | 99 %% | CPU per operation: permitd | database | client |\n"
           "|---|---:|---:|---:|---:|---:|---:|\n");
}

void print_rates(const char *what, const struct series *series, bool with_permitd)
{
    char permitd[32] = "-";
    if (with_permitd)
        snprintf(permitd, sizeof(permitd), "%.1f us", MEDIAN(series, permitd_cpu_us));
    printf("| %s | %.0f | %.2f ms | %.2f ms | %s | %.1f us | %.1f us |\n", what, MEDIAN(series, rate),
           MEDIAN(series, p50_us) / 1000, MEDIAN(series, p99_us) / 1000, permitd, MEDIAN(series, database_cpu_us),
           MEDIAN(series, client_cpu_us));
}
