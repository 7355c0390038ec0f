/* SPDX-License-Identifier: MIT */
/*
 * Queries for status and lists: plain SELECTs outside every batch. A result was true at the time of the read and
 * promises nothing; promises come from batches. Rows are in the caller's arena.
 */
#ifndef STORE_QUERY_H
#define STORE_QUERY_H

#include "base/arena.h"
#include "core/best.h"
#include "core/lease_clock.h"
#include "core/report.h"
#include "core/request.h"
#include "permit/status.h"

struct deadlock; /* locks.h */
struct doctor_report;
struct doctor_undo; /* doctor.h */
struct lock_list;   /* locks.h */
struct owner;       /* core/owner.h */
struct server_row;  /* servers.h */
struct sql_account; /* sql_accounts.h */
struct store;
struct template;

enum {
    /* Maximum number of rows that one call walks to fill a page, or to count: about 50 ms. */
    QUERY_WALK_MAX = 20000,
    QUERY_AHEAD_KEYS = 10, /* keys in a queue_position */
    /* Of a semaphore_front. */
    QUERY_FRONT_HOLDERS = 10,
    QUERY_FRONT_WAITERS = 3,
    /*
     * Maximum numbers that one call of `reservers` reads: waiters of all queues, and their places in all their queues.
     */
    QUERY_RESERVERS_WALK = 512,
    QUERY_RESERVERS_PLACES = 1024,
};

/* The clock, read with every list; converts stored times to the database's clock. */
struct query_time {
    struct lease_clock clock; /* not judged */
    utc_us now;               /* the database's clock */
};

struct semaphore_row {
    struct semaphore semaphore;
    uint64_t floor;       /* smallest live token; next_permit_id if none */
    utc_us waiting_since; /* since when the head of its queue waits; NEVER: no request waits */
};

struct holder_row {
    struct request request; /* without its permits */
    struct permit permit;   /* its permit of the queried semaphore */
};

/* A request in the queue of the queried semaphore. */
struct waiter_row {
    struct request request; /* WAITING, with all its wants and their semaphore names */
    bool kept;              /* no client asks for it: server_id is 0, or its server is dead. Others pass it then */
    uint64_t number;        /* 1: the head. Kept: that of the last one before it that is not kept, 0: none is */
    struct bytes behind;    /* key of the last one before it that is not kept; data NULL: none is */
};

/* The position of a waiting request in the queue of one of its semaphores. It counts only waiters that are not kept. */
struct queue_position {
    uint64_t ahead;     /* number of waiters before it; at most QUERY_WALK_MAX are counted for all its queues */
    bool more;          /* there may be more than `ahead` */
    struct bytes *keys; /* the first of them, at most QUERY_AHEAD_KEYS */
    size_t key_count;
};

/* A holder, as far as a refusal shows it. Lease clock. */
struct front_holder {
    struct bytes external_id;
    struct bytes owner;
    utc_us since;
    utc_us expires_at; /* request_expires_at */
};

/* The holders and waiters that a new request for a semaphore finds before it. */
struct semaphore_front {
    struct front_holder *holders; /* the longest ones, in order of token */
    size_t holder_count;
    struct bytes *waiters; /* keys of the first waiters that are not kept, in the order of the queue */
    size_t waiter_count;
};

/* A waiter for which units of a queue are reserved, as far as the rows tell it. */
struct reserver {
    struct bytes external_id; /* data NULL: there is none */
    struct bytes *lacks;      /* names of the semaphores of which it lacks units, or a slot that it names; sorted */
    size_t lack_count;        /* at least 1 */
};

/* The state of a token. */
struct fence_row {
    bool known; /* false: no row has this token: never granted, or deleted by retention */
    bool live;  /* known, and its request is held */
    enum request_state state;
    enum end_reason end_reason;
    uint64_t floor; /* smallest live token of the semaphore; next_permit_id if none */
};

/* Sums over all semaphores that are not retired. */
struct semaphore_sums {
    int64_t count;
    int64_t capacity; /* INT64_MAX if the sum is larger */
    int64_t in_use;
};

struct request_filter {
    struct bytes owner;     /* data NULL: any */
    struct bytes semaphore; /* name, may be retired; data NULL: any, not of held_at */
    int state;              /* an enum request_state; 0: any. Not of held_at */
    utc_us at;              /* of held_at: by the database's clock as it is now; a time in the future counts as now */
};

