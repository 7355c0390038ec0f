/* SPDX-License-Identifier: MIT */
/*
 * Parts of the engine that the simulation leaves out, because they speak SQL: the threads that clean, audit, and look
 * after owners end at once; the reader's session finds no server, so that a refusal names no holders.
 */
#include "store/session.h"

void *__wrap_cleaner_thread(void *engine);
void *__wrap_auditor_thread(void *engine);
void *__wrap_owners_thread(void *engine);
void *__wrap_liveness_thread(void *engine);
enum permit_status __wrap_session_connect(struct session *session);
void __wrap_session_thread_begin(void);
void __wrap_session_thread_end(void);

void *__wrap_cleaner_thread(void *engine)
{
    (void)engine;
    return NULL;
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
