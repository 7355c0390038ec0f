/* SPDX-License-Identifier: MIT */
/*
 * Excuses leaks of Criterion's runner: libcriterion 2.4 sometimes loses a record of its own, and the leak sanitizer
 * would fail the whole suite. The tests run in workers, which are separate processes; there every leak counts. Linked
 * to every suite, used under the address sanitizer.
 */
#include <stdlib.h>

/* The leak sanitizer calls this at the end of a process (sanitizer/lsan_interface.h). */
int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void)
{
    return getenv("BXFI_MAP") == NULL; /* boxfort sets this variable in its workers */
}
