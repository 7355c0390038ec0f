/* SPDX-License-Identifier: MIT */
#include "cli/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "cli/nested.h"
#include "cli/server_options.h"
#include "core/name.h"

/* Linux limits one variable to 128 KiB, and all of them with the arguments to a quarter of the stack, mostly 2 MiB. */
enum { VARIABLE_SIZE = 16 + NAME_MAX_BYTES, TOTAL_BYTES = 64 * 1024 };

/* State of setting the variables: the space left for them, and failures. */
struct variables {
    size_t free_bytes;
    bool failed; /* errno is set */
};

static void set_always(struct variables *variables, const char *name, const char *value)
{
    size_t size = strlen(name) + strlen(value) + 2;
    variables->free_bytes -= variables->free_bytes < size ? variables->free_bytes : size;
    variables->failed |= setenv(name, value, 1) != 0;
}

/* Returns false and sets nothing if the variable does not fit. */
static bool set_if_it_fits(struct variables *variables, const char *name, const char *value)
{
    if (strlen(name) + strlen(value) + 2 > variables->free_bytes)
        return false;
    set_always(variables, name, value);
    return true;
}

/* Writes a variable's name: "backups-db7" becomes "BACKUPS_DB7". All characters but letters and digits become _. */
static void variable_name(const char *prefix, const char *semaphore, char name[VARIABLE_SIZE])
{
    (void)snprintf(name, VARIABLE_SIZE, "%s%s", prefix, semaphore);
    for (char *at = name + strlen(prefix); *at; at++) {
        if (*at >= 'a' && *at <= 'z')
            *at = (char)(*at - 'a' + 'A');
        else if (!(*at >= 'A' && *at <= 'Z') && !(*at >= '0' && *at <= '9'))
            *at = '_';
    }
}

/* Returns true if another semaphore of the request has the same variable name. Then neither gets a variable. */
static bool is_ambiguous(const struct permit_request *request, size_t index)
{
    char mine[VARIABLE_SIZE], other[VARIABLE_SIZE];
    variable_name("", request->permits[index].semaphore, mine);
    for (size_t i = 0; i < request->permit_count; i++) {
        variable_name("", request->permits[i].semaphore, other);
        if (i != index && strcmp(mine, other) == 0)
            return true;
    }
    return false;
}

/* Sets a list, unless it is longer than all the space or does not fit into the rest. */
static void set_list(struct variables *variables, const char *name, const struct buf *text)
{
    if (!text->broken)
        (void)set_if_it_fits(variables, name, buf_text(text));
}

/*
 * Sets token, slots and labels of each permit. A permit of a counted semaphore has no slots and gets no variable for
 * them. Labels are in the order of the slots; the text of a slot without a label is empty. They may contain commas;
 * PERMIT_GRANT is unambiguous.
 */
static void set_permits(struct variables *variables, const struct permit_request *request)
{
    char token[VARIABLE_SIZE] = "PERMIT_TOKEN", slots[VARIABLE_SIZE] = "PERMIT_SLOTS";
    char labels[VARIABLE_SIZE] = "PERMIT_LABELS", number[24];
    struct buf slot_list, label_list;
    buf_init(&slot_list, TOTAL_BYTES);
    buf_init(&label_list, TOTAL_BYTES);
    for (size_t i = 0; i < request->permit_count; i++) {
        const struct permit_held *held = &request->permits[i];
        if (request->permit_count > 1) {
            if (is_ambiguous(request, i))
                continue;
            variable_name("PERMIT_TOKEN_", held->semaphore, token);
            variable_name("PERMIT_SLOTS_", held->semaphore, slots);
            variable_name("PERMIT_LABELS_", held->semaphore, labels);
        }
        (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)held->token);
        set_always(variables, token, number);
        buf_clear(&slot_list);
        buf_clear(&label_list);
        for (size_t j = 0; j < held->slot_count; j++) {
            const char *label = held->labels && held->labels[j] ? held->labels[j] : "";
            buf_printf(&slot_list, j ? ",%u" : "%u", (unsigned)held->slots[j]);
            buf_printf(&label_list, "%s%s", j ? "," : "", label);
        }
        if (held->slot_count)
            set_list(variables, slots, &slot_list);
        if (held->labels)
            set_list(variables, labels, &label_list);
    }
    buf_release(&slot_list);
    buf_release(&label_list);
}

