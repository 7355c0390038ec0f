/* SPDX-License-Identifier: MIT */
#include "engine/task.h"

#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/state.h"

enum { MEMORY_AGAIN_US = 100 * 1000, SLEEP_PIECE_US = 50 * 1000 };

/*
 * Opens the task's store. Retries while there is no memory: an engine without its expiry task or a worker would look
 * healthy but not work. NULL: the engine stops.
 */
static struct store *open_store(const struct task *task)
{
    const struct engine_settings *settings = &task->engine->settings;
    struct store *store = settings->open_store(settings->open_context, task->kind->use);
    if (!store)
        log_write(LOG_ERROR, "out of memory, retrying task start", "task", task->kind->name, NULL);
    while (!store && !task_stopping(task)) {
        task_sleep(task, MEMORY_AGAIN_US);
        store = settings->open_store(settings->open_context, task->kind->use);
    }
    return store;
}

static void *task_main(void *context)
{
    struct task *task = context;
    arena_init(&task->arena, task->kind->arena_chunk, task->kind->arena_limit);
    task->store = open_store(task);
    task->kind->run(task);
    store_free(task->store);
    arena_release(&task->arena);
    return NULL;
}

bool task_start(struct task *task, const struct task_kind *kind, struct engine *engine)
{
    *task = (struct task){.kind = kind, .engine = engine};
    return pthread_create(&task->thread, NULL, task_main, task) == 0;
}

enum permit_status task_connect(struct task *task)
{
    unsigned generation = atomic_load(&task->engine->server_generation);
    if (generation != task->server_generation)
        task->store->session->disconnect(task->store);
    task->server_generation = generation;
    return task->store->session->reconnect(task->store);
}

bool task_record_status(struct task *task, enum permit_status status)
{
    bool is_bug = status == PERMIT_INTERNAL || status == PERMIT_NO_MEMORY;
    bool failed = status != PERMIT_OK && status != PERMIT_CONFLICT && status != PERMIT_LOCK_TIMEOUT;
    bool recovered = status == PERMIT_OK && task->failing;
    if (failed && !task->failing)
        log_write(is_bug ? LOG_ERROR : LOG_WARN, "task failed, retrying", "task", task->kind->name, "status",
                  permit_status_word(status), "error", task->store->message, NULL);
    if (recovered)
        log_write(LOG_INFO, "task recovered", "task", task->kind->name, NULL);
    if (failed || recovered)
        task->failing = failed;
    return recovered;
}

void task_sleep(const struct task *task, int64_t us)
{
    mono_us until = clock_mono() + us;
    for (int64_t left = us; left > 0 && !task_stopping(task); left = until - clock_mono()) {
        const struct timespec piece = {.tv_nsec = min_i64(left, SLEEP_PIECE_US) * 1000};
        nanosleep(&piece, NULL);
    }
}

bool task_stopping(const struct task *task)
{
    return atomic_load(&task->engine->stopping);
}