/* A row of `semaphore_event`. */
struct event_row {
    uint64_t id;
    uint64_t semaphore_id; /* 0: all semaphores */
    utc_us at;             /* the database's clock at the event */
    struct bytes who;
    struct bytes what;
    struct bytes from; /* old value; data NULL: none. The same for `to` and `why` */
    struct bytes to;
    struct bytes why;
    uint64_t next_token; /* next token of the semaphore at the event */
};

/* An entry of /v1/availability. */
struct availability {
    struct bytes name;
    int64_t available; /* free units, never below 0 */
    int64_t waiting;
    uint64_t version;
};

enum { AVAILABILITY_ROWS = 1000 };

/* The first AVAILABILITY_ROWS names that begin with `prefix` and come after `after`, retired ones included. */
struct availability_range {
    struct bytes prefix;
    struct bytes after;            /* length 0: from the first name on */
    struct availability *ret_rows; /* in order of names, without retired semaphores */
    size_t ret_count;
    struct bytes ret_next; /* the last of these names, if more follow; data NULL: none do */
};

struct availability_read {
    const struct bytes *names;
    size_t name_count;
    struct availability *ret_rows; /* of the names in service; in any order */
    size_t ret_count;
    struct availability_range *ranges;
    size_t range_count;
};

enum nearest_kind { NEAREST_SEMAPHORE, NEAREST_TEMPLATE, NEAREST_OWNER, NEAREST_REQUEST };

struct nearest {
    bool exists;       /* the name itself exists; a retired semaphore does not count */
    struct bytes name; /* the nearest other name (name_distance), in the arena; data NULL: none is near */
};

/* Tells whether the slots may have changed: every change of a slot's holder or label raises the version. */
struct slot_list_head {
    uint64_t semaphore_id;
    enum semaphore_kind kind;
    int64_t in_use;
    uint64_t version;
    uint64_t epoch; /* compare it too: after a failover or a restore, which raise it, versions may go back */
};

enum slot_state { SLOT_ANY, SLOT_FREE, SLOT_HELD };

struct slot_filter {
    enum slot_state state;
    struct bytes prefix; /* of the label; length 0: any label, or none */
};

struct slot_list_row {
    uint32_t number;
    struct bytes label;     /* data NULL: none */
    struct seat seat;       /* without its number */
    uint64_t token;         /* 0: free */
    struct request request; /* holder, without its permits; set only if the slot is held */
};

/* A request in a list, with its permits or wants, as `request` reads one. names[i]: semaphore of permit or want i. */
struct listed_request {
    struct request request;
    struct bytes *names;
};

/* A position in a list: that of a row. A zeroed one is before the first row. */
struct cursor {
    struct bytes name; /* lists of names: of the row */
    uint64_t number;   /* other lists: token, slot number or id of the row; in a queue the id of the request */
    utc_us place;      /* queue */
    uint64_t waiters;  /* queue: number of waiters up to here that a client asks for */
    uint32_t changes;  /* permits: of its request when its exchange moved the row; UINT32_MAX: none did */
};

/*
 * A page of a list. The caller sets the first members and zeroes the others, which are valid after PERMIT_OK. A page
 * may be empty, or have fewer rows than its limit, and still have a next one.
 */
struct page {
    struct arena *arena; /* of the rows */
    unsigned limit;      /* maximum number of rows, at least 1 */
    struct cursor after; /* the page begins behind it */

    union {
        void *rows; /* any of these */
        struct semaphore_row *semaphores;
        struct holder_row *holders;
        struct report_permit *permits;
        struct waiter_row *waiters;
        struct listed_request *requests;
        struct event_row *events;
        struct slot_list_row *slots;
        struct template *templates;
        struct server_row *servers;
        struct owner *owners;
        struct sql_account *sql_accounts;
        uint64_t *request_ids;
    };
    size_t count;
    bool more;              /* rows may follow */
    struct cursor next;     /* if more: `after` of the next page; else, if it has rows, that of a page behind them */
    struct query_time time; /* not of events, templates and servers, which have no times of the lease clock */
};

/* Sets `count` and `more`: of limit + 1 rows that were selected, `found` were read. */
static inline void page_end(struct page *page, size_t found)
{
    page->more = found > page->limit;
    page->count = page->more ? page->limit : found;
}

/*
 * A position in the walk of the expiry task: by the second of the deadline; in a second the requests that wait come
 * first, by id, then the held ones, by semaphore and block of tokens. A request that holds several semaphores has the
 * position of the first.
 */
