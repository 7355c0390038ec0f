/* SPDX-License-Identifier: MIT */
#include "api/principals.h"

#include <stdatomic.h>
#include <strings.h>
#include <unistd.h>

struct principals {
    struct credentials credentials;
    uint64_t generation;
    atomic_size_t references;
};

const char *auth_result_word(enum auth_result result)
{
    static const char *const words[AUTH_RESULTS] = {"ok", "missing", "malformed", "unknown", "expired", "conflict"};
    return words[result];
}

struct principals *principals_load(const char *path, struct buf *message)
{
    return principals_load_of(path, geteuid(), message);
}

struct principals *principals_load_of(const char *path, uid_t user, struct buf *message)
{
    static _Atomic uint64_t last_generation;
    struct principals *principals = calloc(1, sizeof *principals);
    if (!principals) {
        buf_printf(message, "%s: no memory", path);
        return NULL;
    }
    if (!credentials_load(path, user, &principals->credentials, message)) {
        free(principals);
        return NULL;
    }
    principals->generation = atomic_fetch_add(&last_generation, 1) + 1;
    atomic_init(&principals->references, 1);
    return principals;
}

struct principals *principals_ref(struct principals *principals)
{
    atomic_fetch_add_explicit(&principals->references, 1, memory_order_relaxed);
    return principals;
}

void principals_unref(struct principals *principals)
{
    if (!principals || atomic_fetch_sub(&principals->references, 1) > 1)
        return;
    credentials_release(&principals->credentials);
    free(principals);
}

bool principals_have_namespace(const struct principals *principals, struct bytes namespace)
{
    const struct credential_list *list = &principals->credentials.principals;
    for (size_t i = 0; i < list->count; i++)
        if (bytes_equal(list->items[i].principal->namespace, namespace))
            return true;
    return false;
}

size_t principals_count(const struct principals *principals)
{
    return principals->credentials.principals.count;
}

uint64_t principals_generation(const struct principals *principals)
{
    return principals->generation;
}

int64_t principals_until(const struct principals *principals, int64_t now)
{
    return credentials_until(&principals->credentials, now);
}

struct bytes principals_token_of_header(const char *value)
{
    static const char scheme[] = "Bearer ";
    struct bytes token = {NULL, 0};
    if (strncasecmp(value, scheme, strlen(scheme)) == 0) {
        token = bytes_of(value + strlen(scheme));
        if (!token_is_well_formed(token))
            token = (struct bytes){NULL, 0};
    }
    return token;
}

const struct principal *principals_of_token(const struct principals *principals, struct bytes token, int64_t now,
                                            int64_t *ret_until, enum auth_result *ret_result)
{
    unsigned char digest[DIGEST_SIZE];
    if (!token_is_well_formed(token)) {
        *ret_result = AUTH_MALFORMED;
        return NULL;
    }
    const struct credential *found =
        digest_sha256(token, digest) ? credentials_of_digest(&principals->credentials, digest) : NULL;
    if (!found || found->until <= now) {
        *ret_result = found ? AUTH_EXPIRED : AUTH_UNKNOWN;
        return NULL;
    }
    *ret_until = found->until;
    *ret_result = AUTH_OK;
    return found->principal;
}

enum auth_result principals_of_certificate(const struct principals *principals, const char *const *names, size_t count,
                                           const struct principal **ret_principal)
{
    const struct principal *principal;
    if (count == 0)
        return AUTH_MISSING;
    if (!credentials_of_certificate(&principals->credentials, names, count, &principal))
        return AUTH_CONFLICT;
    if (!principal)
        return AUTH_UNKNOWN;
    *ret_principal = principal;
    return AUTH_OK;
}

const struct principal *principals_of_user(const struct principals *principals, uid_t uid)
{
    return credentials_of_user(&principals->credentials, uid);
}
