/* SPDX-License-Identifier: MIT */
/*
 * The cost of a fencing guard (docs/fencing.md): each client updates its own row, alternately without and with the
 * guard, on real stores of the same durability. Prints Markdown on standard output and progress on standard error.
 *
 * bench_guards [--quick] [STORE ...]: mariadb-rows, mariadb, postgresql-rows, postgresql, redis, redis-memory, file;
 * without names all of them
 */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "choice.h"
#include "load_client.h"
#include "measure.h"
#include "stores.h"
#include "table.h"

enum { CLIENTS_MAX = 8, WARM_MS = 200 };

static const struct numbers {
    unsigned rounds;
    int ms;
} full = {9, 1500}, quick = {3, 500};

static const unsigned crowds[] = {1, 8};
enum { CROWDS = sizeof(crowds) / sizeof(crowds[0]) };

static const struct subject {
    const char *name, *title;
    const struct store_kind *kind;
    bool durable, in_rows;
} subjects[] = {
    {"mariadb-rows", "MariaDB, flushed at commit, in the row", &store_mariadb, true, true},
    {"mariadb", "MariaDB, flushed at commit, a call", &store_mariadb, true, false},
    {"postgresql-rows", "PostgreSQL, flushed at commit, in the row", &store_postgresql, true, true},
    {"postgresql", "PostgreSQL, flushed at commit, a call", &store_postgresql, true, false},
    {"redis", "Redis, appendfsync always", &store_redis, true, false},
    {"redis-memory", "Redis, in memory alone", &store_redis, false, false},
    {"file", "a file, fdatasync, and fence.h", &store_file, true, false},
};
enum { SUBJECTS = sizeof(subjects) / sizeof(subjects[0]) };

struct client {
    pthread_t thread;
    struct session session;
    unsigned number;
    bool guarded;
    atomic_bool *counting, *over;
    uint64_t updates;
};

/* One run. */
struct run {
    double rate, cpu_us; /* updates per second; CPU time of the store per update */
};

/* Without the guard, with it, and the ratio, for every round. */
struct rates {
    double plain[ROUNDS_MAX], guarded[ROUNDS_MAX], ratio[ROUNDS_MAX];
    double plain_cpu[ROUNDS_MAX], guarded_cpu[ROUNDS_MAX];
};

