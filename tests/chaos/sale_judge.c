/* SPDX-License-Identifier: MIT */
/* Compares orders with sales, both with what the shops know, and units with rows. */
#include "sale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "rows.h"

enum { SETTLED_MS = 180000, LINES_MAX = 20, STATEMENT_SIZE = 2048 };

#define IS_SALE "r.state=1 AND r.confirmed_at IS NOT NULL AND r.errand=0 AND r.due_at IS NULL"

/* Rules as statements: each row is a violation, and its first column says which. */
static const struct rule {
    const char *name, *statement;
} rules[] = {
    {"order without a sale", "SELECT o.hold FROM shop.orders o LEFT JOIN permitd.permit_request r"
                             " ON r.external_id=o.hold AND " IS_SALE " WHERE r.id IS NULL"},
    {"sale without an order",
     "SELECT r.external_id FROM permitd.permit_request r LEFT JOIN shop.orders o ON o.hold=r.external_id"
     " WHERE r.state=1 AND r.confirmed_at IS NOT NULL AND o.hold IS NULL"},
    {"hold that has neither ended nor been sold",
     "SELECT external_id FROM permitd.permit_request WHERE state<>2 AND confirmed_at IS NULL"},
    {"sold hold that has ended, and its order is there",
     "SELECT r.external_id FROM permitd.permit_request r JOIN shop.orders o ON o.hold=r.external_id WHERE r.state=2"},
    {"errand that is not settled", "SELECT external_id FROM permitd.permit_request WHERE errand<>0"},
    {"row of errand", "SELECT permit_request_id FROM permitd.errand WHERE permit_request_id>0"},
    {"semaphore whose units are not those of the orders (in_use, confirmed, sold, capacity)",
     "SELECT CONCAT(s.name,': ',s.in_use,' ',s.confirmed,' ',COALESCE(SUM(l.units),0),' ',s.capacity)"
     " FROM permitd.semaphore s LEFT JOIN"
     " (SELECT first AS n, first_units AS units FROM shop.orders"
     " UNION ALL SELECT second, second_units FROM shop.orders) AS l ON s.name=CONCAT('s',l.n)"
     " GROUP BY s.id, s.name, s.in_use, s.confirmed, s.capacity"
     " HAVING s.in_use<>COALESCE(SUM(l.units),0) OR s.confirmed<>s.in_use OR s.in_use>s.capacity"},
    {"semaphore with other slots than units",
     "SELECT CONCAT(s.name,': ',s.in_use,' ',COUNT(t.number)) FROM permitd.semaphore s LEFT JOIN permitd.slot t"
     " ON t.semaphore_id=s.id AND t.permit_id<>0 WHERE s.kind=1 GROUP BY s.id, s.name, s.in_use"
     " HAVING s.in_use<>COUNT(t.number)"},
};

struct lines {
    const struct sale *sale;
    const char *name;
    unsigned count;
    bool *ordered; /* by number of a purchase */
    unsigned uncertain[2];
};

static void print_line(void *context, char **columns)
{
    struct lines *lines = context;
    if (lines->count++ < LINES_MAX)
        printf("sale: violation: %s: %s\n", lines->name, columns[0]);
}

static void take_order(void *context, char **columns)
{
    struct lines *lines = context;
    const char *number = strrchr(columns[0], '-');
    KIT_CHECK(number);
    lines->ordered[strtoul(number + 1, NULL, 10)] = true;
}

static void judge_told(const struct sale *sale, unsigned purchase, unsigned record, bool ordered)
{
    static const char *const names[] = {"nothing", "a sale", "its refund"};
    bool refunded = record == REFUNDING || record == REFUNDED;
    enum told expected = ordered ? TOLD_SOLD : refunded ? TOLD_ENDED : TOLD_NOTHING;
    unsigned told = atomic_load(&sale->hall->told[purchase]);
    if (told != expected)
        sale_complain(sale, "the feed has told %s of purchase %u, and there was %s", names[told], purchase,
                      names[expected]);
}

