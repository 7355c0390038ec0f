/* SPDX-License-Identifier: MIT */
/* Reads requests as calls, and checks that the tables agree with each other. */
#include "rows.h"

#include "held_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct looking {
    const struct world *world;
    unsigned from;
    unsigned to;
    struct call *calls; /* one per key in [from, to) */
};

/* Parses "1-3,7" into slot numbers. */
static void parse_slots(const char *text, struct share *share)
{
    size_t count = 0;
    while (*text) {
        char *rest;
        unsigned long first = strtoul(text, &rest, 10), last = first;
        if (*rest == '-')
            last = strtoul(rest + 1, &rest, 10);
        for (; first <= last && count < SLOTS_MAX; first++)
            share->slots[count++] = (unsigned)first;
        text = *rest ? rest + 1 : rest;
    }
}

/* The number of the key if it is one of this run in [from, to), else -1. */
static long key_number(const struct looking *looking, const char *name)
{
    unsigned long long seed;
    unsigned key;
    if (sscanf(name, "t%llu-%u", &seed, &key) != 2 || seed != looking->world->seed)
        return -1;
    return key >= looking->from && key < looking->to ? (long)key : -1;
}

/*
 * Columns: external_id, state, semaphore, token, count, slots. A request has one row per permit, or one without
 * permits.
 */
static void take_row(void *context, char **columns)
{
    struct looking *looking = context;
    long key = key_number(looking, columns[0]);
    if (key < 0 || !strcmp(columns[1], "3")) /* a waiting request is neither held nor ended */
        return;
    struct call *call = &looking->calls[(unsigned)key - looking->from];
    call->says = !strcmp(columns[1], "1") ? SAYS_HELD : SAYS_ENDED;
    int semaphore = semaphore_number(&looking->world->facts, columns[2]);
    if (call->says != SAYS_HELD || semaphore < 0 || call->share_count == SHARES_MAX)
        return;
    struct share *share = &call->shares[call->share_count++];
    *share = (struct share){.semaphore = (unsigned)semaphore,
                            .count = (unsigned)strtoul(columns[4], NULL, 10),
                            .token = strtoull(columns[3], NULL, 10)};
    parse_slots(columns[5], share);
}

void rows_record(struct kit_sql *sql, const struct world *world, unsigned from, unsigned to, struct history *history)
{
    if (from >= to)
        return;
    struct looking looking = {world, from, to, calloc(to - from, sizeof(struct call))};
    if (!looking.calls)
        abort();
    int64_t sent = kit_now_us();
    for (unsigned key = from; key < to; key++)
        looking.calls[key - from] =
            (struct call){.kind = CALL_QUERY, .says = SAYS_UNKNOWN, .key = key, .status = 200, .sent_us = sent};
    kit_sql_each(sql,
                 "SELECT r.external_id, r.state, s.name, p.id, p.count, p.slots FROM permit_request r "
                 "LEFT JOIN permit p ON p.permit_request_id = r.id LEFT JOIN semaphore s ON s.id = p.semaphore_id",
                 take_row, &looking);
    int64_t answered = kit_now_us();
    for (unsigned key = from; key < to; key++) {
        looking.calls[key - from].answered_us = answered;
        history_add(history, &looking.calls[key - from]);
    }
    free(looking.calls);
}

/* ---- the ledger ---- */

struct reading {
    struct looking keys; /* the keys of this run */
    struct ledger ledger;
    struct entry entry; /* the request whose rows are being read */
    bool begun;
};

static int64_t number_or(const char *text, int64_t absent)
{
    return text ? strtoll(text, NULL, 10) : absent;
}

static void end_entry(struct reading *reading)
{
    if (reading->begun)
        ledger_add(&reading->ledger, &reading->entry);
    reading->begun = false;
}

static struct entry new_entry(unsigned key, char **columns)
{
    bool acquired = !strcmp(columns[1], "1");
    return (struct entry){.key = key,
                          .acquired = acquired,
                          .end = (enum entry_end)strtoul(columns[2], NULL, 10),
                          .confirmed = !strcmp(columns[3], "1"),
                          .renewals = (unsigned)strtoul(columns[4], NULL, 10),
                          .ttl_us = number_or(columns[5], 0) * 1000,
                          .acquired_us = number_or(columns[6], ENTRY_NEVER),
                          .ended_us = number_or(columns[7], ENTRY_NEVER)};
}

