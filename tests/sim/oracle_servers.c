/* SPDX-License-Identifier: MIT */
/*
 * P20 for the permitd themselves: no id is used twice, and a permitd is dead only when the clock has ticked often enough
 * since its last heartbeat; so no outage and no jump of a clock kills one.
 */
#include "store/servers.h"
#include "world.h"

enum { IDS_MAX = 4096 };

/* Ticks are at least a second apart, and an answer is at most this much later than the ticks that it wrote. */
#define ALIVE_US   (SERVER_DEAD_TICKS / 2 * (int64_t)US_PER_SECOND)
/* A killed permitd is declared dead, its row is kept, then removed; each step may be a heartbeat late. */
/* An unsure permitd does not tick for 5 s, and deadlines count from 5 s later. */
#define SETTLED_US (2 * SERVER_DEAD_TICKS * (int64_t)US_PER_SECOND + PLACE_KEPT_US + 15 * US_PER_SECOND)

/* An id that a permitd was answered to have. */
static struct used_id {
    uint64_t id;
    int process;
    uint64_t starts;    /* of the process, when it joined */
    mono_us died_at;    /* when it was declared dead; NEVER: it was not */
    mono_us seen_at;    /* when its last heartbeat was answered; 0: never */
    uint64_t failovers; /* of the database at that time */
} used[IDS_MAX];
static size_t used_count;

static struct used_id *find(uint64_t id)
{
    for (size_t i = used_count; i-- > 0;)
        if (used[i].id == id)
            return &used[i];
    return NULL;
}

void oracle_server_joined(uint64_t id)
{
    step("joins as server %llu", (unsigned long long)id);
    if (find(id))
        violation("P20", "server id %llu is given twice", (unsigned long long)id);
    if (used_count == IDS_MAX)
        violation("P20", "permitd take new ids all the time");
    used[used_count++] = (struct used_id){
        .id = id, .process = process_current(), .starts = world.servers[process_current()].starts, .died_at = NEVER};
}

int oracle_server_process(uint64_t id)
{
    const struct used_id *own = id ? find(id) : NULL;
    bool runs = own && world.servers[own->process].engine && world.servers[own->process].starts == own->starts;
    return runs ? own->process : -1;
}

int oracle_server_joined_by(uint64_t id)
{
    const struct used_id *own = id ? find(id) : NULL;
    return own ? own->process : -1;
}

mono_us oracle_server_died_at(uint64_t id)
{
    const struct used_id *own = find(id);
    return own ? own->died_at : NEVER;
}

void oracle_server_seen(uint64_t id)
{
    struct used_id *own = find(id);
    if (!own)
        violation("P20", "a permitd sends heartbeats as server %llu, which it is not", (unsigned long long)id);
    own->seen_at = sim_now();
    own->failovers = database.failovers;
}

void oracle_server_dies(const struct db_server_row *row)
{
    struct used_id *own = find(row->id);
    uint64_t behind = database.globals.ticks - row->ticks;
    if (behind < SERVER_DEAD_TICKS && !run_is_contract())
        violation("P20", "server %llu is declared dead %llu ticks after it wrote its own", (unsigned long long)row->id,
                  (unsigned long long)behind);
    if (own && own->seen_at && !run_is_contract() && own->failovers == database.failovers &&
        sim_now() - own->seen_at < ALIVE_US)
        violation("P20", "server %llu is declared dead %lld ms after its last heartbeat", (unsigned long long)row->id,
                  (long long)(sim_now() - own->seen_at) / US_PER_MS);
    if (own)
        own->died_at = sim_now();
}

/* Returns true if each row is that of a running permitd, alive, and each running permitd has one. */
static bool table_is_true(void)
{
    size_t rows = 0;
    for (size_t i = 0; i < SERVERS_MAX; i++)
        rows += database.servers[i].row.exists;
    for (int i = 0; i < profile.engines; i++) {
        const struct db_server *server = database_server(engine_server_id(world.servers[i].engine));
        if (!server || server->row.dead_at != NEVER)
            return false;
    }
    return rows == (size_t)profile.engines;
}

void oracle_servers_settle(void)
{
    mono_us until = sim_now() + SETTLED_US;
    while (!table_is_true() && sim_now() < until)
        fiber_sleep(100 * (int64_t)US_PER_MS);
    if (!table_is_true())
        violation("P20", "the table of permitd does not show those that run");
}
