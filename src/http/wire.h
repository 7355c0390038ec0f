/* SPDX-License-Identifier: MIT */
/*
 * Request bodies, read strictly: what is not honoured is not accepted. This and wire.c are the only files that speak to
 * json-c. A handler has a table of the members of its object; wire_read fills a struct from it.
 *
 * PERMIT_MALFORMED  not JSON, not an object, a member twice, not UTF-8, too deep, something behind the end
 * PERMIT_NO_MEMORY  the same text may be read later
 * PERMIT_INVALID    a member that is unknown, missing, null, of another type, or out of range
 *
 * Every refusal comes with a sentence that names the member and what is expected.
 */
#ifndef HTTP_WIRE_H
#define HTTP_WIRE_H

#include "base/arena.h"
#include "base/buf.h"
#include "core/request.h"

struct json_object;
struct wire;

enum { WIRE_MAX_DEPTH = 16 };

enum wire_type {
    WIRE_TEXT,      /* struct bytes (a copy in the arena; data NULL: absent), of min to max bytes */
    WIRE_LINE,      /* the same, without control characters */
    WIRE_SEMAPHORE, /* struct bytes: a semaphore's name */
    WIRE_KEY,       /* struct bytes: an external_id or owner */
    WIRE_INTEGER,   /* int64_t, min to max */
    WIRE_DURATION,  /* int64_t in milliseconds, min to max */
    WIRE_TTL,       /* struct ttl: a duration, min to max ms, or "none" */
    WIRE_BOOLEAN,   /* bool */
    WIRE_HOLD,      /* as WIRE_TTL, or "owner" */
    WIRE_CHOICE,    /* int64_t: the index of the word in `choices` */
    WIRE_LIST,      /* struct json_object *: an array of min to max elements; valid until wire_drop */
    WIRE_SLOT,      /* struct slot_name: a slot's number, min to max, or its label (a copy in the arena) */
    WIRE_LABEL,     /* struct bytes: a label (a copy in the arena), or null: data NULL */
};

struct wire_member {
    const char *name;
    enum wire_type type;
    bool required;
    size_t offset;       /* of the value in the struct */
    size_t given_offset; /* of a bool that says whether it was there; 0: nobody asks */
    int64_t min;
    int64_t max;
    const char *const *choices; /* NULL-terminated */
    const char *expected;       /* "a whole number from 1 to 1000": the end of the sentence */
};

struct wire_table {
    const struct wire_member *members;
    size_t count;
};

/* NULL: no memory. */
struct wire *wire_new(void) MUST_CHECK;
void wire_free(struct wire *wire);

/* The text as one object; the caller drops it with wire_drop. */
enum permit_status wire_parse(struct wire *wire, struct bytes text, struct json_object **ret_object,
                              struct buf *message) MUST_CHECK;
void wire_drop(struct json_object *object);
/*
 * Fills `form` (zeroed before) from an object, or refuses an element that is none. `where` stands before the member's
 * name in sentences: "" or "permits[1].".
 */
enum permit_status wire_read(struct json_object *object, const struct wire_table *table, const char *where, void *form,
                             struct arena *arena, struct buf *message) MUST_CHECK;
/*
 * An element of a list as a value of `element`, whose name is of no account, into *place. `where` is the list's name in
 * sentences: "permits[1].slots".
 */
enum permit_status wire_read_at(const struct json_object *list, size_t index, const struct wire_member *element,
                                const char *where, void *place, struct arena *arena, struct buf *message) MUST_CHECK;
/* What a WIRE_LINE of min to max bytes may be; for a text that did not come as JSON. */
bool wire_is_line(struct bytes text, size_t min, size_t max);
size_t wire_list_length(const struct json_object *list);
struct json_object *wire_list_at(const struct json_object *list, size_t index);
/* The text of one member, without its table; data NULL if it is absent or no text. Valid until wire_drop. */
struct bytes wire_peek_text(struct json_object *object, const char *name);
#endif