static void take_share(struct entry *entry, const struct facts *facts, char **columns)
{
    int semaphore = semaphore_number(facts, columns[8]);
    bool bits_fit = !strcmp(columns[12], entry->acquired ? "1" : "0");
    entry->torn |= semaphore < 0 || entry->share_count == SHARES_MAX || !bits_fit;
    if (semaphore < 0 || entry->share_count == SHARES_MAX)
        return;
    struct share *share = &entry->shares[entry->share_count++];
    *share = (struct share){.semaphore = (unsigned)semaphore,
                            .token = strtoull(columns[9], NULL, 10),
                            .count = (unsigned)strtoul(columns[10], NULL, 10)};
    parse_slots(columns[11], share);
}

/* Columns as in rows_read. A request has consecutive rows, one per permit, or one without permits. */
static void take_entry_row(void *context, char **columns)
{
    struct reading *reading = context;
    long key = key_number(&reading->keys, columns[0]);
    if (!reading->begun || reading->entry.key != (unsigned)key)
        end_entry(reading);
    if (key < 0)
        return;
    if (!reading->begun)
        reading->entry = new_entry((unsigned)key, columns);
    reading->begun = true;
    if (columns[8])
        take_share(&reading->entry, &reading->keys.world->facts, columns);
}

#define MICROSECONDS(time) "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " time ")"

#define R_DUE_S HELD_ROWS_DUE_S("r.due_at")
/*
 * Counts the bits of `held` for the permit p of the request r: 1 if there is one, in the row with the second of the
 * deadline and the owner; 0 if there is none; more if one is in another row.
 */
#define HELD_BITS                                                                                                      \
    "COALESCE((SELECT SUM(IF(h.due_s = " R_DUE_S " AND h.owner = r.owner, 1, 2)) FROM held h FORCE INDEX (PRIMARY) "   \
    "WHERE h.semaphore_id = p.semaphore_id AND h.block = p.id DIV 64 AND h.bits & (1 << (p.id & 63))), 0)"

#define ACQUIRED_US MICROSECONDS("r.acquired_at")
#define ENDED_US    "IF(r.ended_at < '9999-12-31', " MICROSECONDS("r.ended_at") ", NULL)"

struct ledger rows_read(struct kit_sql *sql, const struct world *world)
{
    struct reading reading = {.keys = {.world = world, .to = UINT32_MAX}};
    static const char requests[] =
        "SELECT r.external_id, r.state, r.end_reason, r.confirmed_at IS NOT NULL, r.renewals, "
        "IF(r.server_id IS NULL, r.ttl_ms, LEAST(r.ttl_ms, 10000)), " ACQUIRED_US ", " ENDED_US ", "
        "s.name, p.id, p.count, p.slots, " HELD_BITS " FROM permit_request r "
        "LEFT JOIN permit p ON p.permit_request_id = r.id LEFT JOIN semaphore s ON s.id = p.semaphore_id "
        "WHERE r.state <> 3 ORDER BY r.id, p.semaphore_id";
    kit_sql_each(sql, requests, take_entry_row, &reading);
    end_entry(&reading);
    return reading.ledger;
}

int64_t rows_lease_time(struct kit_sql *sql)
{
    return kit_sql_number(sql, "SELECT " MICROSECONDS(
                                   "LEAST(GREATEST(SYSDATE(6), tick_at), tick_at + INTERVAL 5 SECOND)") " - offset_us "
                                                                                                        "FROM cluster");
}

int64_t rows_ticked(struct kit_sql *sql)
{
    return kit_sql_number(sql, "SELECT " MICROSECONDS("tick_at") " - offset_us FROM cluster");
}

int64_t rows_places(struct kit_sql *sql)
{
    return kit_sql_number(sql, "SELECT COUNT(*) FROM waiter");
}

static bool has_no_places(void *context)
{
    return rows_places(context) == 0;
}

bool rows_await_no_places(struct kit_sql *sql, int ms)
{
    return kit_wait_until(has_no_places, sql, ms);
}

/* ---- consistency of the tables ---- */

struct rule {
    const char *what;
    const char *count; /* counts the rows that break the rule */
    const char *table; /* the table that it needs, which a permitd from before, of a benchmark, has not; NULL: none */
};

