/* SPDX-License-Identifier: MIT */
#include "cli/descendants.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

struct proc_entry {
    pid_t pid;
    pid_t parent;
    pid_t group;
    bool ended; /* a zombie */
    bool is_descendant;
};

struct proc_entries {
    struct proc_entry *list;
    size_t count;
    size_t capacity;
};

void descendants_keep(void)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1UL, 0UL, 0UL, 0UL);
}

/*
 * Parses "PID (COMMAND) STATE PARENT GROUP ..."; the command may contain parentheses. Returns false if the process has
 * just ended.
 */
static bool read_process(const char *pid, struct proc_entry *ret_process)
{
    char path[300], text[512];
    (void)snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[length] = '\0';
    const char *end = strrchr(text, ')');
    char state;
    int parent, group;
    if (!end || sscanf(end + 1, " %c %d %d", &state, &parent, &group) != 3)
        return false;
    *ret_process = (struct proc_entry){
        .pid = (pid_t)atoi(pid), .parent = parent, .group = group, .ended = state == 'Z' || state == 'X'};
    return true;
}

/* Returns false if out of memory. */
static bool add(struct proc_entries *processes, const struct proc_entry *process)
{
    if (processes->count == processes->capacity) {
        size_t capacity = processes->capacity ? 2 * processes->capacity : 256;
        struct proc_entry *list = realloc(processes->list, capacity * sizeof(*list));
        if (!list)
            return false;
        processes->list = list;
        processes->capacity = capacity;
    }
    processes->list[processes->count++] = *process;
    return true;
}

/* Reads all processes in /proc, as many as memory allows. */
static struct proc_entries read_all(void)
{
    struct proc_entries all = {.count = 0};
    struct proc_entry process;
    DIR *directory = opendir("/proc");
    if (!directory)
        return all;
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && read_process(entry->d_name, &process) &&
            !add(&all, &process))
            break;
    (void)closedir(directory);
    return all;
}

static int compare_pids(const void *a, const void *b)
{
    pid_t left = ((const struct proc_entry *)a)->pid, right = ((const struct proc_entry *)b)->pid;
    return (left > right) - (left < right);
}

bool descendants_signal(int signal, pid_t except, pid_t *ret_refused)
{
    struct proc_entries all = read_all();
    bool found = false;
    if (all.count)
        qsort(all.list, all.count, sizeof(*all.list), compare_pids);
    /* Marks generation by generation, because a parent may have a higher pid than its child. */
    for (bool more = all.count > 0; more;) {
        more = false;
        for (size_t i = 0; i < all.count; i++) {
            struct proc_entry *process = &all.list[i];
            const struct proc_entry wanted = {.pid = process->parent};
            const struct proc_entry *parent = bsearch(&wanted, all.list, all.count, sizeof(wanted), compare_pids);
            if (!process->is_descendant && (process->parent == getpid() || (parent && parent->is_descendant)))
                more = process->is_descendant = true;
        }
    }
    for (size_t i = 0; i < all.count; i++) {
        const struct proc_entry *process = &all.list[i];
        if (!process->is_descendant || process->ended)
            continue;
        found = true;
        if (kill(process->pid, process->group == except ? 0 : signal) != 0 && errno == EPERM)
            *ret_refused = process->pid;
    }
    free(all.list);
    return found;
}
