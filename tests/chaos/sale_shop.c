/* SPDX-License-Identifier: MIT */
/*
 * A shop: acquires over HTTP, and sells in the transaction that writes its order. It repeats a transaction after a
 * deadlock and after a lost connection, as docs/protocol.md asks of it ("Sales in SQL").
 */
#include "sale.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TTL_MS = 2000,
    GRANT_LATE_MS = 500, /* a deadline is so much later than the grant plus the ttl */
    HTTP_MS = 10000,
    CALM_MS = 120000, /* longest time until permitd or the database are there again */
    AFTER_SENT_US = 1500,
    TEXT_SIZE = 512,
};

/* Errors of the server and of the client library. */
enum {
    LOCK_TIMEOUT = 1205,
    DEADLOCK = 1213,
    CHANGED_SINCE = 1020,
    DUPLICATE = 1062,
    RAISED = 1644,
    SHUTDOWN = 1053,
    CLIENT = 2000
};

/* What a purchase does after its acquire. share: of 100. */
static const struct plan {
    unsigned share;
    enum {
        BUY,
        REFUND,     /* sells, then refunds in a second transaction */
        GIVE_BACK,  /* permit_release, with no order */
        ROLL_BACK,  /* order and sale, then ROLLBACK */
        ROLL_TO,    /* order and sale, then ROLLBACK TO SAVEPOINT and COMMIT */
        BUY_SLOWLY, /* the transaction stays open for longer than the ttl */
        BUY_LATE,   /* the call is sent about when the hold expires */
        RACE,       /* another client renews or releases over HTTP while the transaction is open */
    } what;
} plans[] = {{64, BUY},    {12, REFUND},    {6, GIVE_BACK}, {6, ROLL_BACK},
             {5, ROLL_TO}, {2, BUY_SLOWLY}, {4, BUY_LATE},  {1, RACE}};

struct shop {
    struct sale *sale;
    struct kit_http http[PERMITDS];
    struct kit_sql *sql; /* NULL: not connected */
    uint64_t random;
    unsigned permitd; /* the one it talks to */
};

struct purchase {
    unsigned number, semaphores[2], units[2]; /* units[1] 0: one semaphore */
    int what;
    bool raced, let_in; /* another client renewed or released it over HTTP: tried; was answered 2xx */
    char key[KEY_SIZE];
};

static unsigned dice(struct shop *shop, unsigned below)
{
    uint64_t x = shop->random += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (unsigned)((x ^ (x >> 31)) % below);
}

static void count(struct shop *shop, enum tally tally)
{
    atomic_fetch_add(&shop->sale->hall->tallies[tally], 1);
}

static void record(struct shop *shop, const struct purchase *purchase, enum record what)
{
    atomic_store(&shop->sale->hall->records[purchase->number], (uint8_t)what);
}

static enum record recorded(struct shop *shop, const struct purchase *purchase)
{
    return (enum record)atomic_load(&shop->sale->hall->records[purchase->number]);
}