struct due_position {
    uint64_t due_s;        /* UNIX time, lease clock */
    uint64_t semaphore_id; /* 0: it waits */
    uint64_t block;        /* token / 64; id of a request that waits */
};

/* A held or waiting request with a deadline, due or not, read without locks by the expiry task. */
struct due_request {
    struct bytes external_id;
    utc_us due_at;
    struct due_position position;
};

/* A page of that walk. */
struct due_page {
    struct due_position after;        /* the page starts behind it; all 0: at the first position */
    size_t limit;                     /* positions; each has at most 64 requests */
    struct due_request *ret_requests; /* in the arena, in order of positions */
    size_t ret_count;
    bool ret_more;               /* positions may follow */
    struct due_position ret_end; /* if ret_more: the last position of the page */
    struct query_time ret_time;
};

/* A part of the table `errand`, in the order of its primary key. */
struct errand_position {
    uint64_t bucket, request_id;
};
struct errand_page {
    struct errand_position after; /* the page starts behind it; all 0: at the beginning */
    size_t limit;
    struct errand_row {
        struct errand_position position;
        struct bytes external_id;
    } * ret_rows; /* of requests with an errand; in the arena */
    size_t ret_count;
    bool ret_expected; /* there are SQL accounts, or errands: more may come soon */
};

/* Rows of `semaphore`, read without locks. */
struct semaphore_page {
    struct semaphore *rows; /* in the arena */
    size_t count;
};

