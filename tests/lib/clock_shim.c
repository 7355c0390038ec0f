/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into a mariadbd: its CLOCK_REALTIME is the real one plus an offset that a test changes while it runs.
 * Preloaded into a permitctl: its CLOCK_BOOTTIME is the real one plus another offset, as if the machine had been
 * suspended. The offsets, in microseconds, are in a small file that the environment variable PERMIT_CLOCK_FILE names
 * and that both sides have mapped: first that of the wall clock, then that of the suspension (0 if the file ends
 * before). CLOCK_MONOTONIC is not shifted, nor is the length of a wait that was given by a shifted clock. Calls that
 * would use the vDSO arrive here too, because these symbols replace those of the C library. Uses no code of permitd or
 * of the kit, because it runs in another process.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Separates the clocks of a time: no machine has been up for so long, and no wall clock is so far in the past. */
#define WALL_SECONDS_MIN 1000000000

struct offsets {
    _Atomic int64_t wall_us;
    _Atomic int64_t boot_us;
};

static struct offsets no_offsets;
static struct offsets *offsets = &no_offsets;

typedef int read_clock(clockid_t clock, struct timespec *ret_time);
typedef int wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *end);

/* Used before the constructor has run, and without a file. */
static int read_by_syscall(clockid_t clock, struct timespec *ret_time)
{
    return (int)syscall(SYS_clock_gettime, clock, ret_time);
}

static read_clock *real_clock_gettime = read_by_syscall;
static wait_until *real_clockwait;

__attribute__((constructor)) static void shim_init(void)
{
    /* A pointer to an object and one to a function have the same size here; ISO C does not guarantee it. */
    read_clock *clock = NULL;
    *(void **)&clock = dlsym(RTLD_NEXT, "clock_gettime");
    if (clock)
        real_clock_gettime = clock;
    *(void **)&real_clockwait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    const char *path = getenv("PERMIT_CLOCK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof(*offsets), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED)
        offsets = map;
}

static struct timespec moved(struct timespec time, int64_t us)
{
    int64_t ns = time.tv_nsec + us % 1000000 * 1000;
    time.tv_sec += us / 1000000 + (ns >= 1000000000) - (ns < 0);
    time.tv_nsec = ns < 0 ? ns + 1000000000 : ns % 1000000000;
    return time;
}

static int is_wall(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    int status = real_clock_gettime(clock, ret_time);
    if (!status && is_wall(clock))
        *ret_time = moved(*ret_time, atomic_load(&offsets->wall_us));
    if (!status && clock == CLOCK_BOOTTIME)
        *ret_time = moved(*ret_time, atomic_load(&offsets->boot_us));
    return status;
}

int gettimeofday(struct timeval *restrict ret_time, void *restrict zone)
{
    (void)zone;
    struct timespec time;
    int status = clock_gettime(CLOCK_REALTIME, &time);
    if (!status)
        *ret_time = (struct timeval){time.tv_sec, time.tv_nsec / 1000};
    return status;
}

time_t time(time_t *ret_time)
{
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (ret_time)
        *ret_time = now.tv_sec;
    return now.tv_sec;
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *end)
{
    struct timespec real_end = is_wall(clock) ? moved(*end, -atomic_load(&offsets->wall_us)) : *end;
    return real_clockwait(condition, mutex, clock, &real_end);
}

/* Finds out the clock of the time by its value: the condition variable does not reveal its clock. */
int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict end)
{
    clockid_t clock = end->tv_sec >= WALL_SECONDS_MIN ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    return pthread_cond_clockwait(condition, mutex, clock, end);
}
