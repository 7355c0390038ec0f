/* SPDX-License-Identifier: MIT */
/* Templates: settings for semaphores that are made on their first use (docs/protocol.md, "Templates"). */
#ifndef CORE_TEMPLATE_H
#define CORE_TEMPLATE_H

#include "core/plan.h"

struct template
{
    struct bytes prefix;       /* of the names that it is for; the longest prefix decides */
    struct semaphore settings; /* kind, queue, capacity, ttls, grace, max_hold, note, config_version; nothing else of it
                                  means anything */
};

/*
 * PUT on a template, by the rules for the settings of a semaphore. If it does not exist, only its prefix is looked at.
 * PERMIT_VERSION_MISMATCH and PERMIT_INVALID leave it as it is and say why.
 */
enum permit_status template_apply(struct template *template, bool exists, const struct semaphore_change *change,
                                  int64_t default_ttl_ms, const char **ret_refusal) MUST_CHECK;
/* The PUT that makes a semaphore from it, unless there is one; its note is the template's. */
struct semaphore_change template_change(const struct template *template);
#endif
