/* SPDX-License-Identifier: MIT */
/*
 * Request bodies, read strictly: what is not honoured is not accepted. A body is read in two passes, both without a
 * tree and without memory of their own. wire_check walks the text once, finds whether it is one JSON object, and stops
 * at the first element too many. wire_read then fills a struct from the object and a table of its members; lists are
 * walked where they stand.
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

enum { WIRE_MAX_DEPTH = 16 };

enum wire_type {
    WIRE_TEXT,      /* struct bytes (a copy in the arena; data NULL: absent), of min to max bytes */
    WIRE_LINE,      /* the same, without control characters */
    WIRE_SEMAPHORE, /* struct bytes: a semaphore's name */
    WIRE_KEY,       /* struct bytes: an external_id or owner */
    WIRE_NONCE,     /* struct bytes: the nonce of an acquire */
    WIRE_INTEGER,   /* int64_t, min to max */
    WIRE_DURATION,  /* int64_t in milliseconds, min to max */
    WIRE_TTL,       /* struct ttl: a duration, min to max ms, or "none" */
    WIRE_BOOLEAN,   /* bool */
    WIRE_HOLD,      /* as WIRE_TTL, or "owner" */
    WIRE_CHOICE,    /* int64_t: the index of the word in `choices` */
    WIRE_LIST,      /* struct wire_list: an array of min to max elements */
    /* Elements of lists, for wire_read_elements. */
    WIRE_SLOT,  /* struct slot_name: a slot's number, min to max, or its label (a copy in the arena) */
    WIRE_LABEL, /* struct bytes: a label (a copy in the arena), or null: data NULL */
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
    const struct wire_member *members; /* at most 32 */
    size_t count;
};

/* An array in a checked text. */
struct wire_list {
    struct bytes rest; /* what is left of it while it is walked */
    size_t count;      /* of its elements; 0: the member is absent */
};

/* How many elements the lists in the body's object may have together, and what one more is told. */
struct wire_limit {
    size_t elements;
    enum permit_status status;
    const char *sentence;
};

/*
 * Whether the text is one JSON object; *ret_object is that without the space around it. *ret_read: so far it was read,
 * which is to the first fault, or to the first element beyond the limit.
 */
enum permit_status wire_check(struct bytes text, const struct wire_limit *limit, size_t *ret_read,
                              struct bytes *ret_object, struct buf *message) MUST_CHECK;

/* No element at all: for bodies without lists. */
extern const struct wire_limit wire_no_lists;
/*
 * Fills `form` (zeroed before) from a value of a checked text, or refuses one that is no object. `where` stands before
 * the member's name in sentences: "" or "permits[1].".
 */
enum permit_status wire_read(struct bytes object, const struct wire_table *table, const char *where, void *form,
                             struct arena *arena, struct buf *message) MUST_CHECK;
/* Checks a text and reads it, at once. What `form` has of lists is valid as long as the text. */
enum permit_status wire_read_body(struct bytes text, const struct wire_limit *limit, const struct wire_table *table,
                                  void *form, struct arena *arena, struct buf *message) MUST_CHECK;
/* The value of a member of a checked object; length 0: there is none. */
struct bytes wire_find(struct bytes object, const char *name);
/* The value is a string, and reads so. */
bool wire_is_word(struct bytes value, const char *word);

/* The next element; length 0: the end. */
struct bytes wire_next(struct wire_list *list);
/*
 * Reads all elements, which are slots or labels, into places[]: struct slot_name or struct bytes. `where` is the list's
 * name in sentences, "permits[1].slots".
 */
enum permit_status wire_read_elements(struct wire_list *list, const struct wire_member *element, const char *where,
                                      void *places, struct arena *arena, struct buf *message) MUST_CHECK;
/* What a WIRE_LINE of min to max bytes may be; for a text that did not come as JSON. */
bool wire_is_line(struct bytes text, size_t min, size_t max);
#endif
