/* SPDX-License-Identifier: MIT */
#include "cli/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "core/name.h"

/* One variable may have 128 KiB, and all of them with the arguments a quarter of the stack: mostly 2 MiB. */
enum { VARIABLE_SIZE = 16 + NAME_MAX_BYTES, ROOM_BYTES = 64 * 1024 };

/* The variables that are being set, and the room that is left for them. */
struct setting {
    size_t room;
    bool failed; /* errno says why */
};

static void set_always(struct setting *setting, const char *name, const char *value)
{
    size_t size = strlen(name) + strlen(value) + 2;
    setting->room -= setting->room < size ? setting->room : size;
    setting->failed |= setenv(name, value, 1) != 0;
}

/* False: it does not fit, and is left out. */
static bool set_if_it_fits(struct setting *setting, const char *name, const char *value)
{
    if (strlen(name) + strlen(value) + 2 > setting->room)
        return false;
    set_always(setting, name, value);
    return true;
}

/* "backups-db7" is "BACKUPS_DB7": upper case, everything else _ */
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

/* True if another semaphore of the request makes the same variable: then neither gets one. */
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

static void set_number(struct setting *setting, const char *name, uint64_t number)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    set_always(setting, name, text);
}

/* A list that is longer than all the room does not fit either. */
static void set_list(struct setting *setting, const char *name, const struct buf *text)
{
    if (!text->broken)
        (void)set_if_it_fits(setting, name, buf_text(text));
}

/* A permit of a counted semaphore has no slots, and so no variable. */
static void set_slots(struct setting *setting, const char *name, const struct permit_held *held)
{
    struct buf text;
    buf_init(&text, ROOM_BYTES);
    for (size_t i = 0; i < held->slot_count; i++)
        buf_printf(&text, i ? ",%u" : "%u", (unsigned)held->slots[i]);
    if (held->slot_count)
        set_list(setting, name, &text);
    buf_release(&text);
}

/* Side by side with the slots; nothing stands for one without a label. Labels may contain commas: see PERMIT_GRANT. */
static void set_labels(struct setting *setting, const char *name, const struct permit_held *held)
{
    struct buf text;
    buf_init(&text, ROOM_BYTES);
    for (size_t i = 0; held->labels && i < held->slot_count; i++)
        buf_printf(&text, "%s%s", i ? "," : "", held->labels[i] ? held->labels[i] : "");
    if (held->labels)
        set_list(setting, name, &text);
    buf_release(&text);
}

static void set_one(struct setting *setting, const struct permit_request *request, size_t index)
{
    const struct permit_held *held = &request->permits[index];
    char token[VARIABLE_SIZE], slots[VARIABLE_SIZE], labels[VARIABLE_SIZE];
    if (is_ambiguous(request, index))
        return;
    variable_name("PERMIT_TOKEN_", held->semaphore, token);
    variable_name("PERMIT_SLOTS_", held->semaphore, slots);
    variable_name("PERMIT_LABELS_", held->semaphore, labels);
    set_number(setting, token, held->token);
    set_slots(setting, slots, held);
    set_labels(setting, labels, held);
}

static void set_permits(struct setting *setting, const struct permit_request *request)
{
    if (request->permit_count == 1) {
        set_number(setting, "PERMIT_TOKEN", request->permits[0].token);
        set_slots(setting, "PERMIT_SLOTS", &request->permits[0]);
        set_labels(setting, "PERMIT_LABELS", &request->permits[0]);
    }
    for (size_t i = 0; request->permit_count > 1 && i < request->permit_count; i++)
        set_one(setting, request, i);
}

static bool is_of_a_permit(const char *variable)
{
    static const char *const prefixes[] = {
        "PERMIT_REQUEST=", "PERMIT_GRANT=", "PERMIT_GRANT_FILE=", "PERMIT_TOKEN=", "PERMIT_SLOTS=",
        "PERMIT_LABELS=",  "PERMIT_TOKEN_", "PERMIT_SLOTS_",      "PERMIT_LABELS_"};
    for (size_t i = 0; i < ARRAY_LENGTH(prefixes); i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static void remove_inherited(void)
{
    char **kept = environ;
    for (char **at = environ; at && *at; at++)
        if (!is_of_a_permit(*at))
            *kept++ = *at;
    if (kept)
        *kept = NULL;
}

static bool write_all(int fd, const char *text, size_t length)
{
    while (length) {
        ssize_t written = write(fd, text, length);
        if (written < 0 && errno != EINTR)
            return false;
        text += written > 0 ? written : 0;
        length -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

const char *environment_directory(void)
{
    const char *directory = getenv("TMPDIR");
    return directory && *directory ? directory : "/tmp";
}

/* A new file that only this user can read. */
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
    bool written = write_all(fd, grant_json, strlen(grant_json));
    int error = errno;
    bool closed = close(fd) == 0;
    if (!written)
        errno = error;
    return written && closed;
}

bool environment_set(struct environment *environment, const struct permit_request *request, const char *grant_json)
{
    struct setting setting = {.room = ROOM_BYTES};
    remove_inherited();
    set_always(&setting, "PERMIT_REQUEST", request->external_id);
    set_permits(&setting, request);
    if (!set_if_it_fits(&setting, "PERMIT_GRANT", grant_json)) {
        if (!write_grant_file(environment, grant_json))
            return false;
        set_always(&setting, "PERMIT_GRANT_FILE", environment->grant_file);
    }
    return !setting.failed;
}

void environment_release(struct environment *environment)
{
    if (environment->grant_file[0])
        (void)unlink(environment->grant_file);
    environment->grant_file[0] = '\0';
}