void sale_complain(const struct sale *sale, const char *format, ...)
{
    char text[TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (atomic_fetch_add(&sale->hall->complaints, 1) < 50)
        dprintf(STDOUT_FILENO, "sale: violation: %s\n", text);
}

/* ---- kills ---- */

/* If a kill is due at this point, does it. That at a sent statement comes at a random moment of its work. */
static void reach(struct shop *shop, enum point point)
{
    struct hall *hall = shop->sale->hall;
    int number = atomic_load(&hall->armed);
    if (number < 0 || kill_point(number) != point || !atomic_compare_exchange_strong(&hall->armed, &number, -1))
        return;
    if (point == ACQUIRE_SENT || point == BEGIN_SENT || point == WRITE_SENT || point == CALL_SENT ||
        point == COMMIT_SENT) {
        int64_t end = kit_now_us() + dice(shop, AFTER_SENT_US);
        while (kit_now_us() < end)
            ;
    }
    enum victim victim = kill_victim(number);
    pid_t pid = victim == SHOP      ? getpid()
                : victim == PERMITD ? atomic_load(&hall->permitd_pids[shop->permitd])
                                    : atomic_load(&hall->database_pid);
    atomic_store(&hall->struck_permitd, (int)shop->permitd);
    if (victim == SHOP)
        atomic_store(&hall->struck, number);
    kill(pid, SIGKILL);
    atomic_store(&hall->struck, number);
}

/* ---- HTTP ---- */

static struct kit_http *connection(struct shop *shop)
{
    struct kit_http *http = &shop->http[shop->permitd];
    unsigned port = atomic_load(&shop->sale->hall->ports[shop->permitd]);
    if (http->port != port) {
        kit_http_close(http);
        *http = kit_http(port);
        http->timeout_ms = HTTP_MS;
    }
    return http;
}

/* Returns the status of one exchange; 0: no answer. */
static int ask(struct shop *shop, const char *method, const char *path, const char *body, bool acquires)
{
    struct reply reply = {0};
    struct kit_http *http = connection(shop);
    if (!kit_http_send(http, method, path, NULL, body))
        kit_sleep_ms(5);
    if (acquires)
        reach(shop, ACQUIRE_SENT);
    (void)kit_http_receive(http, method, &reply);
    int status = reply.status;
    reply_release(&reply);
    return status;
}

/* Repeats the acquire, at either permitd, until it is granted or refused. */
static bool acquire(struct shop *shop, struct purchase *purchase)
{
    char body[TEXT_SIZE], second[128] = "";
    int64_t end = kit_now_us() + CALM_MS * 1000LL;
    if (purchase->units[1])
        snprintf(second, sizeof second, ",{\"semaphore\":\"s%u\",\"count\":%u}", purchase->semaphores[1],
                 purchase->units[1]);
    snprintf(body, sizeof body,
             "{\"external_id\":\"%s\",\"ttl\":\"%dms\",\"permits\":[{\"semaphore\":\"s%u\",\"count\":%u}%s]}",
             purchase->key, TTL_MS, purchase->semaphores[0], purchase->units[0], second);
    for (;;) {
        int status = ask(shop, "POST", "/v1/requests", body, true);
        if (status == 200 || status == 201) {
            count(shop, GRANTS);
            reach(shop, ACQUIRED);
            return true;
        }
        if (status == 423) {
            count(shop, FULL);
            return false;
        }
        if (status == 409 || status == 410) /* a repeat: it was granted, and has expired by now */
            return false;
        if (status && status != 503 && status != 504 && status != 429)
            sale_complain(shop->sale, "acquire of %s: status %d", purchase->key, status);
        if (kit_now_us() > end) {
            sale_complain(shop->sale, "acquire of %s: no answer", purchase->key);
            return false;
        }
        shop->permitd = (shop->permitd + 1) % PERMITDS;
        kit_sleep_ms(10);
    }
}

/* As another client of the key: renews or releases. The row is locked, so neither may happen. */
static void race(struct shop *shop, struct purchase *purchase)
{
    char path[TEXT_SIZE];
    bool renews = dice(shop, 2);
    snprintf(path, sizeof path, "/v1/requests/%s%s", purchase->key, renews ? "/renew" : "");
    purchase->raced = true;
    count(shop, RACED);
    int status = ask(shop, renews ? "POST" : "DELETE", path, renews ? "{}" : NULL, false);
    purchase->let_in = status / 100 == 2;
    if (status == 409)
        count(shop, KEPT_OUT);
}

/* ---- SQL ---- */

static void hang_up(struct shop *shop)
{
    kit_sql_close(shop->sql);
    shop->sql = NULL;
}

/* Returns the error of a statement; 0: success. point: when it is sent; POINTS: none. */
__attribute__((format(printf, 3, 4))) static unsigned say(struct shop *shop, enum point point, const char *format, ...)
{
    char text[TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!kit_sql_send(shop->sql, text))
        return CLIENT;
    if (point < POINTS)
        reach(shop, point);
    unsigned error = kit_sql_receive(shop->sql);
    if (!error && point < POINTS)
        reach(shop, (enum point)(point + 1));
    return error;
}

static unsigned commit(struct shop *shop, const struct purchase *purchase, enum record meanwhile)
{
    record(shop, purchase, meanwhile);
    return say(shop, COMMIT_SENT, "COMMIT");
}

/* Order and sale. Returns the first error. */
static unsigned buy(struct shop *shop, struct purchase *purchase)
{
    unsigned error = say(shop, BEGIN_SENT, "START TRANSACTION");
    if (!error && purchase->what == ROLL_TO)
        error = say(shop, POINTS, "SAVEPOINT before_order");
    if (!error)
        error = say(shop, WRITE_SENT, "INSERT INTO shop.orders VALUES ('%s',%u,%u,%u,%u)", purchase->key,
                    purchase->semaphores[0], purchase->units[0], purchase->semaphores[1], purchase->units[1]);
    if (!error)
        error = say(shop, CALL_SENT, "CALL permitd.permit_confirm('%s')", purchase->key);
    if (error)
        return error;
    if (purchase->what == BUY_SLOWLY)
        kit_sleep_ms(TTL_MS + GRANT_LATE_MS + (int)dice(shop, 3000));
    purchase->let_in = false;
    if (purchase->what == RACE)
        race(shop, purchase);
    if (purchase->what == ROLL_BACK)
        return say(shop, POINTS, "ROLLBACK");
    if (purchase->what == ROLL_TO) {
        error = say(shop, POINTS, "ROLLBACK TO SAVEPOINT before_order");
        return error ? error : say(shop, COMMIT_SENT, "COMMIT");
    }
    error = commit(shop, purchase, UNCERTAIN);
    if (!error && purchase->let_in)
        sale_complain(shop->sale, "%s was renewed or released while its transaction was open", purchase->key);
    return error;
}

static unsigned give_back(struct shop *shop, struct purchase *purchase)
{
    unsigned error = say(shop, BEGIN_SENT, "START TRANSACTION");
    if (!error)
        error = say(shop, CALL_SENT, "CALL permitd.permit_release('%s')", purchase->key);
    return error ? error : say(shop, COMMIT_SENT, "COMMIT");
}

static unsigned refund(struct shop *shop, struct purchase *purchase)
{
    unsigned error = say(shop, BEGIN_SENT, "START TRANSACTION");
    if (!error)
        error = say(shop, WRITE_SENT, "DELETE FROM shop.orders WHERE hold='%s'", purchase->key);
    if (!error)
        error = say(shop, CALL_SENT, "CALL permitd.permit_refund('%s')", purchase->key);
    return error ? error : commit(shop, purchase, REFUNDING);
}

static bool connect_shop(struct shop *shop)
{
    int64_t end = kit_now_us() + CALM_MS * 1000LL;
    while (!shop->sql) {
        shop->sql = kit_sql_try_open(shop->sale->database->socket, NULL);
        if (!shop->sql && kit_now_us() > end) {
            sale_complain(shop->sale, "the database does not come back");
            return false;
        }
        if (!shop->sql)
            kit_sleep_ms(10);
    }
    return true;
}

/* Runs the transaction until it has succeeded (0) or is refused (its error). */
static unsigned run(struct shop *shop, struct purchase *purchase,
                    unsigned (*transaction)(struct shop *shop, struct purchase *purchase))
{
    while (connect_shop(shop)) {
        unsigned error = transaction(shop, purchase);
        if (error >= CLIENT || error == SHUTDOWN) {
            count(shop, RECONNECTS);
            hang_up(shop);
            continue;
        }
        if (!error)
            return 0;
        if (error == RAISED || error == DUPLICATE) {
            /* The caller reads the message, so the transaction ends with the next statement of this session. */
            return error;
        }
        if (error != DEADLOCK && error != LOCK_TIMEOUT && error != CHANGED_SINCE)
            sale_complain(shop->sale, "%s: %u %s", purchase->key, error, kit_sql_message(shop->sql));
        count(shop, CONFLICTS);
        if (kit_sql_try(shop->sql, "ROLLBACK"))
            hang_up(shop);
    }
    return CLIENT;
}

/* A refusal may only say that the hold has ended: by its ttl, or by the client that raced. */
static void check_refusal(struct shop *shop, const struct purchase *purchase)
{
    const char *message = kit_sql_message(shop->sql);
    if (!strcmp(message, "permit: ended (expired)"))
        count(shop, EXPIRED);
    else if (strcmp(message, "permit: ended (released)") != 0 || !purchase->raced)
        sale_complain(shop->sale, "%s is refused: %s", purchase->key, message);
}

/* Returns true if the order is sold. */
static bool sell(struct shop *shop, struct purchase *purchase)
{
    unsigned error = run(shop, purchase, buy);
    bool sent = recorded(shop, purchase) == UNCERTAIN;
    if (error == CLIENT)
        return false;
    if (error == RAISED)
        check_refusal(shop, purchase);
    if (error == DUPLICATE && !sent)
        sale_complain(shop->sale, "the order of %s is there, and no COMMIT was sent", purchase->key);
    bool sold = sent && (!error || error == DUPLICATE);
    /* Refused after a COMMIT without an answer: the order could be inserted again, so that COMMIT had failed. */
    record(shop, purchase, sold ? SOLD : NOT_SOLD);
    if (error && kit_sql_try(shop->sql, "ROLLBACK"))
        hang_up(shop);
    if (sold) {
        count(shop, SALES);
        if (purchase->what == BUY_SLOWLY)
            count(shop, SLOW);
    } else if (!error) {
        count(shop, ROLLBACKS);
    }
    return sold;
}

static void end_hold(struct shop *shop, struct purchase *purchase)
{
    unsigned error = run(shop, purchase, give_back);
    if (error == RAISED)
        sale_complain(shop->sale, "permit_release of %s is refused: %s", purchase->key, kit_sql_message(shop->sql));
    if (error)
        return;
    record(shop, purchase, RELEASED);
    count(shop, RELEASES);
}

static void undo_sale(struct shop *shop, struct purchase *purchase)
{
    unsigned error = run(shop, purchase, refund);
    if (error == RAISED)
        sale_complain(shop->sale, "permit_refund of %s is refused: %s", purchase->key, kit_sql_message(shop->sql));
    if (error)
        return;
    record(shop, purchase, REFUNDED);
    count(shop, REFUNDS);
}

static int choose(struct shop *shop)
{
    unsigned at = dice(shop, 100), i = 0;
    while (at >= plans[i].share)
        at -= plans[i++].share;
    return (int)plans[i].what;
}

static void purchase_run(struct shop *shop, unsigned number)
{
    struct purchase purchase = {.number = number, .what = choose(shop)};
    purchase.semaphores[0] = dice(shop, SEMAPHORES);
    purchase.units[0] = 1 + dice(shop, 3);
    purchase.semaphores[1] = (purchase.semaphores[0] + 1 + dice(shop, SEMAPHORES - 1)) % SEMAPHORES;
    purchase.units[1] = dice(shop, 2);
    sale_key(shop->sale, number, purchase.key);
    shop->permitd = dice(shop, PERMITDS);
    if (!acquire(shop, &purchase))
        return;
    if (purchase.what == BUY_LATE)
        kit_sleep_ms(TTL_MS + GRANT_LATE_MS - 300 + (int)dice(shop, 900));
    if (purchase.what == GIVE_BACK)
        end_hold(shop, &purchase);
    else if (sell(shop, &purchase) && purchase.what == REFUND)
        undo_sale(shop, &purchase);
}

void sale_key(const struct sale *sale, unsigned number, char key[KEY_SIZE])
{
    snprintf(key, KEY_SIZE, "s%llu-%u", (unsigned long long)sale->seed, number);
}

void shop_run(struct sale *sale, uint64_t random)
{
    struct shop shop = {.sale = sale, .random = random};
    for (unsigned i = 0; i < PERMITDS; i++)
        shop.http[i] = kit_http(0);
    while (!atomic_load(&sale->hall->closing)) {
        unsigned number = atomic_fetch_add(&sale->hall->claimed, 1);
        if (number >= RECORDS_MAX) {
            sale_complain(shop.sale, "more than %d purchases", RECORDS_MAX);
            break;
        }
        purchase_run(&shop, number);
    }
    for (unsigned i = 0; i < PERMITDS; i++)
        kit_http_close(&shop.http[i]);
    hang_up(&shop);
}
