/* SPDX-License-Identifier: MIT */
/*
 * A mutex that clang checks: its -Wthread-safety (scripts/tidy.sh) reads the annotations below. Other compilers ignore
 * them. A function that its caller must call with the mutex says so with REQUIRES, data with GUARDED_BY.
 */
#ifndef BASE_MUTEX_H
#define BASE_MUTEX_H

#include <pthread.h>
#include <time.h>

#ifdef __clang__
#define THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define THREAD_SAFETY(attribute)
#endif

/* The caller holds the mutex, before and after the call; it may be released meanwhile. */
#define REQUIRES(mutex)   THREAD_SAFETY(requires_capability(mutex))
/* The caller does not hold the mutex, which the function locks. */
#define EXCLUDES(mutex)   THREAD_SAFETY(locks_excluded(mutex))
/* The function locks the mutex, or unlocks it; how it does so is not checked. */
#define ACQUIRES(mutex)   THREAD_SAFETY(acquire_capability(mutex)) THREAD_SAFETY(no_thread_safety_analysis)
#define RELEASES(mutex)   THREAD_SAFETY(release_capability(mutex)) THREAD_SAFETY(no_thread_safety_analysis)
/* The member is used with the mutex only. */
#define GUARDED_BY(mutex) THREAD_SAFETY(guarded_by(mutex))
/* The function initialises or releases guarded data, which no other thread can reach then. */
#define NO_OTHER_THREAD   THREAD_SAFETY(no_thread_safety_analysis)

struct THREAD_SAFETY(capability("mutex")) mutex {
    pthread_mutex_t native;
};

static inline void mutex_init(struct mutex *mutex)
{
    pthread_mutex_init(&mutex->native, NULL);
}

static inline void mutex_destroy(struct mutex *mutex)
{
    pthread_mutex_destroy(&mutex->native);
}

static inline void mutex_lock(struct mutex *mutex) ACQUIRES(*mutex)
{
    pthread_mutex_lock(&mutex->native);
}

static inline void mutex_unlock(struct mutex *mutex) RELEASES(*mutex)
{
    pthread_mutex_unlock(&mutex->native);
}

/* Waits for a signal. The mutex is released meanwhile. */
static inline void mutex_wait(struct mutex *mutex, pthread_cond_t *signal) REQUIRES(*mutex)
{
    pthread_cond_wait(signal, &mutex->native);
}

/* Waits for a signal until `until`, by the clock of the condition; 0, or ETIMEDOUT. The mutex is released meanwhile. */
static inline int mutex_wait_until(struct mutex *mutex, pthread_cond_t *signal, const struct timespec *until)
    REQUIRES(*mutex)
{
    return pthread_cond_timedwait(signal, &mutex->native, until);
}
#endif
