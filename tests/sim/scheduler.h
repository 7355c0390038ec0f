/* SPDX-License-Identifier: MIT */
/*
 * All threads of all simulated processes in one real thread, in simulated time. The engine's pthread calls, its clock,
 * its sleeps and its randomness come here (the linker's --wrap, CMakeLists.txt): each thread is a fiber with a stack of
 * its own, and a call that blocks lets another one run, chosen by the dice. When none can run, time jumps to the next
 * timer. So a run takes no time that it does not compute, and the same seed runs in the same way.
 */
#ifndef SIM_SCHEDULER_H
#define SIM_SCHEDULER_H

#include "base/base.h"
#include "base/heap.h"
#include "base/list.h"

enum { PROCESSES_MAX = 8 };

struct fiber;

/* Something that happens at a moment; `fire` runs in the scheduler, outside of every fiber. */
struct timer {
    struct heap_node node;
    void (*fire)(struct timer *timer);
};

/* Microseconds since the run began. */
mono_us sim_now(void);
/* What the clock of the machine says at that moment; processes may differ by `skew`. */
#define SIM_WALL_BASE (1780000000LL * US_PER_SECOND)
#define SIM_MONO_BASE (1000LL * US_PER_SECOND)

void scheduler_begin(void);
/* Runs until scheduler_stop, or until nothing can ever happen again. */
void scheduler_run(void);
void scheduler_stop(void);
void scheduler_die(const char *why) __attribute__((noreturn));
/* Fibers that ran until they had to wait. */
uint64_t scheduler_switches(void);

/* The timer is the caller's; it is in no heap when `fire` is called. */
void timer_set(struct timer *timer, mono_us at);
void timer_drop(struct timer *timer);

/* A list of fibers that wait for the same thing. A zeroed one is not ready: list_init. */
struct fiber_queue {
    struct list fibers;
};

/* The one that runs; NULL in timers. */
struct fiber *fiber_current(void);
struct fiber *fiber_spawn(int process, void *(*body)(void *), void *context);
/* Waits until it has ended; it is forgotten then. */
void fiber_join(struct fiber *fiber);
void fiber_sleep(int64_t us);
/* False: the time came first. Only inside a fiber. */
bool fiber_wait(struct fiber_queue *queue, mono_us until);
/* The first one, with what it is to be told; false if there is none. */
bool fiber_wake_one(struct fiber_queue *queue);
void fiber_wake_all(struct fiber_queue *queue);

/* Threads that are made from now on, outside of a fiber, belong to this process. */
void process_enter(int process, int64_t wall_skew_us);
/* The process of the fiber that runs, or the one that was entered. */
int process_current(void);
int64_t process_wall_skew_us(void);
/* SIGKILL: its fibers are no more; what they had allocated is lost to this run. Not from one of its own fibers. */
void process_kill(int process);
/* SIGSTOP and SIGCONT. */
void process_pause(int process);
void process_resume(int process);
/* A fiber of this process that runs `body`. */
void process_spawn(int process, void *(*body)(void *), void *context);
#endif
