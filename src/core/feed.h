/* SPDX-License-Identifier: MIT */
/*
 * Events of the feed: what happened to requests (docs/design.md, "The feed"). An event is complete, because its request
 * may be deleted earlier. It has the permits of the semaphores whose setting `feed` admits it.
 */
#ifndef CORE_FEED_H
#define CORE_FEED_H

#include "core/request.h"

/* The numbers below are stored in rows: never change one. */
enum feed_what {
    FEED_WAITING = 1,   /* it has a place in the queues */
    FEED_ACQUIRED = 2,  /* it holds its permits */
    FEED_RENEWED = 3,   /* renewed at least once */
    FEED_CONFIRMED = 4, /* sold */
    FEED_ENDED = 5,     /* its permits were freed; or it gave up its place, as never_held */
    FEED_GAP = 6,       /* of no request: between two of them, events lack */
    FEED_CHANGED = 7,   /* it holds other permits: count 0 of a semaphore of which it holds nothing any more */
};

/* Returns "waiting", "acquired", ...; NULL: no such event. */
const char *feed_what_word(uint32_t what);
/* Returns true if the feed has this event of a semaphore with this setting. `sold`: its request is confirmed. */
bool feed_admits(enum semaphore_feed feed, enum feed_what what, bool sold);

struct feed_permit {
    struct bytes semaphore; /* its name */
    int64_t count;
    uint64_t token;     /* 0: it waits */
    struct slots slots; /* empty if counted, or it waits */
};

/* An event: as planned, in the order of occurrence, or as read. */
struct feed_event {
    enum feed_what what;
    enum end_reason end_reason; /* FEED_ENDED */
    struct bytes external_id, owner, principal;
    const struct feed_permit *permits; /* at least one, but of FEED_GAP */
    size_t permit_count;
    uint64_t metadata_of; /* the id of its request, if that may have metadata; 0: it has none */
};

/* An event as it is stored and read. */
struct feed_row {
    uint64_t seq; /* its number */
    utc_us at;    /* the database's clock at the batch */
    uint32_t what;
    unsigned end_reason;
    struct bytes external_id, owner, principal;
    struct bytes permits;  /* feed_permits_format */
    struct bytes metadata; /* a JSON object; data NULL: none */
};

/* A position behind an event: EPOCH-SEQ in a cursor. */
struct feed_position {
    uint64_t epoch; /* of tokens, when the cursor was given */
    uint64_t seq;   /* of the event; 0: before the first */
};

/* A reader of the feed has read this in the database. */
struct feed_facts {
    uint64_t epoch;   /* the present one */
    uint64_t head;    /* the last number that was given */
    uint64_t durable; /* readers see the numbers up to this one: a crash of the database does not undo them */
    uint64_t least;   /* the smallest head recorded when an epoch began after that of the position; UINT64_MAX: none */
    uint64_t first;   /* the number of the first event behind the position, up to `durable`; 0: there is none */
};

enum feed_verdict {
    FEED_KNOWN, /* what follows the position is there */
    FEED_GONE,  /* events behind it were deleted */
    FEED_LOST,  /* a server lost the event before it, and another event may have its number now */
};

/* Judges a position. If it is not known, *ret_go_on is the one to go on from: nothing that is there is passed over. */
enum feed_verdict feed_judge(struct feed_position position, const struct feed_facts *facts,
                             struct feed_position *ret_go_on);
/* "1234-56". False: not a position as feed_position_format writes it. */
bool feed_position_parse(struct bytes text, struct feed_position *ret_position) MUST_CHECK;
void feed_position_format(struct feed_position position, struct buf *out);

/* The permits as they are stored: a line for each, `NAME COUNT TOKEN SLOTS`. */
void feed_permits_format(const struct feed_permit *permits, size_t count, struct buf *out);
/* False: not such a text, or out of memory; the outputs are then untouched. The result points into the text. */
bool feed_permits_parse(struct bytes text, struct arena *arena, struct feed_permit **ret_permits,
                        size_t *ret_count) MUST_CHECK;

/*
 * Events as they are stored together, one behind the other: `WHAT END_REASON `, then external_id, owner, principal,
 * permits and metadata, each as `LENGTH:BYTES`. Appends one without its metadata; FEED_NO_METADATA: it has none.
 */
#define FEED_NO_METADATA "0:"
void feed_event_format(const struct feed_event *event, struct buf *out);
/* Takes the first event from the text; *ret_row points into it. False: no such text; *text is then unspecified. */
bool feed_event_take(struct bytes *text, struct feed_row *ret_row) MUST_CHECK;
#endif