static void remove_inherited(void)
{
    static const char *const prefixes[] = {
        "PERMIT_REQUEST=", "PERMIT_REQUESTS=", "PERMIT_GRANT=", "PERMIT_GRANT_FILE=", "PERMIT_TOKEN=",
        "PERMIT_SLOTS=",   "PERMIT_LABELS=",   "PERMIT_TOKEN_", "PERMIT_SLOTS_",      "PERMIT_LABELS_"};
    char **kept = environ;
    for (char **at = environ; at && *at; at++) {
        bool is_ours = false;
        for (size_t i = 0; i < ARRAY_LENGTH(prefixes); i++)
            is_ours |= strncmp(*at, prefixes[i], strlen(prefixes[i])) == 0;
        if (!is_ours)
            *kept++ = *at;
    }
    if (kept)
        *kept = NULL;
}

/* Copies the list of urls to `to`, which is as large, without users and passwords. */
static void copy_without_passwords(const char *urls, char *to)
{
    while (*urls) {
        const char *authority = strstr(urls, "://");
        size_t scheme = authority ? (size_t)(authority - urls) + 3 : strcspn(urls, ",");
        size_t whole = strcspn(urls + scheme, ",/");
        const char *at = memrchr(urls + scheme, '@', whole);
        size_t secret = at ? (size_t)(at + 1 - (urls + scheme)) : 0;
        size_t rest = strcspn(urls + scheme, ",") - secret;
        rest += urls[scheme + secret + rest] == ',';
        memcpy(to, urls, scheme);
        memcpy(to + scheme, urls + scheme + secret, rest);
        urls += scheme + secret + rest;
        to += scheme + rest;
    }
    *to = '\0';
}

static void remove_credentials(struct variables *variables)
{
    for (const char *const *name = server_options_variables; *name; name++)
        (void)unsetenv(*name);
    const char *urls = getenv("PERMITD_URL");
    if (!urls || !strchr(urls, '@'))
        return;
    char *shown = malloc(strlen(urls) + 1);
    if (shown) {
        copy_without_passwords(urls, shown);
        variables->failed |= setenv("PERMITD_URL", shown, 1) != 0;
    }
    variables->failed |= !shown;
    free(shown);
}

const char *environment_directory(void)
{
    const char *directory = getenv("TMPDIR");
    return directory && *directory ? directory : "/tmp";
}

/* Writes the grant to a new file that only this user can read. */
static bool write_grant_file(struct environment *environment, const char *grant_json)
{
    char path[ENVIRONMENT_PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/permit-grant.XXXXXX", environment_directory());
    if (length >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return false;
    }
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return false;
    memcpy(environment->grant_file, path, (size_t)length + 1);
    bool written = io_write(fd, grant_json, strlen(grant_json));
    int error = errno;
    bool closed = close(fd) == 0;
    if (!written)
        errno = error;
    return written && closed;
}

bool environment_set(struct environment *environment, const struct permit_request *request, const char *grant_json,
                     bool keep_credential)
{
    struct variables variables = {.free_bytes = TOTAL_BYTES};
    const char *outer = nested_keys();
    struct buf keys; /* of the outer runs and of this one */
    buf_init(&keys, TOTAL_BYTES);
    buf_printf(&keys, "%s%s%s", outer ? outer : "", outer ? " " : "", request->external_id);
    remove_inherited();
    if (!keep_credential)
        remove_credentials(&variables);
    set_always(&variables, "PERMIT_REQUEST", request->external_id);
    set_list(&variables, "PERMIT_REQUESTS", &keys);
    buf_release(&keys);
    set_permits(&variables, request);
    if (!set_if_it_fits(&variables, "PERMIT_GRANT", grant_json)) {
        if (!write_grant_file(environment, grant_json))
            return false;
        set_always(&variables, "PERMIT_GRANT_FILE", environment->grant_file);
    }
    return !variables.failed;
}

void environment_release(struct environment *environment)
{
    if (environment->grant_file[0])
        (void)unlink(environment->grant_file);
    environment->grant_file[0] = '\0';
}
