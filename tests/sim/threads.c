/* SPDX-License-Identifier: MIT */
/*
 * Replaces the engine's calls of pthread, clock, sleep and randomness: `--wrap=f` makes the linker redirect f to
 * __wrap_f (CMakeLists.txt).
 */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "dice.h"
#include "scheduler.h"

/* How often, and for how long, a thread is delayed where another may run in between. */
enum { PREEMPT_ONCE_IN = 24, PREEMPT_US = 150, STALL_ONCE_IN = 4000, STALL_US = 30000 };

/* A mutex and a condition, stored in the memory of the real ones. */
struct sim_mutex {
    struct fiber *owner;
    bool locked;
    struct fiber_queue waiting;
};
struct sim_cond {
    struct fiber_queue waiting;
};
_Static_assert(sizeof(struct sim_mutex) <= sizeof(pthread_mutex_t), "it has to fit");
_Static_assert(sizeof(struct sim_cond) <= sizeof(pthread_cond_t), "it has to fit");

/* The linker redirects f to __wrap_f. */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *context);
int __wrap_pthread_join(pthread_t thread, void **ret_value);
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes);
int __wrap_pthread_cond_destroy(pthread_cond_t *cond);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_rest);
uint64_t __wrap_random_u64(void);
uint32_t __wrap_arc4random_uniform(uint32_t bound);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *context)
{
    (void)attributes;
    *thread = (pthread_t)(uintptr_t)fiber_spawn(process_current(), body, context);
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **ret_value)
{
    (void)ret_value;
    fiber_join((struct fiber *)(uintptr_t)thread);
    return 0;
}

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    struct sim_mutex *own = (struct sim_mutex *)mutex;
    (void)attributes;
    *own = (struct sim_mutex){0};
    list_init(&own->waiting.fibers);
    return 0;
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    if (((struct sim_mutex *)mutex)->locked)
        scheduler_die("a locked mutex is destroyed");
    return 0;
}

/* No thread sleeps with a mutex except during a random delay, so outside of fibers the mutex is free. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    struct sim_mutex *own = (struct sim_mutex *)mutex;
    while (own->locked) {
        if (own->owner == fiber_current())
            scheduler_die("a thread locks a mutex twice, or one was held during a call that blocks");
        (void)fiber_wait(&own->waiting, NEVER);
    }
    own->locked = true;
    own->owner = fiber_current();
    return 0;
}

/* A random delay after a mutex, where the order of threads matters. */
static void random_delay(void)
{
    if (!fiber_current())
        return;
    if (dice_once_in(PREEMPT_ONCE_IN))
        fiber_sleep(dice_between(0, PREEMPT_US));
    else if (dice_once_in(STALL_ONCE_IN))
        fiber_sleep(dice_between(0, STALL_US));
}

static void unlock(struct sim_mutex *own)
{
    if (!own->locked || own->owner != fiber_current())
        scheduler_die("a mutex is unlocked by a thread that has not locked it");
    own->locked = false;
    own->owner = NULL;
    (void)fiber_wake_one(&own->waiting);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    unlock((struct sim_mutex *)mutex);
    random_delay();
    return 0;
}

int __wrap_pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes)
{
    (void)attributes;
    list_init(&((struct sim_cond *)cond)->waiting.fibers);
    return 0;
}

int __wrap_pthread_cond_destroy(pthread_cond_t *cond)
{
    if (!list_empty(&((struct sim_cond *)cond)->waiting.fibers))
        scheduler_die("a thread waits for a destroyed condition");
    return 0;
}

static int cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, mono_us until)
{
    unlock((struct sim_mutex *)mutex);
    bool woken = fiber_wait(&((struct sim_cond *)cond)->waiting, until);
    (void)__wrap_pthread_mutex_lock(mutex);
    return woken ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    return cond_wait(cond, mutex, NEVER);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
    return cond_wait(cond, mutex, until->tv_sec * US_PER_SECOND + until->tv_nsec / 1000 - SIM_MONO_BASE);
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    (void)fiber_wake_one(&((struct sim_cond *)cond)->waiting);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
    fiber_wake_all(&((struct sim_cond *)cond)->waiting);
    return 0;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    int64_t us = clock == CLOCK_REALTIME   ? SIM_WALL_BASE + sim_now() + process_wall_skew_us()
                 : clock == CLOCK_BOOTTIME ? process_boot_us()
                                           : SIM_MONO_BASE + sim_now();
    *ret_time = (struct timespec){.tv_sec = us / US_PER_SECOND, .tv_nsec = us % US_PER_SECOND * 1000};
    return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_rest)
{
    (void)ret_rest;
    fiber_sleep(time->tv_sec * US_PER_SECOND + time->tv_nsec / 1000);
    return 0;
}

uint64_t __wrap_random_u64(void)
{
    return dice_u64();
}

uint32_t __wrap_arc4random_uniform(uint32_t bound)
{
    return (uint32_t)(dice_u64() % bound);
}
