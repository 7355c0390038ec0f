/* SPDX-License-Identifier: MIT */
/*
 * Two resources at once, requested in opposite order. examples/atomic_pair/run.sh runs it.
 *
 * Half of the workers copy from the disk to the network, the others from the network to the disk; each needs both
 * exclusively. Acquired one after the other this is the textbook deadlock. One request for both is granted completely
 * or not at all: a waiting worker holds nothing, so no worker waits for another waiting worker.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "permit/permit.h"

static const struct permit_want disk_first[] = {{.semaphore = "disk"}, {.semaphore = "network"}};
static const struct permit_want network_first[] = {{.semaphore = "network"}, {.semaphore = "disk"}};

/* A counter that only the pair of permits protects; this program has no lock of its own. */
static volatile unsigned *copies;

static struct permit_client *client_new(const char *url)
{
    struct permit_client *client;

    if (permit_client_new(&(struct permit_client_options){.url = url, .retry_ms = 60000}, &client)) {
        fprintf(stderr, "atomic_pair: no client\n");
        exit(1);
    }
    return client;
}

/* Acquires both for a moment, `rounds` times. Returns the exit status of a worker. */
static int copy(const char *url, const struct permit_want *pair, unsigned rounds)
{
    struct permit_client *client = client_new(url);

    for (unsigned round = 0; round < rounds; round++) {
        const struct permit_acquire_options options = {
            .permits = pair, .permit_count = 2, .ttl_ms = 30000, .wait_ms = PERMIT_FOREVER};
        struct permit_request *held;
        unsigned before;

        if (permit_acquire(client, &options, &held)) {
            fprintf(stderr, "atomic_pair: %s\n", permit_client_message(client));
            return 1;
        }
        before = *copies; /* would lose counts if two workers were here at once */
        usleep(500);
        *copies = before + 1;
        if (permit_release(client, held->external_id, NULL))
            return 1;
        permit_request_free(held);
    }
    permit_client_free(client);
    return 0;
}

/* Returns true if `key` gets one unit of `semaphore` within `wait_ms`. */
static bool take(struct permit_client *client, const char *key, const char *semaphore, int64_t wait_ms)
{
    const struct permit_want want = {.semaphore = semaphore};
    const struct permit_acquire_options options = {
        .external_id = key, .permits = &want, .permit_count = 1, .ttl_ms = 30000, .wait_ms = wait_ms};
    struct permit_request *held = NULL;
    bool granted = permit_acquire(client, &options, &held) == PERMIT_OK;

    permit_request_free(held);
    if (!granted)
        printf("     %s does not get it: %s\n", key, permit_client_message(client));
    return granted;
}

/*
 * Shows the deadlock: each of two clients holds one resource and wants the other. Returns the number of clients served,
 * which is 0 for any wait.
 */
static unsigned one_after_the_other(const char *url)
{
    static const char *const keys[] = {"one-disk", "two-network", "one-network", "two-disk"};
    struct permit_client *client = client_new(url);
    unsigned served = 0;

    if (!take(client, keys[0], "disk", 0) || !take(client, keys[1], "network", 0))
        exit(1);
    served += take(client, keys[2], "network", 200);
    served += take(client, keys[3], "disk", 200);
    for (unsigned i = 0; i < 4; i++)
        (void)permit_release(client, keys[i], NULL);
    permit_client_free(client);
    return served;
}

static int claim(int holds, const char *sentence)
{
    printf("%s - %s\n", holds ? "ok" : "NOT SO", sentence);
    return !holds;
}

int main(int argc, char **argv)
{
    unsigned workers = argc > 2 ? (unsigned)atoi(argv[2]) : 8;
    unsigned rounds = argc > 3 ? (unsigned)atoi(argv[3]) : 50;
    unsigned done = 0;
    int failed = 0, status;

    if (argc < 2) {
        fprintf(stderr, "usage: atomic_pair URL [WORKERS [ROUNDS]]\n");
        return 64;
    }
    copies = mmap(NULL, sizeof(*copies), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (copies == MAP_FAILED)
        return 1;
    failed +=
        claim(one_after_the_other(argv[1]) == 0, "acquired one after the other, no client gets its second resource");
    fflush(stdout);
    for (unsigned i = 0; i < workers; i++)
        if (fork() == 0)
            _exit(copy(argv[1], i % 2 ? network_first : disk_first, rounds));
    while (wait(&status) > 0)
        done += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    printf("     %u workers, %u of them to their end; %u copies\n", workers, done, *copies);
    failed += claim(done == workers, "acquired together, in either order: every worker was served");
    failed += claim(*copies == workers * rounds, "and never two at once");
    return failed > 0;
}
