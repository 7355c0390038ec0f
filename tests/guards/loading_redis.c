/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kit_process.h"
#include "loading.h"
#include "testkit.h"

/* As in docs/fencing.md, in the directory of redis.lua. */
static const char documented[] =
    "{ echo '#!lua name=permit'; echo \"redis.register_function('permit_fence', function(KEYS, ARGV)\"\n"
    "      cat redis.lua; echo 'end)'; } | redis-cli -x FUNCTION LOAD";

/* Runs the text in a shell in the directory of the guards, where redis-cli reaches the store. Returns the output. */
static char *print_of(const struct store *store, const char *text)
{
    bool good;
    char *command = kit_text("cd '%s/sql/guards'\nPATH='%s':$PATH\n%s", PERMIT_SOURCE_DIR, store->directory, text);
    char *printed = loading_print(command, &good);
    free(command);
    return printed;
}

static void expect_output(const struct store *store, const char *text, const char *expected)
{
    char *printed = print_of(store, text);
    if (!strstr(printed, expected))
        kit_fail("redis: no '%s' in the output of '%s': %s", expected, text, printed);
    free(printed);
}

static void check_documentation(void)
{
    char *text = kit_read_file(PERMIT_SOURCE_DIR "/docs/fencing.md");
    KIT_CHECK(text);
    if (!strstr(text, documented))
        kit_fail("redis: docs/fencing.md loads the function in another way than this test");
    free(text);
}

/* With Redis 7 or later the guard can be a function. Another library of that name is left alone. */
void loading_redis(struct store *store)
{
    const char *program = access("/usr/bin/redis-cli", X_OK) ? "/usr/bin/valkey-cli" : "/usr/bin/redis-cli";
    char *client = kit_text("%s/redis-cli", store->directory);
    FILE *file = fopen(client, "we");
    KIT_CHECK(file && fprintf(file, "#!/bin/sh\nexec %s -s '%s' \"$@\"\n", program, store->socket) > 0);
    KIT_CHECK(!fclose(file) && !chmod(client, 0700));
    char *known = print_of(store, "redis-cli FUNCTION LIST");
    if (!strstr(known, "unknown command")) {
        check_documentation();
        expect_output(store, documented, "permit");
        expect_output(store, "redis-cli FCALL permit_fence 1 'permit_fence:{g}' 57 3 2 INCR '{g}'", "1");
        expect_output(store, "redis-cli FCALL permit_fence 1 'permit_fence:{g}' 56 3 2 INCR '{g}'", "STALE");
        expect_output(store, documented, "already exists");
        expect_output(store, "redis-cli FUNCTION DELETE permit", "OK");
        expect_output(
            store,
            "printf '#!lua name=permit\\nredis.register_function(\"theirs\", function() return \"theirs\" end)\\n'"
            " | redis-cli -x FUNCTION LOAD",
            "permit");
        expect_output(store, documented, "already exists");
        expect_output(store, "redis-cli FCALL theirs 0", "theirs");
        expect_output(store, "redis-cli FUNCTION DELETE permit", "OK");
        printf("redis      loading: a stranger's library is left alone\n");
    }
    free(known);
    free(client);
}
