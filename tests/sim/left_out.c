/* SPDX-License-Identifier: MIT */
/*
 * Parts of the engine that the simulation leaves out, because they speak SQL: the threads that audit, and look after
 * owners, end at once; the cleaner finds nothing to delete, but counts semaphores; the reader's session finds no
 * server, so that a refusal names no holders.
 */
#include "database.h"
#include "engine/background.h"
#include "store/clean.h"
#include "store/templates.h"

enum { COUNT_US = 500 };

enum permit_status __wrap_background_begin(struct background *background);
enum permit_status __wrap_clean_commits(struct session *session, uint64_t *ret_commits);
enum permit_status __wrap_clean_batch(struct session *session, const struct clean_task *task, struct arena *arena,
                                      struct clean_result *ret_result);
enum permit_status __wrap_templates_count_semaphores(struct session *session, uint64_t max, uint64_t *ret_count);
void *__wrap_auditor_thread(void *engine);
void *__wrap_owners_thread(void *engine);
void *__wrap_liveness_thread(void *engine);
enum permit_status __wrap_session_connect(struct session *session);
void __wrap_session_thread_begin(void);
void __wrap_session_thread_end(void);

enum permit_status __wrap_background_begin(struct background *background)
{
    (void)background;
    return database.down ? PERMIT_DATABASE_UNAVAILABLE : PERMIT_OK;
}

enum permit_status __wrap_clean_commits(struct session *session, uint64_t *ret_commits)
{
    (void)session;
    *ret_commits = 0;
    return PERMIT_OK;
}

enum permit_status __wrap_clean_batch(struct session *session, const struct clean_task *task, struct arena *arena,
                                      struct clean_result *ret_result)
{
    (void)session;
    (void)task;
    (void)arena;
    *ret_result = (struct clean_result){0};
    return PERMIT_OK;
}

/* As it was when it was read, which is a while before anybody knows. */
enum permit_status __wrap_templates_count_semaphores(struct session *session, uint64_t max, uint64_t *ret_count)
{
    uint64_t start = database.start;
    uint64_t count = database_count_semaphores();
    (void)session;
    fiber_sleep(COUNT_US);
    if (database.start != start || database.down)
        return PERMIT_DATABASE_LOST;
    *ret_count = count < max ? count : max;
    return PERMIT_OK;
}

void *__wrap_auditor_thread(void *engine)
{
    (void)engine;
    return NULL;
}

void *__wrap_owners_thread(void *engine)
{
    (void)engine;
    return NULL;
}

void *__wrap_liveness_thread(void *engine)
{
    (void)engine;
    return NULL;
}

enum permit_status __wrap_session_connect(struct session *session)
{
    (void)session;
    return PERMIT_DATABASE_UNAVAILABLE;
}

void __wrap_session_thread_begin(void)
{
}

void __wrap_session_thread_end(void)
{
}
