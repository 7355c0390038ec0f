/* SPDX-License-Identifier: MIT */
/* Templates: settings for semaphores that are created on first use (docs/protocol.md, "Templates"). */
#ifndef CORE_TEMPLATE_H
#define CORE_TEMPLATE_H

#include "core/plan.h"

struct template
{
    struct bytes prefix;       /* prefix of the names it applies to; the longest prefix wins */
    struct semaphore settings; /* its settings and config_version; other members are unused */
};

/*
 * Applies a PUT to a template, by the rules for the settings of a semaphore. If it does not exist, only its prefix is
 * read. PERMIT_VERSION_MISMATCH and PERMIT_INVALID leave it unchanged and set *ret_refusal.
 */
enum permit_status template_apply(struct template *template, bool exists, const struct semaphore_change *change,
                                  int64_t default_ttl_ms, const char **ret_refusal) MUST_CHECK;
/*
 * Returns the PUT that creates a semaphore from the template, unless the semaphore exists; its note is the template's.
 */
struct semaphore_change template_change(const struct template *template);
#endif