/* The methods; store->queries. PERMIT_BUSY: the statement took longer than a list may take. */
struct store_queries {
    /* Reads one semaphore. PERMIT_UNKNOWN_SEMAPHORE: it does not exist or is retired. */
    enum permit_status (*semaphore)(struct store *store, struct bytes name, struct arena *arena,
                                    struct semaphore_row *ret_row, struct query_time *ret_time);
    /* Lists semaphores that begin with `prefix`, in order of name, without retired ones. */
    enum permit_status (*semaphores)(struct store *store, struct bytes prefix, struct page *page);
    /* Reads every semaphore row; for metrics. */
    enum permit_status (*semaphore_sums)(struct store *store, struct semaphore_sums *ret_sums);
    /*
     * Lists the holders of a semaphore in order of token, so the longest holders first. PERMIT_UNKNOWN_SEMAPHORE: it
     * does not exist or is retired.
     */
    enum permit_status (*holders)(struct store *store, struct bytes semaphore, struct page *page);
    /*
     * Lists the queue of a semaphore in its order, kept places included. The numbers continue those before the page.
     * PERMIT_UNKNOWN_SEMAPHORE: it does not exist or is retired.
     */
    enum permit_status (*waiters)(struct store *store, struct bytes semaphore, struct page *page);
    /*
     * Finds what stands before a WAITING request that `request` or `requests` has read. *ret_positions has one element
     * per want, in their order. *ret_kept: no client asks for it.
     */
    enum permit_status (*ahead)(struct store *store, const struct request *request, struct arena *arena,
                                struct queue_position **ret_positions, bool *ret_kept);
    /*
     * Finds until when the places of `count` requests that were read are kept if no client asks for them (lease clock).
     * The requests are `stride` bytes apart. (*ret_until)[i] is 0: not WAITING, or a client asks for it.
     */
    enum permit_status (*kept_until)(struct store *store, const struct request *requests, size_t count, size_t stride,
                                     const struct query_time *time, struct arena *arena, utc_us **ret_until);
    /*
     * Reads at most QUERY_FRONT_HOLDERS holders and QUERY_FRONT_WAITERS waiters of each of these semaphores, at least
     * one and at most REQUEST_MAX_SEMAPHORES, in a fixed number of statements. ret_fronts has one element per id; an
     * unknown id has none of either.
     */
    enum permit_status (*fronts)(struct store *store, const uint64_t *semaphore_ids, size_t count, struct arena *arena,
                                 struct semaphore_front *ret_fronts, struct query_time *ret_time);
    /*
     * Finds, in each queue of a WAITING request that `request` has read, the first waiter before it that reserves: a
     * client asks for it, it has waited since `aged` (lease clock) or longer, it lacks units of one of its semaphores,
     * and it can have its whole need: none of them is paused, closed or retired, and the units that are not confirmed
     * are enough. The reservations before it are not counted. Reads a bounded number of rows in two statements.
     * ret_reservers has one element per want.
     */
    enum permit_status (*reservers)(struct store *store, const struct request *request, utc_us aged,
                                    struct arena *arena, struct reserver *ret_reservers);
    /*
     * Reads one request with its permits. (*ret_names)[i] is the semaphore name of permit i. A WAITING request has
     * wants instead, sorted by semaphore name, each with its name; (*ret_names)[i] is that of want i.
     * PERMIT_UNKNOWN_REQUEST: it does not exist.
     */
    enum permit_status (*request)(struct store *store, struct bytes external_id, struct arena *arena,
                                  struct request *ret_request, struct bytes **ret_names, struct query_time *ret_time);
    /* Lists requests in order of request id. */
    enum permit_status (*requests)(struct store *store, const struct request_filter *filter, struct page *page);
    /*
     * Reads the state of a token; the semaphore may be retired. If `slot` is not 0, a token that does not hold that
     * slot is not known. PERMIT_UNKNOWN_SEMAPHORE: the semaphore does not exist.
     */
    enum permit_status (*fence)(struct store *store, struct bytes semaphore, uint64_t token, uint32_t slot,
                                struct fence_row *ret_row);
    /* Reads the clock. */
    enum permit_status (*clock)(struct store *store, struct query_time *ret_time);
    /*
     * Lists the requests that held units of the semaphore at that time, in their current state, with the permits that
     * they had then; by token, last granted
     * first. An unknown name has no holders.
     */
    enum permit_status (*held_at)(struct store *store, const struct request_filter *filter, struct page *page);
    /*
     * Lists the permits of a semaphore, of held and of ended requests, the last token first. A permit from which an
     * exchange has given back units is several rows: the units of each have one end.
     */
    enum permit_status (*permits)(struct store *store, uint64_t semaphore_id, struct page *page);
    /*
     * Lists the events of a semaphore and the raises of the epoch, which concern all semaphores; newest first. Returns
     * PERMIT_UNKNOWN_SEMAPHORE if the name was never used; a retired semaphore is known.
     */
    enum permit_status (*events)(struct store *store, struct bytes semaphore, struct page *page);
    /*
     * Compares `name` with its neighbours in byte order among the names that begin with `within`, which `name` does,
     * too; length 0: all that have no namespace. Reads a few rows, whatever the size of the table. No other name
     * changes the result, so that it tells nothing about what its reader may not see.
     */
    enum permit_status (*nearest)(struct store *store, enum nearest_kind kind, struct bytes name, struct bytes within,
                                  struct arena *arena, struct nearest *ret_nearest);
    /* Reads the entries of these names and ranges. Unknown and retired semaphores have no row. */
    enum permit_status (*availability)(struct store *store, struct availability_read *read, struct arena *arena);
    /* Reads the head. PERMIT_UNKNOWN_SEMAPHORE: the semaphore does not exist or is retired. */
    enum permit_status (*slot_list_head)(struct store *store, struct bytes semaphore, struct slot_list_head *ret_head);
    /*
     * Lists slots in order of number. A slot above the capacity is listed only while it is held. Reads one page of
     * rows; with a state or a prefix, at most all slots of the semaphore.
     */
    enum permit_status (*slots)(struct store *store, uint64_t semaphore_id, const struct slot_filter *filter,
                                struct page *page);
    /* Reads the semaphores with these ids, 1 to BATCH_MAX_OPERATIONS. Unknown ids are absent from the page. */
    enum permit_status (*semaphores_of)(struct store *store, const uint64_t *ids, size_t count, struct arena *arena,
                                        struct semaphore_page *ret_page);
    /*
     * Reads a page of held and waiting requests by the second of their deadlines, without locks; page->limit is not 0.
     */
    enum permit_status (*due)(struct store *store, struct due_page *page, struct arena *arena);
    /* Reads a page of requests with errands, without locks. */
    enum permit_status (*errands)(struct store *store, struct errand_page *page, struct arena *arena);
    /* locks.h and plans.h. `grant` has LOCK_GRANT_SIZE bytes. */
    enum permit_status (*locks_missing_grant)(struct store *store, char *ret_grant);
    enum permit_status (*locks)(struct store *store, struct arena *arena, struct lock_list *ret_list);
    enum permit_status (*deadlock)(struct store *store, struct arena *arena, struct deadlock *ret_deadlock);
    enum permit_status (*plans)(struct store *store, struct doctor_report *report);
    /* Reads what open transactions keep in the database (doctor.h). */
    enum permit_status (*undo)(struct store *store, struct doctor_undo *ret_undo);
};
#endif