/* The parent of a process; 0 if it has ended. */
static int parent_of(const char *pid)
{
    char path[300], line[512] = "";
    int parent = 0;
    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    FILE *file = fopen(path, "re");
    const char *name_end = file && fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
    if (file)
        fclose(file);
    return name_end && sscanf(name_end, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* CPU time with the resolution of nanoseconds, which /proc lacks; 0 if the process has ended. */
static double cpu_us_of(pid_t pid)
{
    struct timespec used = {0};
    clockid_t clock;
    if (!clock_getcpuclockid(pid, &clock))
        clock_gettime(clock, &used);
    return (double)used.tv_sec * 1e6 + (double)used.tv_nsec / 1e3;
}

/* CPU time of the server and its children (PostgreSQL has one per session); of this process if there is no server. */
static double store_cpu_us(const struct store *store)
{
    if (!store->pid)
        return cpu_us_of(getpid());
    double sum = cpu_us_of(store->pid);
    DIR *directory = opendir("/proc");
    KIT_CHECK(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && parent_of(entry->d_name) == store->pid)
            sum += cpu_us_of(atoi(entry->d_name));
    closedir(directory);
    return sum;
}

static void *client_run(void *context)
{
    struct client *client = context;
    char slot[16];
    snprintf(slot, sizeof(slot), "%u", client->number);
    const struct write write = {"bench", PLACE_SLOTS, slot, 1000 + client->number};
    const struct store_kind *kind = client->session.store->kind;
    while (!atomic_load(client->over)) {
        if (kind->update(&client->session, client->guarded ? &write : NULL, client->number) != PASSED)
            kit_fail("%s: %s", kind->name, client->session.message);
        client->updates += atomic_load(client->counting);
    }
    return NULL;
}

static struct run measure(struct client *clients, unsigned count, bool guarded, int ms)
{
    atomic_bool counting = false, over = false;
    uint64_t updates = 0;
    for (unsigned i = 0; i < count; i++) {
        clients[i].guarded = guarded;
        clients[i].counting = &counting;
        clients[i].over = &over;
        clients[i].updates = 0;
        KIT_CHECK(!pthread_create(&clients[i].thread, NULL, client_run, &clients[i]));
    }
    kit_sleep_ms(WARM_MS);
    const struct store *store = clients[0].session.store;
    int64_t begun = load_now_us();
    double cpu = store_cpu_us(store);
    atomic_store(&counting, true);
    kit_sleep_ms(ms);
    atomic_store(&counting, false);
    int64_t ended = load_now_us();
    cpu = store_cpu_us(store) - cpu;
    atomic_store(&over, true);
    for (unsigned i = 0; i < count; i++) {
        pthread_join(clients[i].thread, NULL);
        updates += clients[i].updates;
    }
    return (struct run){(double)updates * 1e6 / (double)(ended - begun), cpu / (double)(updates + !updates)};
}

static void measure_subject(const struct subject *subject, const struct numbers *numbers, struct rates rates[CROWDS])
{
    struct client clients[CLIENTS_MAX] = {0};
    struct store *store = subject->kind->start(subject->durable);
    store->in_rows = subject->in_rows;
    for (unsigned i = 0; i < CLIENTS_MAX; i++) {
        clients[i].number = i + 1;
        session_open(&clients[i].session, store);
        if (subject->kind->transactions) {
            session_run(&clients[i].session, "INSERT INTO stock VALUES (%u, 0)", i + 1);
            session_run(&clients[i].session, "INSERT INTO fenced VALUES (%u, 0, 0)", i + 1);
        }
    }
    for (unsigned round = 0; round < numbers->rounds; round++)
        for (size_t crowd = 0; crowd < CROWDS; crowd++) {
            struct rates *to = &rates[crowd];
            for (unsigned turn = 0; turn < 2; turn++) { /* the order alternates between rounds */
                bool guarded = (turn + round) % 2;
                struct run run = measure(clients, crowds[crowd], guarded, numbers->ms);
                *(guarded ? &to->guarded[round] : &to->plain[round]) = run.rate;
                *(guarded ? &to->guarded_cpu[round] : &to->plain_cpu[round]) = run.cpu_us;
            }
            to->ratio[round] = to->guarded[round] / to->plain[round];
        }
    for (unsigned i = 0; i < CLIENTS_MAX; i++)
        session_close(&clients[i].session);
    subject->kind->stop(store);
}

static void print_subject(const struct subject *subject, const struct numbers *numbers, struct rates rates[CROWDS])
{
    for (size_t crowd = 0; crowd < CROWDS; crowd++) {
        char what[128], measured[160];
        double ratio = median(rates[crowd].ratio, numbers->rounds);
        snprintf(what, sizeof(what), "%s, %u client%s", subject->title, crowds[crowd], crowds[crowd] > 1 ? "s" : "");
        snprintf(measured, sizeof(measured), "%.2f times (%.0f and %.0f updates/s; CPU %.0f and %.0f us)", ratio,
                 median(rates[crowd].guarded, numbers->rounds), median(rates[crowd].plain, numbers->rounds),
                 median(rates[crowd].guarded_cpu, numbers->rounds), median(rates[crowd].plain_cpu, numbers->rounds));
        print_target(what, "0.7 times the plain rate", measured, ratio >= 0.7, 0);
    }
}

int main(int argc, char **argv)
{
    static struct rates rates[SUBJECTS][CROWDS];
    struct choice choice = choice_read(argc, argv, subjects, sizeof(subjects[0]), SUBJECTS);
    const struct numbers *numbers = choice.quick ? &quick : &full;
    for (size_t i = 0; i < SUBJECTS; i++) {
        if (!choice.chosen[i])
            continue;
        fprintf(stderr, "bench: %s\n", subjects[i].name);
        measure_subject(&subjects[i], numbers, rates[i]);
    }
    struct instance instance = instance_start();
    print_machine(&instance);
    instance_stop(&instance);
    printf("- Medians of %u rounds of %.1f s, plain and guarded alternately, each client with its own row and slot; "
           "CPU: time of the store per update, guarded and plain (with a file: of the program)\n\n",
           numbers->rounds, numbers->ms / 1e3);
    print_target_head();
    for (size_t i = 0; i < SUBJECTS; i++)
        if (choice.chosen[i])
            print_subject(&subjects[i], numbers, rates[i]);
    return 0;
}
