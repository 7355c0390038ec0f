/* SPDX-License-Identifier: MIT */
/* GET /v1/whoami: the principal of the client, its role and its scope. */
#include "api/access.h"
#include "api/json_out.h"
#include "api/routes.h"
#include "base/clock.h"

static void write_rights(struct buf *out, unsigned rights)
{
    const char *between = "";
    buf_append_text(out, ",\"rights\":[");
    for (unsigned right = 1; right <= RIGHT_METRICS; right <<= 1) {
        if (!(rights & right))
            continue;
        buf_printf(out, "%s\"%s\"", between, right_word(right));
        between = ",";
    }
    buf_append_char(out, ']');
}

/* Writes the scope as the credentials file has it: a prefix ends in *. */
static void write_scope(struct exchange *exchange, const struct scope *scope)
{
    struct buf *out = &exchange->answer.body;
    buf_append_text(out, ",\"semaphores\":[");
    for (size_t i = 0; i < scope->count; i++) {
        const struct scope_entry *entry = &scope->entries[i]; /* names of semaphores need no escaping */
        buf_printf(out, "%s\"%.*s%s\"", i ? "," : "", (int)entry->text.length, entry->text.data,
                   entry->is_prefix ? "*" : "");
    }
    buf_append_char(out, ']');
}

static void write_quotas(struct buf *out, const struct quotas *quotas)
{
    const char *between = "";
    buf_append_text(out, ",\"quotas\":{");
    for (enum quota quota = 0; quota < QUOTA_COUNT; quota++) {
        if (!quotas->limits[quota])
            continue;
        buf_printf(out, "%s\"%s\":%lld", between, quota_word(quota), (long long)quotas->limits[quota]);
        between = ",";
    }
    buf_append_char(out, '}');
}

/* Without credentials every client may do everything, and has no name. */
bool access_whoami(struct exchange *exchange)
{
    static const struct scope_entry everything = {{"", 0}, true};
    static const struct scope all = {&everything, 1};
    static const struct quotas none;
    struct buf *out = &exchange->answer.body;
    const struct principal *principal = access_principal(exchange);
    int64_t until = access_until(exchange);
    buf_append_text(out, "{\"principal\":");
    if (principal)
        write_text(out, bytes_of(principal->name));
    else
        buf_append_text(out, "null");
    if (principal && principal->namespace.length)
        write_member_text(out, "namespace", principal->namespace);
    write_rights(out, principal ? principal->rights : RIGHT_ALL);
    write_scope(exchange, principal ? &principal->scope : &all);
    write_quotas(out, principal ? &principal->quotas : &none);
    buf_append_text(out, ",\"until\":");
    if (until == INT64_MAX)
        buf_append_text(out, "null");
    else
        write_time(out, until * US_PER_SECOND);
    buf_append_char(out, '}');
    return true;
}
