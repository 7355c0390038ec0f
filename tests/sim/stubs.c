/* SPDX-License-Identifier: MIT */
/*
 * Parts of the engine that the simulation omits because they use SQL. The threads of the audit and of owners end
 * immediately. Retention finds nothing to delete but counts semaphores. The reader's session finds no server, so
 * refusals name no holders.
 */
#include "database.h"
#include "engine/background.h"
#include "store/retention_batch.h"
#include "store/templates.h"

enum { COUNT_US = 500 };

enum permit_status __wrap_background_begin(struct background *background);
enum permit_status __wrap_retention_commits(struct session *session, uint64_t *ret_commits);
enum permit_status __wrap_retention_batch(struct session *session, const struct retention_task *task,
                                          struct arena *arena, struct retention_result *ret_result);
enum permit_status __wrap_templates_count_semaphores(struct session *session, uint64_t max, uint64_t *ret_count);
void *__wrap_audit_thread(void *engine);
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

enum permit_status __wrap_retention_commits(struct session *session, uint64_t *ret_commits)
{
    (void)session;
    *ret_commits = 0;
    return PERMIT_OK;
}

enum permit_status __wrap_retention_batch(struct session *session, const struct retention_task *task,
                                          struct arena *arena, struct retention_result *ret_result)
{
    (void)session;
    (void)task;
    (void)arena;
    *ret_result = (struct retention_result){0};
    return PERMIT_OK;
}

/* Returns the count of some time ago, as a real query does. */
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

void *__wrap_audit_thread(void *engine)
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
