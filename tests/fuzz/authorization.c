/* SPDX-License-Identifier: MIT */
/*
 * The value of a header Authorization: its token, and the principal of the token. The first byte is the time, the rest
 * is the value.
 */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/principals.h"
#include "fuzz.h"

enum { ENDS_AT = 128 * 86400 }; /* 1970-05-09, the end of the 8th of May */

#define LASTING "pmt_LASTING-LASTING-LASTING-LASTING-LASTING-LAS"
#define ENDING  "pmt_ending_ending_ending_ending_ending_ending_e"
_Static_assert(sizeof LASTING == TOKEN_SIZE + 1 && sizeof ENDING == TOKEN_SIZE + 1, "both are well-formed");

static void append_token(struct buf *out, const char *name, struct bytes token, const char *until)
{
    unsigned char digest[DIGEST_SIZE];
    MUST(digest_sha256(token, digest));
    buf_printf(out, "[%s]\nrole = metrics\ntoken = sha256:", name);
    buf_append_hex(out, digest, sizeof digest);
    buf_printf(out, "%s\n", until);
}

/* Loads a file with both tokens. */
static struct principals *load(void)
{
    char path[64];
    struct buf text, message;
    buf_init(&text, 4096);
    buf_init(&message, 4096);
    append_token(&text, "lasting", BYTES(LASTING), "");
    append_token(&text, "ending", BYTES(ENDING), " until 1970-05-08");
    int fd = memfd_create("credentials", MFD_CLOEXEC);
    MUST(fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, text.data, text.length) == (ssize_t)text.length);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct principals *principals = principals_load(path, &message);
    MUST(principals);
    close(fd);
    buf_release(&text);
    buf_release(&message);
    return principals;
}

/* Returns true if the value is "Bearer ", in any case, and a well-formed token, and nothing else. */
static bool has_token(const char *value)
{
    static const char upper[] = "BEARER ", lower[] = "bearer ";
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    if (strlen(value) != strlen(lower) + TOKEN_SIZE)
        return false;
    for (size_t i = 0; lower[i]; i++)
        if (value[i] != lower[i] && value[i] != upper[i])
            return false;
    value += strlen(lower);
    return memcmp(value, "pmt_", 4) == 0 && strspn(value + 4, allowed) == TOKEN_SIZE - 4;
}

static enum auth_result expected_of(const char *token, int64_t now)
{
    if (memcmp(token, LASTING, TOKEN_SIZE) == 0)
        return AUTH_OK;
    if (memcmp(token, ENDING, TOKEN_SIZE) == 0)
        return now < ENDS_AT ? AUTH_OK : AUTH_EXPIRED;
    return AUTH_UNKNOWN;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct principals *principals;
    if (!principals)
        principals = load();
    int64_t now = (int64_t)fuzz_choice(&data, &size) * 86400;
    char *value = fuzz_text(data, size);
    struct bytes token = principals_token_of_header(value);
    MUST((token.data != NULL) == has_token(value));
    if (token.data) {
        enum auth_result result = AUTH_RESULTS, expected = expected_of(token.data, now);
        int64_t until = 0;
        const struct principal *found = principals_of_token(principals, token, now, &until, &result);
        MUST(result == expected && (found != NULL) == (expected == AUTH_OK));
        MUST(!found || strcmp(found->name, until == INT64_MAX ? "lasting" : "ending") == 0);
        MUST(!found || until == INT64_MAX || until == ENDS_AT);
    }
    free(value);
    return 0;
}
