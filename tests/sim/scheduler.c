/* SPDX-License-Identifier: MIT */
#include "scheduler.h"

#include <setjmp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "dice.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

uint64_t dice_state;

enum { STACK_SIZE = 256 * 1024, GUARD_SIZE = 4096 };

struct fiber {
    struct timer timer;  /* set while it waits with a time limit */
    struct list node;    /* in the queue it waits in, in the held list of a stopped process, or in the unused list */
    struct list sibling; /* in the list of its process */
    int process;
    bool ready;     /* in `ready`, at index `ready_at` */
    bool timed_out; /* result of its wait */
    bool ended;
    size_t ready_at;
    jmp_buf resume;
    bool started;
    char *stack;
    void *(*body)(void *);
    void *context;
    struct fiber_queue joiners;
#if defined(__SANITIZE_ADDRESS__)
    void *fake_stack;
#endif
};

static struct {
    mono_us now;
    struct heap timers;
    struct fiber **ready;
    size_t ready_count, ready_room;
    struct fiber *running;
    jmp_buf scheduler;
    bool stopped;
    uint64_t switches;
    int process;
    struct list unused; /* ended fibers, whose stacks are reused */
    struct process {
        struct list fibers;
        struct list held; /* runnable, but the process is stopped */
        bool paused;
        int64_t wall_skew_us;
        int64_t boot_offset_us, boot_per_million;
    } processes[PROCESSES_MAX];
#if defined(__SANITIZE_ADDRESS__)
    const void *main_stack;
    size_t main_size;
    void *main_fake;
#endif
} sim;

void scheduler_begin(void)
{
    list_init(&sim.unused);
    for (int i = 0; i < PROCESSES_MAX; i++) {
        list_init(&sim.processes[i].fibers);
        list_init(&sim.processes[i].held);
    }
}

mono_us sim_now(void)
{
    return sim.now;
}

uint64_t scheduler_switches(void)
{
    return sim.switches;
}

void scheduler_stop(void)
{
    sim.stopped = true;
}

void scheduler_die(const char *why)
{
    fprintf(stderr, "sim: %s\n", why);
    abort();
}

void timer_set(struct timer *timer, mono_us at)
{
    bool counted = allocations_count(false); /* the heap is permitd's code, but these timers are not permitd's */
    heap_remove(&sim.timers, &timer->node);
    if (!heap_add(&sim.timers, &timer->node, at < sim.now ? sim.now : at))
        scheduler_die("out of memory");
    (void)allocations_count(counted);
}

void timer_drop(struct timer *timer)
{
    heap_remove(&sim.timers, &timer->node);
}

/* ---- runnable fibers ---- */

static void make_ready(struct fiber *fiber)
{
    struct process *process = &sim.processes[fiber->process];
    if (process->paused) {
        list_append(&process->held, &fiber->node);
        return;
    }
    if (sim.ready_count == sim.ready_room) {
        sim.ready_room = sim.ready_room ? 2 * sim.ready_room : 64;
        sim.ready = realloc(sim.ready, sim.ready_room * sizeof(struct fiber *));
        if (!sim.ready)
            scheduler_die("out of memory");
    }
    fiber->ready = true;
    fiber->ready_at = sim.ready_count;
    sim.ready[sim.ready_count++] = fiber;
}

static void leave_ready(struct fiber *fiber)
{
    struct fiber *last = sim.ready[--sim.ready_count];
    sim.ready[fiber->ready_at] = last;
    last->ready_at = fiber->ready_at;
    fiber->ready = false;
}

/* Ends its wait. */
static void wake(struct fiber *fiber, bool timed_out)
{
    fiber->timed_out = timed_out;
    timer_drop(&fiber->timer);
    list_remove(&fiber->node);
    make_ready(fiber);
}

static void on_time(struct timer *timer)
{
    wake(CONTAINER_OF(timer, struct fiber, timer), true);
}

/* ---- switching ---- */

static void fiber_main(void);

/* Runs the fiber until it waits or ends. Called by the scheduler only. */
static void run_fiber(struct fiber *fiber)
{
    sim.running = fiber;
    sim.process = fiber->process;
    sim.switches++;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&sim.main_fake, fiber->stack + GUARD_SIZE, STACK_SIZE);
#endif
    if (_setjmp(sim.scheduler) == 0) {
        if (fiber->started)
            _longjmp(fiber->resume, 1);
        fiber->started = true;
        ucontext_t context;
        getcontext(&context);
        context.uc_stack.ss_sp = fiber->stack + GUARD_SIZE;
        context.uc_stack.ss_size = STACK_SIZE;
        context.uc_link = NULL;
        makecontext(&context, fiber_main, 0);
        setcontext(&context);
    }
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(sim.main_fake, NULL, NULL);
#endif
    sim.running = NULL;
}

/* Switches to the scheduler; returns when the fiber runs again. */
static void leave_fiber(struct fiber *fiber)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(fiber->ended ? NULL : &fiber->fake_stack, sim.main_stack, sim.main_size);
#endif
    if (_setjmp(fiber->resume) == 0)
        _longjmp(sim.scheduler, 1);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fiber->fake_stack, &sim.main_stack, &sim.main_size);
#endif
}

static void fiber_main(void)
{
    struct fiber *fiber = sim.running;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &sim.main_stack, &sim.main_size);