/* Compares the orders with the records of the shops. Returns the number of violations. */
static unsigned judge_records(const struct sale *sale, struct kit_sql *sql)
{
    /* Whether an order must be there: 1 yes, 0 no, -1 either. */
    static const int expected[RECORDS] = {[UNCERTAIN] = -1, [SOLD] = 1, [REFUNDING] = -1};
    static const char *const names[RECORDS] = {"not sold", "uncertain", "sold", "refunding", "refunded", "released"};
    unsigned claimed = atomic_load(&sale->hall->claimed), violations = 0;
    struct lines lines = {.sale = sale, .ordered = calloc(claimed + 1, sizeof(bool))};
    KIT_CHECK(lines.ordered);
    kit_sql_each(sql, "SELECT hold FROM shop.orders", take_order, &lines);
    for (unsigned i = 0; i < claimed; i++) {
        unsigned record = atomic_load(&sale->hall->records[i]);
        judge_told(sale, i, record, lines.ordered[i]);
        if (expected[record] == -1)
            lines.uncertain[lines.ordered[i]]++;
        else if (expected[record] != lines.ordered[i] && violations++ < LINES_MAX)
            printf("sale: violation: purchase %u is %s, and its order is %sthere\n", i, names[record],
                   lines.ordered[i] ? "" : "not ");
    }
    printf("sale: of transactions whose shop died at COMMIT, %u orders are there and %u are not\n", lines.uncertain[1],
           lines.uncertain[0]);
    free(lines.ordered);
    return violations;
}

static bool all_is_settled(void *context)
{
    return kit_sql_number(context, "SELECT (SELECT COUNT(*) FROM permitd.errand WHERE permit_request_id>0) +"
                                   " (SELECT COUNT(*) FROM permitd.permit_request WHERE errand<>0"
                                   " OR (state<>2 AND confirmed_at IS NULL))") == 0;
}

struct feed_end {
    const struct sale *sale;
    struct kit_sql *sql;
};

static bool feed_is_read(void *context)
{
    const struct feed_end *end = context;
    int64_t head =
        kit_sql_number(end->sql, "SELECT IF(seq=durable AND NOT EXISTS(SELECT 1 FROM permitd.feed WHERE seq IS"
                                 " NULL),seq,-1) FROM permitd.feed_head");
    return head >= 0 && atomic_load(&end->sale->hall->feed_read) == (unsigned long long)head;
}

/* Two rounds of the audit on the final rows, at each permitd. */
static unsigned judge_audit(const struct sale *sale)
{
    unsigned ports[PERMITDS];
    for (unsigned i = 0; i < PERMITDS; i++)
        ports[i] = atomic_load(&sale->hall->ports[i]);
    double drifts = permitd_audit(ports, PERMITDS);
    if (drifts != 0)
        printf("sale: violation: the audit has found %.0f drifts\n", drifts);
    return drifts != 0;
}

unsigned sale_judge(const struct sale *sale)
{
    struct kit_sql *sql = kit_sql_open(sale->database->socket, "permitd");
    char message[MESSAGE_SIZE] = "";
    int64_t began = kit_now_us();
    (void)kit_wait_until(all_is_settled, sql, SETTLED_MS); /* the rules say what is not */
    printf("sale: all was settled %.1f s after the last purchase\n", (double)(kit_now_us() - began) / 1e6);
    struct feed_end end = {sale, sql};
    began = kit_now_us();
    if (!kit_wait_until(feed_is_read, &end, SETTLED_MS))
        sale_complain(sale, "the reader of the feed does not come to its end");
    printf("sale: the reader of the feed has seen its %llu events %.1f s later\n", atomic_load(&sale->hall->feed_read),
           (double)(kit_now_us() - began) / 1e6);
    unsigned violations = judge_records(sale, sql);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        struct lines lines = {.sale = sale, .name = rules[i].name};
        kit_sql_each(sql, rules[i].statement, print_line, &lines);
        printf("sale: %s: %u\n", rules[i].name, lines.count);
        violations += lines.count;
    }
    if (!rows_check(sql, message))
        violations++, printf("sale: violation: %s\n", message);
    kit_sql_close(sql);
    return violations + judge_audit(sale);
}
