/* SPDX-License-Identifier: MIT */
/*
 * Redis or Valkey with sql/guards/redis.lua, through hiredis. The programs redis-check-rdb (Debian 12) and
 * valkey-check-rdb (Debian 13) are the server binary under another name.
 */
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kit_process.h"
#include "loading.h"
#include "stores.h"
#include "testkit.h"

enum { READY_MS = 60000, STOP_MS = 30000, WORDS_MAX = 64, KEY = 600 };

struct link {
    redisContext *redis;
    char sha[41];
};

/* A command as a list of words, which it owns. */
struct words {
    char *list[WORDS_MAX];
    size_t lengths[WORDS_MAX];
    int count;
};

static void words_add(struct words *words, char *text)
{
    KIT_CHECK(words->count < WORDS_MAX);
    words->lengths[words->count] = strlen(text);
    words->list[words->count++] = text;
}

static void words_release(struct words *words)
{
    for (int i = 0; i < words->count; i++)
        free(words->list[i]);
}

static redisReply *call(struct session *session, struct words *words)
{
    struct link *link = session->link;
    redisReply *reply = redisCommandArgv(link->redis, words->count, (const char **)words->list, words->lengths);
    words_release(words);
    if (!reply)
        kit_fail("redis: %s", link->redis->errstr);
    return reply;
}

static enum verdict judge(struct session *session, redisReply *reply)
{
    enum verdict verdict = PASSED;
    if (reply->type == REDIS_REPLY_ERROR) {
        snprintf(session->message, sizeof(session->message), "%s", reply->str);
        if (!strncmp(reply->str, "STALE ", 6))
            verdict = STALE;
        else if (!strncmp(reply->str, "INVALID ", 8))
            verdict = INVALID;
        else
            kit_fail("redis: %s", reply->str);
    }
    freeReplyObject(reply);
    return verdict;
}

static char *place_of(const struct write *write)
{
    switch (write->place) {
    case PLACE_SLOTS: return kit_copy(write->where ? write->where : "");
    case PLACE_RESOURCE: return kit_text("resource:%s", write->where);
    case PLACE_FLOOR: return kit_copy("floor");
    case PLACE_RAISE: break;
    }
    return kit_copy("raise_floor");
}

/* EVALSHA sha 1 fence token place. All other keys that the script writes are in the hash slot of the fence. */
static void words_guard(struct session *session, const struct write *write, struct words *ret_words)
{
    struct link *link = session->link;
    ret_words->count = 0;
    words_add(ret_words, kit_copy("EVALSHA"));
    words_add(ret_words, kit_copy(link->sha));
    words_add(ret_words, kit_copy("1"));
    words_add(ret_words, kit_text("permit_fence:{%s}", write->semaphore));
    words_add(ret_words, kit_text("%lld", (long long)write->token));
    words_add(ret_words, place_of(write));
}

static enum verdict guard(struct session *session, const struct write *write)
{
    struct words words;
    words_guard(session, write, &words);
    return judge(session, call(session, &words));
}

static enum verdict write_whole(struct session *session, const struct write *write)
{
    struct words words;
    uint32_t slots[8];
    size_t count = slots_of(write->where, slots, 8);
    words_guard(session, write, &words);
    for (size_t i = 0; i < count; i++) {
        words_add(&words, kit_copy("3"));
        words_add(&words, kit_copy("RPUSH"));
        words_add(&words, kit_text("line:{%s}:%u", write->semaphore, slots[i]));
        words_add(&words, kit_text("%lld", (long long)write->token));
    }
    return judge(session, call(session, &words));
}

static enum verdict update(struct session *session, const struct write *write, unsigned row)
{
    struct words words = {.count = 0};
    if (write) {
        words_guard(session, write, &words);
        words_add(&words, kit_copy("2"));
    }
    words_add(&words, kit_copy("INCR"));
    words_add(&words, kit_text("stock:%u", row));
    return judge(session, call(session, &words));
}

static uint64_t mark(struct session *session, const struct write *write)
{
    struct words words = {.count = 0};
    words_add(&words, kit_copy("HGET"));
    words_add(&words, kit_text("permit_fence:{%s}", write->semaphore));
    words_add(&words, write->place == PLACE_RAISE ? kit_copy("floor") : place_of(write));
    redisReply *reply = call(session, &words);
    uint64_t value = reply->type == REDIS_REPLY_STRING ? strtoull(reply->str, NULL, 10) : 0;
    freeReplyObject(reply);
    return value;
}

