/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into a permitd: makes one allocation fail, the n-th after a test has written n into the file that the
 * environment variable PERMIT_MEMORY_FILE names and that both sides have mapped. Uses no code of permitd or of the kit,
 * because it runs in another process.
 */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "failing_malloc.h"

/* The mapped file, a struct kit_memory_plan. */
struct memory_plan {
    _Atomic int64_t until;    /* allocations until the failing one; 0 or less: none fails */
    _Atomic int64_t own_only; /* not 0: counts only allocations by the program itself, not by its libraries */
};

static struct memory_plan nothing_fails;
static struct memory_plan *plan = &nothing_fails;
static uintptr_t own_from, own_to; /* range of the program's code */

/* The first object is the program itself. */
static int find_own(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    (void)context;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        own_from = info->dlpi_addr + part->p_vaddr;
        own_to = own_from + part->p_memsz;
    }
    return 1;
}

__attribute__((constructor)) static void shim_init(void)
{
    dl_iterate_phdr(find_own, NULL);
    const char *path = getenv("PERMIT_MEMORY_FILE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED)
        plan = map;
}

static bool fails(const void *caller)
{
    if (atomic_load_explicit(&plan->until, memory_order_relaxed) <= 0)
        return false;
    if (plan->own_only && ((uintptr_t)caller < own_from || (uintptr_t)caller >= own_to))
        return false;
    if (atomic_fetch_sub(&plan->until, 1) != 1)
        return false;
    errno = ENOMEM;
    return true;
}
