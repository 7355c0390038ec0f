/* SPDX-License-Identifier: MIT */
/*
 * Runs all threads of all simulated processes in one real thread, in simulated time. The engine's calls of pthread,
 * clock, sleep and randomness are redirected here (the linker's --wrap, CMakeLists.txt). Each thread is a fiber with
 * its own stack. A call that blocks lets another fiber run, chosen at random. When no fiber can run, time jumps to the
 * next timer. So a run takes only CPU time, and the same seed gives the same run.
 */
#ifndef SIM_SCHEDULER_H
#define SIM_SCHEDULER_H

#include "base/base.h"
#include "base/heap.h"
#include "base/list.h"

enum { PROCESSES_MAX = 8 };

struct fiber;

/* An event at a given time. `fire` runs in the scheduler, outside of every fiber. */
struct timer {
    struct heap_node node;
    void (*fire)(struct timer *timer);
};

/* Microseconds since the run began. */
mono_us sim_now(void);
/* The machine's clock at the start of the run; processes may differ by `skew`. */
#define SIM_WALL_BASE (1780000000LL * US_PER_SECOND)
#define SIM_MONO_BASE (1000LL * US_PER_SECOND)

void scheduler_begin(void);
/* Runs until scheduler_stop, or until nothing can happen any more. */
void scheduler_run(void);
void scheduler_stop(void);
void scheduler_die(const char *why) __attribute__((noreturn));
/* Number of times a fiber ran until it had to wait. */
uint64_t scheduler_switches(void);

/* The caller owns the timer. It is in no heap when `fire` is called. */
void timer_set(struct timer *timer, mono_us at);
void timer_drop(struct timer *timer);

/* A list of fibers that wait for the same event. Initialize it with list_init. */
struct fiber_queue {
    struct list fibers;
};

/* The running fiber; NULL in timers. */
struct fiber *fiber_current(void);
struct fiber *fiber_spawn(int process, void *(*body)(void *), void *context);
/* Waits until the fiber has ended, and frees it. */
void fiber_join(struct fiber *fiber);
void fiber_sleep(int64_t us);
/* Returns false if the time limit came first. Only inside a fiber. */
bool fiber_wait(struct fiber_queue *queue, mono_us until);
/* Wakes the first fiber; returns false if there is none. */
bool fiber_wake_one(struct fiber_queue *queue);
void fiber_wake_all(struct fiber_queue *queue);

/* Threads created from now on outside of a fiber belong to this process. */
void process_enter(int process, int64_t wall_skew_us);
/* The process of the running fiber, or the process entered last. */
int process_current(void);
int64_t process_wall_skew_us(void);
/* The clock of its host: where it began, and by how much it is too fast. */
void process_set_boot(int process, int64_t offset_us, int64_t per_million);
/* CLOCK_BOOTTIME of its host. */
int64_t process_boot_us(void);
/* SIGKILL: removes its fibers; their allocations are leaked. Not from one of its own fibers. */
void process_kill(int process);
/* SIGSTOP and SIGCONT. */
void process_pause(int process);
void process_resume(int process);
/* Starts a fiber of this process that runs `body`. */
void process_spawn(int process, void *(*body)(void *), void *context);
#endif