static size_t history(struct session *session, const char *semaphore, unsigned slot, uint64_t **ret_tokens)
{
    struct words words = {.count = 0};
    words_add(&words, kit_copy("LRANGE"));
    words_add(&words, kit_text("line:{%s}:%u", semaphore, slot));
    words_add(&words, kit_copy("0"));
    words_add(&words, kit_copy("-1"));
    redisReply *reply = call(session, &words);
    KIT_CHECK(reply->type == REDIS_REPLY_ARRAY);
    uint64_t *tokens = calloc(reply->elements + 1, sizeof(*tokens));
    KIT_CHECK(tokens);
    for (size_t i = 0; i < reply->elements; i++)
        tokens[i] = strtoull(reply->element[i]->str, NULL, 10);
    size_t count = reply->elements;
    freeReplyObject(reply);
    *ret_tokens = tokens;
    return count;
}

static void open_session(struct session *session)
{
    struct link *link = calloc(1, sizeof(*link));
    KIT_CHECK(link);
    session->link = link;
    link->redis = redisConnectUnix(session->store->socket);
    if (!link->redis || link->redis->err)
        kit_fail("redis: %s", link->redis ? link->redis->errstr : "no memory");
    char *path = kit_text("%s/sql/guards/redis.lua", PERMIT_SOURCE_DIR);
    struct words words = {.count = 0};
    words_add(&words, kit_copy("SCRIPT"));
    words_add(&words, kit_copy("LOAD"));
    words_add(&words, kit_read_file(path));
    redisReply *reply = call(session, &words);
    if (reply->type != REDIS_REPLY_STRING)
        kit_fail("redis: %s", reply->str);
    snprintf(link->sha, sizeof(link->sha), "%s", reply->str);
    freeReplyObject(reply);
    free(path);
}

static void close_session(struct session *session)
{
    struct link *link = session->link;
    redisFree(link->redis);
    free(link);
}

/* ---- the server ---- */

static bool answers(void *context)
{
    struct store *store = context;
    redisContext *redis = redisConnectUnix(store->socket);
    bool connected = redis && !redis->err;
    redisFree(redis);
    return connected;
}

static const char *first_installed(const char *const *names)
{
    while (*names && access(*names, X_OK))
        names++;
    return *names;
}

static const char *const servers[] = {"/usr/bin/redis-server", "/usr/bin/valkey-server", NULL};
static const char *const tools[] = {"/usr/bin/redis-check-rdb", "/usr/bin/valkey-check-rdb", NULL};

bool store_redis_installed(void)
{
    return first_installed(servers) || first_installed(tools);
}

/* The program runs as the server if argv[0] is the server's name. */
static char *server_program(const struct store *store)
{
    if (first_installed(servers))
        return kit_copy(first_installed(servers));
    const char *tool = first_installed(tools);
    if (!tool)
        kit_fail("redis: neither Redis nor Valkey is installed");
    char *name = kit_text("%s/%s-server", store->directory, strstr(tool, "valkey") ? "valkey" : "redis");
    KIT_CHECK(!symlink(tool, name));
    return name;
}

static struct store *start(bool durable)
{
    struct store *store = calloc(1, sizeof(*store));
    KIT_CHECK(store);
    store->kind = &store_redis;
    store->name = store->kind->name;
    store->directory = kit_path("redis");
    store->socket = kit_text("%s/s", store->directory);
    KIT_CHECK(!mkdir(store->directory, 0700));
    char *program = server_program(store);
    char *log = kit_text("%s/log", store->directory);
    const char *const argv[] = {
        program,          "--port", "0", "--unixsocket", store->socket,          "--dir",
        store->directory, "--save", "",  "--appendonly", durable ? "yes" : "no", "--appendfsync",
        "always",         NULL};
    store->pid = kit_spawn(argv, -1, log);
    if (!kit_wait_until(answers, store, READY_MS))
        kit_fail("redis does not answer");
    free(program);
    free(log);
    return store;
}

static void stop(struct store *store)
{
    kill(store->pid, SIGTERM);
    if (kit_wait_pid(store->pid, STOP_MS) == -1)
        kit_fail("redis does not stop");
    free(store->socket);
    free(store->directory);
    free(store);
}

const struct store_kind store_redis = {.name = "redis",
                                       .start = start,
                                       .stop = stop,
                                       .open = open_session,
                                       .close = close_session,
                                       .guard = guard,
                                       .write = write_whole,
                                       .update = update,
                                       .history = history,
                                       .mark = mark,
                                       .check_loading = loading_redis};
