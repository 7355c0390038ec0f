/* SPDX-License-Identifier: MIT */
#include "cli/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "core/name.h"

enum { VARIABLE_SIZE = 16 + NAME_MAX_BYTES, LIST_TEXT_MAX = 65536 };

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

static bool set_number(const char *name, uint64_t number)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    return setenv(name, text, 1) == 0;
}

/* A permit of a counted semaphore has no slots, and so no variable. */
static bool set_slots(const char *name, const struct permit_held *held)
{
    struct buf text;
    buf_init(&text, LIST_TEXT_MAX);
    for (size_t i = 0; i < held->slot_count; i++)
        buf_printf(&text, i ? ",%u" : "%u", (unsigned)held->slots[i]);
    bool set = !text.broken && (held->slot_count == 0 || setenv(name, text.data, 1) == 0);
    buf_release(&text);
    return set;
}

/*
 * Side by side with the slots; nothing stands for one without a label. Labels may contain commas, and be too long for a
 * variable (then there is none): PERMIT_GRANT has them for certain.
 */
static bool set_labels(const char *name, const struct permit_held *held)
{
    struct buf text;
    if (!held->labels)
        return true;
    buf_init(&text, LIST_TEXT_MAX);
    for (size_t i = 0; i < held->slot_count; i++)
        buf_printf(&text, "%s%s", i ? "," : "", held->labels[i] ? held->labels[i] : "");
    bool set = text.broken || setenv(name, buf_text(&text), 1) == 0;
    buf_release(&text);
    return set;
}

static bool set_one(const struct permit_request *request, size_t index)
{
    const struct permit_held *held = &request->permits[index];
    char token[VARIABLE_SIZE], slots[VARIABLE_SIZE], labels[VARIABLE_SIZE];
    if (is_ambiguous(request, index))
        return true;
    variable_name("PERMIT_TOKEN_", held->semaphore, token);
    variable_name("PERMIT_SLOTS_", held->semaphore, slots);
    variable_name("PERMIT_LABELS_", held->semaphore, labels);
    return set_number(token, held->token) && set_slots(slots, held) && set_labels(labels, held);
}

static bool is_of_a_permit(const char *variable)
{
    static const char *const prefixes[] = {"PERMIT_REQUEST=", "PERMIT_GRANT=", "PERMIT_TOKEN=", "PERMIT_SLOTS=",
                                           "PERMIT_LABELS=",  "PERMIT_TOKEN_", "PERMIT_SLOTS_", "PERMIT_LABELS_"};
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

bool environment_set(const struct permit_request *request, const char *grant_json)
{
    remove_inherited();
    if (setenv("PERMIT_REQUEST", request->external_id, 1) != 0 || setenv("PERMIT_GRANT", grant_json, 1) != 0)
        return false;
    if (request->permit_count == 1)
        return set_number("PERMIT_TOKEN", request->permits[0].token) &&
               set_slots("PERMIT_SLOTS", &request->permits[0]) && set_labels("PERMIT_LABELS", &request->permits[0]);
    for (size_t i = 0; i < request->permit_count; i++)
        if (!set_one(request, i))
            return false;
    return true;
}
