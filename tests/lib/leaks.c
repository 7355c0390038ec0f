/* SPDX-License-Identifier: MIT */
/*
 * Criterion's runner sometimes forgets a record of its own (libcriterion 2.4 allocates it and never frees it), and the
 * leak sanitizer would call the whole suite failed for it. The tests run in workers, processes of their own, where
 * every leak counts; only the runner is excused. Linked to every suite, used under the address sanitizer.
 */
#include <stdlib.h>

/* Asked by the leak sanitizer at the end of a process (sanitizer/lsan_interface.h). */
int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void)
{
    return getenv("BXFI_MAP") == NULL; /* boxfort tells its workers by it where to look */
}