#endif
    fiber->body(fiber->context);
    fiber->ended = true;
    list_remove(&fiber->sibling);
    fiber_wake_all(&fiber->joiners);
    leave_fiber(fiber);
}

void scheduler_run(void)
{
    sim.stopped = false;
    while (!sim.stopped) {
        if (sim.ready_count) {
            struct fiber *fiber = sim.ready[sim.ready_count == 1 ? 0 : dice_u64() % sim.ready_count];
            leave_ready(fiber);
            run_fiber(fiber);
            continue;
        }
        struct heap_node *next = heap_first(&sim.timers);
        if (!next)
            return;
        struct timer *timer = HEAP_ENTRY(next, struct timer, node);
        sim.now = max_i64(sim.now, next->time);
        heap_remove(&sim.timers, next);
        timer->fire(timer);
    }
}

/* ---- fibers ---- */

struct fiber *fiber_current(void)
{
    return sim.running;
}

static struct fiber *current(void)
{
    if (!sim.running)
        scheduler_die("a call that blocks outside of a fiber");
    return sim.running;
}

bool fiber_wait(struct fiber_queue *queue, mono_us until)
{
    struct fiber *fiber = current();
    list_append(&queue->fibers, &fiber->node);
    if (until != NEVER)
        timer_set(&fiber->timer, until);
    leave_fiber(fiber);
    return !fiber->timed_out;
}

void fiber_sleep(int64_t us)
{
    struct fiber *fiber = current();
    timer_set(&fiber->timer, sim.now + us);
    leave_fiber(fiber);
}

bool fiber_wake_one(struct fiber_queue *queue)
{
    if (list_empty(&queue->fibers))
        return false;
    wake(LIST_ENTRY(queue->fibers.next, struct fiber, node), false);
    return true;
}

void fiber_wake_all(struct fiber_queue *queue)
{
    while (fiber_wake_one(queue))
        ;
}

static struct fiber *fiber_new(void)
{
    struct fiber *fiber;
    char *stack;
    if (!list_empty(&sim.unused)) {
        fiber = LIST_ENTRY(sim.unused.next, struct fiber, node);
        list_remove(&fiber->node);
        stack = fiber->stack;
    } else {
        fiber = malloc(sizeof *fiber);
        stack = mmap(NULL, STACK_SIZE + GUARD_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                     -1, 0);
        if (!fiber || stack == MAP_FAILED || mprotect(stack, GUARD_SIZE, PROT_NONE) != 0)
            scheduler_die("no memory for a stack");
    }
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(stack + GUARD_SIZE, STACK_SIZE);
#endif
    memset(fiber, 0, sizeof *fiber);
    fiber->stack = stack;
    fiber->timer.fire = on_time;
    list_init(&fiber->node);
    list_init(&fiber->joiners.fibers);
    return fiber;
}

struct fiber *fiber_spawn(int process, void *(*body)(void *), void *context)
{
    struct fiber *fiber = fiber_new();
    fiber->process = process;
    fiber->body = body;
    fiber->context = context;
    list_append(&sim.processes[process].fibers, &fiber->sibling);
    make_ready(fiber);
    return fiber;
}

void fiber_join(struct fiber *fiber)
{
    while (!fiber->ended)
        (void)fiber_wait(&fiber->joiners, NEVER);
    list_append(&sim.unused, &fiber->node);
}

/* ---- processes ---- */

void process_enter(int process, int64_t wall_skew_us)
{
    sim.process = process;
    sim.processes[process].wall_skew_us = wall_skew_us;
}

int64_t process_wall_skew_us(void)
{
    return sim.processes[sim.process].wall_skew_us;
}

void process_set_boot(int process, int64_t offset_us, int64_t per_million)
{
    sim.processes[process].boot_offset_us = offset_us;
    sim.processes[process].boot_per_million = per_million;
}

int64_t process_boot_us(void)
{
    const struct process *process = &sim.processes[sim.process];
    return process->boot_offset_us + sim.now + sim.now * process->boot_per_million / 1000000;
}

int process_current(void)
{
    return sim.process;
}

void process_spawn(int process, void *(*body)(void *), void *context)
{
    (void)fiber_spawn(process, body, context);
}

void process_kill(int process)
{
    process_resume(process);
    list_for_each (node, next, &sim.processes[process].fibers) {
        struct fiber *fiber = LIST_ENTRY(node, struct fiber, sibling);
        if (fiber == sim.running)
            scheduler_die("a process cannot kill itself");
        timer_drop(&fiber->timer);
        if (fiber->ready)
            leave_ready(fiber);
        list_remove(&fiber->sibling);
        list_remove(&fiber->node);
        list_append(&sim.unused, &fiber->node);
    }
}

void process_pause(int process)
{
    sim.processes[process].paused = true;
    list_for_each (node, next, &sim.processes[process].fibers) {
        struct fiber *fiber = LIST_ENTRY(node, struct fiber, sibling);
        if (!fiber->ready)
            continue;
        leave_ready(fiber);
        list_append(&sim.processes[process].held, &fiber->node);
    }
}

void process_resume(int process)
{
    sim.processes[process].paused = false;
    list_for_each (node, next, &sim.processes[process].held) {
        list_remove(node);
        make_ready(LIST_ENTRY(node, struct fiber, node));
    }
}