static const struct rule rules[] = {
    {"in_use differs from the permits held",
     "SELECT COUNT(*) FROM semaphore s LEFT JOIN (SELECT p.semaphore_id, SUM(p.count) AS held FROM permit p JOIN "
     "permit_request r ON r.id = p.permit_request_id AND r.state = 1 GROUP BY p.semaphore_id) p ON p.semaphore_id = "
     "s.id WHERE s.in_use <> COALESCE(p.held, 0)",
     NULL},
    {"in_use is above the capacity", "SELECT COUNT(*) FROM semaphore WHERE in_use > capacity", NULL},
    {"a permit has no request, or one that is neither held nor ended",
     "SELECT COUNT(*) FROM permit p LEFT JOIN permit_request r ON r.id = p.permit_request_id "
     "WHERE r.id IS NULL OR r.state NOT IN (1, 2)",
     NULL},
    {"a held request has no permits",
     "SELECT COUNT(*) FROM permit_request r LEFT JOIN permit p ON p.permit_request_id = r.id "
     "WHERE r.state = 1 AND p.id IS NULL",
     NULL},
    {"a slot names a permit that is not held",
     "SELECT COUNT(*) FROM slot t LEFT JOIN permit p ON p.semaphore_id = t.semaphore_id AND p.id = t.permit_id "
     "LEFT JOIN permit_request r ON r.id = p.permit_request_id AND r.state = 1 "
     "WHERE t.permit_id <> 0 AND r.id IS NULL",
     NULL},
    {"a permit has a wrong number of slots",
     "SELECT COUNT(*) FROM permit p JOIN permit_request r ON r.id = p.permit_request_id AND r.state = 1 "
     "JOIN semaphore s ON s.id = p.semaphore_id AND s.kind = 1 "
     "LEFT JOIN (SELECT semaphore_id, permit_id, COUNT(*) AS units FROM slot WHERE permit_id <> 0 "
     "GROUP BY semaphore_id, permit_id) t ON t.semaphore_id = p.semaphore_id AND t.permit_id = p.id "
     "WHERE p.count <> COALESCE(t.units, 0)",
     NULL},
    {"`waiting` differs from the places that are asked for",
     "SELECT COUNT(*) FROM semaphore s LEFT JOIN (SELECT w.semaphore_id, COUNT(*) AS places FROM waiter w JOIN "
     "permit_request r ON r.id = w.permit_request_id WHERE r.server_id IS NOT NULL GROUP BY w.semaphore_id) q "
     "ON q.semaphore_id = s.id WHERE s.waiting <> COALESCE(q.places, 0)",
     "waiter"},
    {"a place has no request that waits with it",
     "SELECT COUNT(*) FROM waiter w LEFT JOIN permit_request r ON r.id = w.permit_request_id "
     "WHERE r.id IS NULL OR r.state <> 3 OR r.place <> w.place",
     "waiter"},
    {"a waiter that a client asks for watches a free slot",
     "SELECT COUNT(*) FROM waiter w JOIN permit_request r ON r.id = w.permit_request_id AND r.server_id IS NOT NULL "
     "JOIN slot t ON t.semaphore_id = w.semaphore_id AND t.number = w.watch WHERE w.watch <> 0 AND t.permit_id = 0",
     "waiter"},
    {"a waiting request has no place or no wants, or holds permits",
     "SELECT COUNT(*) FROM permit_request r WHERE r.state = 3 AND (r.wanted IS NULL OR r.due_at IS NULL OR "
     "NOT EXISTS (SELECT 1 FROM waiter w WHERE w.permit_request_id = r.id) OR "
     "EXISTS (SELECT 1 FROM permit p WHERE p.permit_request_id = r.id))",
     "waiter"},
    {"a token is not below its semaphore's next_permit_id",
     "SELECT COUNT(*) FROM permit p JOIN semaphore s ON s.id = p.semaphore_id WHERE p.id >= s.next_permit_id", NULL},
    {"a held permit has not one bit, in the row of its deadline and owner, or an ended one has a bit",
     "SELECT COUNT(*) FROM permit p JOIN permit_request r ON r.id = p.permit_request_id "
     "WHERE " HELD_BITS " <> (r.state = 1)",
     "held"},
    {"a past permit has no request, or is of an exchange that its request has not made",
     "SELECT COUNT(*) FROM past_permit q LEFT JOIN permit_request r ON r.id = q.permit_request_id "
     "WHERE r.id IS NULL OR r.state = 3 OR q.changes NOT BETWEEN 1 AND r.changes",
     "past_permit"},
    {"a past permit is held under its token, of which no unit was given back",
     "SELECT COUNT(*) FROM past_permit q JOIN permit p ON p.semaphore_id = q.semaphore_id AND p.id = q.id "
     "WHERE q.end_reason <> 1 OR p.permit_request_id <> q.permit_request_id OR p.count >= q.count",
     "past_permit"},
    {"a past permit ended before it was granted, or its token is not below its semaphore's next_permit_id",
     "SELECT COUNT(*) FROM past_permit q JOIN permit_request r ON r.id = q.permit_request_id "
     "JOIN semaphore s ON s.id = q.semaphore_id "
     "WHERE q.ended_at < COALESCE(q.granted_at, r.acquired_at) OR q.id >= s.next_permit_id",
     "past_permit"},
    {"a request has exchanges and no nonce of the last one, or the reverse",
     "SELECT COUNT(*) FROM permit_request WHERE (changes = 0) <> (change_nonce = '')", "past_permit"},
    {"`held` has another number of bits than there are held permits",
     "SELECT ABS(CAST((SELECT COALESCE(SUM(BIT_COUNT(bits)), 0) FROM held) AS SIGNED) - (SELECT COUNT(*) FROM permit p "
     "JOIN permit_request r ON r.id = p.permit_request_id AND r.state = 1))",
     "held"},
    {"a row of `held` has no bits", "SELECT COUNT(*) FROM held WHERE bits = 0", "held"},
    {"`held_bit` has not the 64 bits",
     "SELECT 64 - COUNT(DISTINCT n) + COALESCE(SUM(n > 63 OR mask <> 1 << n), 0) FROM held_bit", "held_bit"},
    {"a waiting request has no row of its deadline in `waiting_due`",
     "SELECT COUNT(*) FROM permit_request r LEFT JOIN waiting_due w ON w.permit_request_id = r.id "
     "AND w.due_s = " R_DUE_S " WHERE r.state = 3 AND w.due_s IS NULL",
     "waiting_due"},
    {"a row of `waiting_due` has no waiting request with its deadline",
     "SELECT COUNT(*) FROM waiting_due w LEFT JOIN permit_request r ON r.id = w.permit_request_id AND r.state = 3 "
     "AND w.due_s = " R_DUE_S " WHERE r.id IS NULL",
     "waiting_due"},
};

