/* SPDX-License-Identifier: MIT */
/*
 * Reads JSON request bodies strictly: input that permitd would ignore is refused. A body is read in two passes, without
 * a tree and without memory of its own. wire_check walks the text once, checks that it is one JSON object, and stops at
 * the first element above the limit. wire_read then fills a struct from the object and a table of its members. Lists
 * are read in place.
 *
 * PERMIT_MALFORMED  not JSON, not an object, duplicate member, not UTF-8, too deep, trailing data
 * PERMIT_NO_MEMORY  out of memory; the same text may be readable later
 * PERMIT_INVALID    a member that is unknown, missing, null, of another type, or out of range
 *
 * Every refusal has a message that names the member and the expected value.
 */
#ifndef API_JSON_IN_H
#define API_JSON_IN_H

#include "base/arena.h"
#include "base/buf.h"
#include "core/request.h"

enum { WIRE_MAX_DEPTH = 16 };

enum wire_type {
    WIRE_TEXT,               /* struct bytes (a copy in the arena; data NULL: absent), min to max bytes */
    WIRE_LINE,               /* like WIRE_TEXT, without control characters */
    WIRE_SEMAPHORE,          /* struct bytes: name of a semaphore */
    WIRE_KEY,                /* struct bytes: an external_id or owner */
    WIRE_NONCE,              /* struct bytes: the nonce of an acquire */
    WIRE_INTEGER,            /* int64_t, min to max */
    WIRE_DURATION,           /* int64_t in milliseconds, min to max */
    WIRE_INTEGER_OR_NONE,    /* like WIRE_INTEGER; -1: "none" */
    WIRE_DURATION_OR_NONE,   /* like WIRE_DURATION; -1: "none" */
    WIRE_DURATION_OR_STRICT, /* like WIRE_DURATION; -1: "strict" */
    WIRE_BOOLEAN,            /* bool */
    WIRE_HOLD,               /* struct ttl: a duration, min to max ms, "none", or "owner" */
    WIRE_CHOICE,             /* an enum: the number of the word in `choices`, from 1 */
    WIRE_LIST,               /* struct wire_list: an array of min to max elements */
    WIRE_OBJECT, /* struct bytes: an object of at most max bytes, as sent (a copy in the arena; data NULL: absent) */
    /* Elements of lists, read by wire_read_elements. */
    WIRE_SLOT,    /* struct slot_name: number of a slot, min to max, or its label (a copy in the arena) */
    WIRE_LABEL,   /* struct bytes: a label (a copy in the arena), or null: data NULL */
    WIRE_SECTION, /* struct bytes: a section of seats (a copy in the arena) */
    WIRE_TAG,     /* struct bytes: a tag of a seat (a copy in the arena) */
};

#define TAG_EXPECTED "a word of 1 to 32 bytes of printable ASCII without space"

struct wire_member {
    const char *name;
    enum wire_type type;
    bool required;
    size_t offset;       /* offset of the value in the struct */
    size_t given_offset; /* offset of a bool that is set if the member is present; 0: none */
    int64_t min;
    int64_t max;
    const char *const *choices; /* NULL-terminated */
    const char *expected;       /* end of the error message: "a whole number from 1 to 1000" */
};

struct wire_table {
    const struct wire_member *members; /* at most 32 */
    size_t count;
};

/* Where the values of a body go, and the reason of a refusal. */
struct wire_reading {
    struct arena *arena;
    struct buf *message;
};

/* An array in a checked text. */
struct wire_list {
    struct bytes rest; /* unread rest of the array */
    size_t count;      /* number of elements; 0: the member is absent */
};

/* Limit of the number of elements that the lists of an object have together, and the refusal of more. */
struct wire_limit {
    size_t elements;
    enum permit_status status;
    const char *sentence;
};

/*
 * Checks that the text is one JSON object. *ret_object is the object without the white space around it. *ret_read is
 * the number of bytes read: up to the first error, or the first element above the limit.
 */
enum permit_status wire_check(struct bytes text, const struct wire_limit *limit, size_t *ret_read,
                              struct bytes *ret_object, struct buf *message) MUST_CHECK;

/* No elements: for bodies without lists. */
extern const struct wire_limit wire_no_lists;
/*
 * Fills `form`, zeroed by the caller, from a value of a checked text. Refuses a value that is not an object. `where`
 * precedes the member's name in messages: "" or "permits[1].".
 */
enum permit_status wire_read(const struct wire_reading *reading, struct bytes object, const struct wire_table *table,
                             const char *where, void *form) MUST_CHECK;
/* Calls wire_check and wire_read. Lists in `form` are valid as long as the text. */
enum permit_status wire_read_body(const struct wire_reading *reading, struct bytes text, const struct wire_limit *limit,
                                  const struct wire_table *table, void *form) MUST_CHECK;
/* Returns the value of a member of a checked object; length 0: absent. */
struct bytes wire_find(struct bytes object, const char *name);
/*
 * Cuts the next member off an object: the name, decoded in the arena, and its value. *rest begins as the object. False:
 * there is none, or no memory for it.
 */
bool wire_next_member(struct bytes *rest, struct arena *arena, struct bytes *ret_name, struct bytes *ret_value);
/* Reads a whole number from min to max. */
bool wire_read_integer(struct bytes value, int64_t min, int64_t max, int64_t *ret_number) MUST_CHECK;
/* Returns true if the value is a string equal to `word`. */
bool wire_is_word(struct bytes value, const char *word);

/* Returns the next element; length 0: the end. */
struct bytes wire_next(struct wire_list *list);
/*
 * Reads all elements, keys or one of the types of elements, into places[], an array of struct slot_name or struct
 * bytes. `where` is the list's name in messages, such as "permits[1].slots".
 */
enum permit_status wire_read_elements(const struct wire_reading *reading, struct wire_list *list,
                                      const struct wire_member *element, const char *where, void *places) MUST_CHECK;
/* Returns true if the text is valid for a WIRE_LINE of min to max bytes. For texts that are not JSON. */
bool wire_is_line(struct bytes text, size_t min, size_t max);
#endif