static const struct rule past_rules[] = {
    /* At the same time the end counts first, because one batch ends and grants. */
    {"the units held exceeded the capacity",
     "SELECT COUNT(*) FROM (SELECT s.capacity, SUM(e.units) OVER (PARTITION BY e.semaphore_id ORDER BY e.at, e.units "
     "ROWS UNBOUNDED PRECEDING) AS held FROM (SELECT p.semaphore_id, r.acquired_at AS at, p.count AS units "
     "FROM permit p JOIN permit_request r ON r.id = p.permit_request_id WHERE r.acquired_at IS NOT NULL "
     "UNION ALL SELECT p.semaphore_id, r.ended_at, -p.count FROM permit p JOIN permit_request r "
     "ON r.id = p.permit_request_id WHERE r.acquired_at IS NOT NULL) e "
     "JOIN semaphore s ON s.id = e.semaphore_id) x WHERE x.held > x.capacity",
     NULL},
    {"a later token was granted earlier",
     "SELECT COUNT(*) FROM (SELECT r.acquired_at, LAG(r.acquired_at) OVER (PARTITION BY p.semaphore_id ORDER BY p.id) "
     "AS before_it FROM permit p JOIN permit_request r ON r.id = p.permit_request_id) x "
     "WHERE x.acquired_at < x.before_it",
     NULL},
    {"a request expired before its ttl was over",
     "SELECT COUNT(*) FROM permit_request WHERE end_reason = 2 AND renewals = 0 AND "
     "server_id IS NULL AND " /* else no client was told of the grant */
     "TIMESTAMPDIFF(MICROSECOND, acquired_at, ended_at) < ttl_ms * 1000",
     "waiter"},
};

static bool has_table(struct kit_sql *sql, const char *table)
{
    return !table || kit_sql_number(sql,
                                    "SELECT COUNT(*) FROM information_schema.tables WHERE "
                                    "table_schema = 'permitd' AND table_name = '%s'",
                                    table) == 1;
}

static bool rules_hold(struct kit_sql *sql, const struct rule *list, size_t length, char message[MESSAGE_SIZE])
{
    for (size_t i = 0; i < length; i++) {
        long long count = has_table(sql, list[i].table) ? kit_sql_number(sql, "%s", list[i].count) : 0;
        if (count) {
            snprintf(message, MESSAGE_SIZE, "%s, %lld times", list[i].what, count);
            return false;
        }
    }
    return true;
}

bool rows_check(struct kit_sql *sql, char message[MESSAGE_SIZE])
{
    return rules_hold(sql, rules, sizeof(rules) / sizeof(rules[0]), message);
}

bool rows_check_past(struct kit_sql *sql, char message[MESSAGE_SIZE])
{
    return rules_hold(sql, past_rules, sizeof(past_rules) / sizeof(past_rules[0]), message);
}
