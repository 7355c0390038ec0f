/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of plan_batch only. plan.c runs the batch and collects the result. planner.c has the row images
 * and the ways to finish an outcome. plan_slots.c tracks free slots and resolves the slots of an acquire. plan_feed.c
 * has the events of the feed. plan_acquire.c decides acquires, plan_walk.c the requests that wait; plan_queue.c has
 * their rows and the operations that ask for them. plan_hold.c decides the operations on a request that is held or
 * waits (renew, confirm, release, expire, force-release), plan_exchange.c the change of its permits, plan_semaphore.c
 * administrative operations, plan_labels.c the labels of slots.
 *
 * All memory is in planner->arena, which plan_batch has given an exit: if there is none, arena_must_alloc and its kin
 * end plan_batch with PERMIT_NO_MEMORY. So no function below fails. A status is that of an outcome, or why there is
 * none.
 */
#ifndef CORE_PLANNER_H
#define CORE_PLANNER_H

#include "core/plan.h"
#include "core/slot_pool.h"

/* The slot view: the slots of one locked semaphore while the plan runs. */
struct slot_view {
    struct slot_pool free;
    uint32_t unread;                  /* lower bound of the free slots that were not read */
    bool whole;                       /* true if every free slot in service was read */
    const struct named_slots *named;  /* the named slots as read */
    const struct key **granted_to;    /* one per named slot: the key it was granted to in this batch; NULL: none */
    const struct slot_row **labelled; /* named slots with a label, in byte order of the label */
    size_t labelled_count;
    const struct seat_map *map; /* NULL: neither best seats nor labels are wanted */
    struct seat_view *seats;    /* its free seats, as in `free`; NULL: not made yet */
};

/* The operations of the batch that ask for a request that waits, until the walk has decided it for good. */
struct askers {
    const struct operation *first;   /* NULL: there are none */
    const struct operation *waiting; /* the first one that goes on waiting; NULL: none */
    bool any_look;                   /* one is for the subscribers of the key */
    bool any_last;                   /* the wait of one ends with this decision */
};

/* The decision of the last walk for the askers of a request. */
struct key_decision {
    enum {
        DECISION_NONE,     /* none, or it was told already: the request is held */
        DECISION_GRANTED,  /* the grant is new: the first of them is told so */
        DECISION_REFUSED,  /* because of `refusal` */
        DECISION_PUT_BACK, /* they are put back, to run with `wider` locked, too */
    } how;
    const struct fit *refusal;
    const uint64_t *wider;
    size_t wider_count;
};

/*
 * One external_id of an operation, a due holder or a waiter: its row, if it exists, and whether an operation on it was
 * put back.
 */
struct key {
    struct bytes external_id;
    struct request *request; /* current image; NULL: no row */
    const struct request *before;
    enum {
        ROW_AS_READ, /* `request` is `before`; or there is none, and `before` is removed */
        ROW_CHANGED, /* `before` is updated */
        ROW_NEW,     /* `request` is inserted; `before`, if there was one, is removed */
    } row;
    bool overdue;                        /* it is in planner->overdue */
    const struct subscriber *subscriber; /* NULL: none */
    struct askers askers;
    struct key_decision decision;
    uint64_t granted;      /* the number of its grant in this batch, from 1; 0: it was not granted */
    const uint64_t *needs; /* set if an operation was put back; all later operations on this key are put back too */
    size_t need_count;
};

/* Marks the row as one to be written. */
static inline void key_change(struct key *key)
{
    key->row = key->row == ROW_NEW ? ROW_NEW : ROW_CHANGED;
}

/* Returns true if the row that was read is deleted. */
static inline bool key_is_removed(const struct key *key)
{
    return key->before && (!key->request || key->row == ROW_NEW);
}

/*
 * One semaphore, as the walk knows it: of a locked one its image, of another one the row that was read plainly. The
 * walk goes along the waiters in the order of their places; "earlier" means before the request that is being decided.
 */
struct queue_state {
    const struct semaphore *semaphore;
    const struct glimpse *glimpse; /* NULL: locked */
    int64_t reserved;              /* units that earlier waiters have reserved */
    int64_t reserved_any;          /* of these the units for any slots, and those of a counted semaphore */
    int64_t kept;                  /* units of earlier waiters that may fit and cannot be decided in this batch */
    unsigned runs, kept_runs;      /* runs of adjacent slots that are reserved, and kept */
    enum {
        FIFO_OPEN,
        FIFO_SHUT,  /* an earlier waiter was not granted: no later request gets units */
        FIFO_BARRED /* and it has reserved nothing: no later waiter reserves anything */
    } fifo;
    unsigned kept_needs; /* earlier waiters that keep their need; under `fifo` no later request gets units */
    bool ignores_kept;   /* the request that is being decided is looked at as if nothing were kept */
    int64_t due_units;   /* locked: units of due holders, which an acquire may end; valid in a walk */
    bool changed;        /* units of it were freed or confirmed in this batch, or a waiter has left, was granted, or was
                          asked for and refused, or it has a new acquire: a waiter that may fit is called */
    unsigned granted;    /* waiters that were granted in this batch */
};

/* A request of the queue that was not granted, and its effect on those behind it. */
struct stander {
    utc_us place;
    uint64_t id;                   /* UINT64_MAX: a new request */
    const struct request *request; /* NULL: of an acquire that is put back, or STANDS_UNREAD */
    const struct want *wants;
    size_t want_count;
    struct slots *slots; /* one per want: the certain slots of its need; count 0: any slots. NULL: any slots for all */
    const uint64_t *needs; /* STANDS_KEPT: the semaphores with which it can be decided; NULL: those it wants */
    size_t need_count;
    enum {
        STANDS_KEPT, /* it may fit, and cannot be decided in this batch; or it may reserve, if those before it do not:
                            its need is kept from those behind it */
        STANDS_RESERVED, /* protected: its whole need is reserved */
        STANDS_PLAIN,    /* it takes nothing from those behind it, except under fifo */
        STANDS_UNREAD,   /* protected waiters may follow that were not read: no request passes here */
    } how;
};

/* A waiter that could neither be granted nor reserve: those behind it that want the same cannot either. */
struct hopeless {
    struct bytes wanted;
    bool was_protected;
    bool was_read,
        protected_was_read; /* all before it were read, and before one that was protected: so those with the same
                                          needs that are read next stand behind it */
};

struct planner {
    const struct view *view;
    const struct operation *const *operations;
    size_t operation_count;
    const struct plan_settings *settings;
    struct arena *arena;
    utc_us now;            /* lease clock, for the times that rows store */
    utc_us due_now;        /* deadlines until then have passed */
    utc_us deadlines_from; /* deadlines that are set in this batch count from then */
    struct id_range ids;
    struct semaphore_image *images; /* locked ones, plus space for one new semaphore */
    size_t image_count;
    struct slot_view *slot_views; /* one per locked semaphore */
    struct queue_state *queues;   /* one per locked semaphore, then one per glimpse */
    struct stander *standers;     /* ascending by place, id */
    size_t stander_count;
    size_t kept_count; /* of them: STANDS_KEPT */
    size_t stood;      /* so many of them are counted in `queues` now: those before the request that is decided */
    bool walking;      /* the waiters are being decided */
    size_t read_for;   /* for so many of them the walk has asked for all that was not read */
    struct stander *put_backs; /* acquires that were put back: kept from the new requests behind them */
    size_t put_back_count;
    struct hopeless *hopeless; /* of this walk */
    size_t hopeless_count;
    uint64_t *unknown; /* semaphores that waiters want, and of which nothing was read */
    size_t unknown_count;
    size_t waiter_count;           /* requests that wait, or did when the batch began */
    uint64_t read_more, read_held; /* as in struct plan */
    bool walk_again;               /* units were freed, or a waiter has left, since the last walk */
    struct mail *mail;             /* in any order, with duplicates; mail to this server is a call */
    size_t mail_count;
    struct notice *notices; /* see struct plan */
    size_t notice_count;
    struct slots named[REQUEST_MAX_SEMAPHORES];        /* for each want for specific slots of the current acquire: the
                                                   numbers of its named slots; empty if it names none; for best
                                                   seats those chosen, empty if there are none */
    uint32_t largest_together[REQUEST_MAX_SEMAPHORES]; /* of the choices of best seats that failed */
    struct key *keys;                                  /* ascending by external_id */
    size_t key_count;
    struct key **due; /* held and due requests, the longest due first: an acquire that does not fit may end them */
    size_t due_count;
    const struct request **overdue; /* see struct plan; NULL: none yet */
    size_t overdue_count;
    struct key **chosen; /* those that the current acquire would end */
    struct key **key_of; /* per operation, of its external_id; NULL: administrative */
    struct outcome *outcomes;
    struct label_change *labels; /* changes of the one operation on labels */
    size_t label_count;
    struct seat_change *seats; /* changes of the one operation on seats */
    size_t seat_count;
    struct past_permit *past; /* of changes.past, in order of occurrence */
    size_t past_count;
    struct event *events;
    size_t event_count;
    uint64_t grants;         /* in this batch so far */
    struct feed_event *feed; /* of changes.feed */
    size_t feed_count;
    size_t packet_size; /* plan.packet_size so far */
    unsigned ended[END_REASON_COUNT];
};

/* Returns the index of a locked semaphore in view->semaphores; semaphore_count: not locked, or no such row. */
size_t view_semaphore_index(const struct view *view, uint64_t semaphore_id);
/* Returns what is known of a semaphore, locked or not; NULL: nothing. */
struct queue_state *planner_known(const struct planner *planner, uint64_t semaphore_id);
/* Returns the image of a locked semaphore; NULL: not locked, or no such row. */
struct semaphore_image *planner_image(struct planner *planner, uint64_t semaphore_id);
struct queue_state *planner_queue(const struct planner *planner, const struct semaphore_image *image);
/* Returns the key; NULL: no operation and no row of the batch has it. */
struct key *planner_key(const struct planner *planner, struct bytes external_id);
/* Returns the image of the row with this key; NULL: not among the rows of the batch. */
const struct request *planner_request(const struct planner *planner, struct bytes external_id);
/* Marks the semaphore as changed; its version rises once per batch. */
void semaphore_mark_changed(struct semaphore_image *image);
/* Returns true if all semaphores of the request are locked, also those it waits for; only then may it be changed. */
bool view_has_locked_all(const struct view *view, const struct request *request);
/* Returns an owner whose row was read; NULL: it was not, or there is none. */
const struct owner_state *view_owner(const struct view *view, struct bytes name);
/* Compares an external_id with that of a row that begins with it, for bsearch. */
int compare_key(const void *external_id, const void *row);
/*
 * Returns the number of semaphores of the request that the scope does not cover, also those it waits for. One that is
 * not locked counts as not covered: its name is not known. scope NULL: 0.
 */
size_t planner_out_of_scope(struct planner *planner, const struct request *request, const struct scope *scope);

/* ---- plan_slots.c ---- */

/* Fills the slot views from the view. */
void planner_fill_slot_views(struct planner *planner);
/* Returns the slot view of a locked semaphore; a new one has none. */
struct slot_view *planner_slot_view(struct planner *planner, const struct semaphore_image *image);
/* Frees the slots of a permit that ends, or (`frees` false) takes those again that were freed last. */
void planner_move_slots(struct planner *planner, struct semaphore_image *image, const struct permit *permit,
                        bool frees);
/*
 * Fills planner->named[index] for the want for specific slots with that index. PERMIT_INVALID,
 * PERMIT_NEVER_SATISFIABLE: the want can never be granted as it is; *ret_detail says why.
 */
enum permit_status planner_resolve_want(struct planner *planner, const struct want *want, size_t index,
                                        const char **ret_detail) MUST_CHECK;
/*
 * Returns the number of slots that a resolved want lacks, regardless of free units; 0 unless it is for specific slots.
 */
int64_t planner_slots_missing(struct planner *planner, const struct want *want, size_t index);
/*
 * Returns the slots that a want for specific slots should reclaim if it lacks some: it needs `count` of them free, so
 * ending a due holder of any of them helps. For adjacent slots: the lowest run that is free or due; empty if ending all
 * due holders would not help. For best seats: those chosen as if all due holders had ended. None of them is reserved.
 */
struct slots planner_slots_to_reclaim(struct planner *planner, const struct want *want, size_t index);
/* Returns the units of a held permit that its end frees for later requests: none of its reserved slots. */
int64_t planner_units_freed(struct planner *planner, const struct permit *permit);
/*
 * Chooses the slots that a waiter with a resolved want for specific slots reserves: all that it names; of some named
 * ones, and of adjacent ones, those of which the fewest are held, the lowest first. None of them is reserved already,
 * or held by a confirmed request. count 0: there is no such choice, or the want is for best seats.
 */
struct slots planner_slots_to_reserve(struct planner *planner, const struct want *want, size_t index);
/* Returns the bytes of the labels that the slots of a permit would have, which lacks none. */
size_t planner_labels_size(struct planner *planner, const struct want *want, size_t index);
/* Fills shortage->taken with the named slots of the want that are held now, in the arena. */
void planner_taken_slots(struct planner *planner, const struct want *want, size_t index, struct shortage *shortage);
/*
 * Returns a slot of a want for all of its named slots that is held as the plan stands now, by a confirmed request if
 * there is such a one, because that one stays held the longest; 0: none is known.
 */
uint32_t planner_held_slot(struct planner *planner, const struct want *want);
/* Takes the slots of a permit, with their labels; the caller has checked that none is lacking. */
void planner_take_slots(struct planner *planner, const struct want *want, size_t index, const struct key *key,
                        struct permit *permit);

/* ---- plan_feed.c ---- */

/* Sets the events of the changes, when all is decided. */
void collect_feed(struct planner *planner, struct changes *changes);
/* Returns the bytes of an event with a permit of so many slots of this semaphore; 0: the feed has none. */
size_t packet_of_event(const struct semaphore *semaphore, int64_t slots);
/* Returns the bytes of the event of this request's end. */
size_t packet_of_end_event(struct planner *planner, const struct request *request);

/* ---- plan_acquire.c ---- */

/* The combined limits of all semaphores of a request: the smallest ttls and max_hold, the largest grace. */
struct hold_limits {
    int64_t default_ttl_ms;
    int64_t max_ttl_ms; /* -1: none */
    int64_t max_hold_ms;
    int64_t grace_ms;
};
#define NO_HOLD_LIMITS ((struct hold_limits){INT64_MAX, -1, INT64_MAX, 0})

/* The check of an acquire against the rows: it fits, or the reason why not. */
struct fit {
    enum permit_status status; /* PERMIT_OK: it fits; else a refusal, with the next four as in struct outcome */
    const char *detail;
    int64_t max_ttl_ms;
    const struct shortage *shortages;
    size_t shortage_count;
    struct hold_limits limits;
    size_t packet_size;    /* if it fits: the bytes that the grant adds to planner->packet_size */
    struct key **unlocked; /* it fits only if these due holders end, and not all their semaphores are locked */
    size_t unlocked_count; /* 0: there are none */
};

/*
 * Checks if the acquire can be granted now; ends due holders if that makes it fit. All its semaphores are locked, or
 * one does not exist, which is the refusal. Fills planner->named for the grant.
 */
struct fit acquire_fit(struct planner *planner, const struct operation *operation);
/* Returns the refusal of an acquire that does not fit. */
struct outcome outcome_of_fit(const struct fit *fit);
/*
 * Collects the due holders whose end a request waits for (fit->unlocked): those with an unlocked semaphore are overdue.
 */
void note_overdue(struct planner *planner, const struct fit *fit);
/* After acquire_fit: returns true if the acquire would fit now, also by ending due holders; ends none. */
bool acquire_would_fit(struct planner *planner, const struct operation *operation);
/* Sets the metadata that the batch writes for the request, if the operation has any. */
void request_set_metadata(struct planner *planner, struct request *request, const struct operation *operation);
/* Makes the row of an acquire that has none. */
struct request *request_of_acquire(struct planner *planner, struct key *key, const struct operation *operation);
/*
 * Returns the reason for which a want of a locked semaphore can never be granted as it is, whatever is free; PERMIT_OK:
 * none. Fills planner->named[index] for a want for specific slots.
 */
enum permit_status want_refusal(struct planner *planner, const struct want *want, size_t index,
                                const char **ret_detail) MUST_CHECK;
/*
 * Returns true if the transaction can write `size` bytes beside what the batch writes already. Else the next one may.
 */
bool packet_has_room(const struct planner *planner, size_t size);
/*
 * Returns true if the batch has one operation, whose grant has no room beside those of earlier waiters and the ends of
 * due holders: it is put back. A batch of several that does not fit is run in parts.
 */
bool is_crowded_out(const struct planner *planner, const struct fit *fit);
/*
 * Returns the number of units that a want lacks beside what earlier waiters have reserved or keep; 0 or less: none.
 * INT64_MAX: ending holders does not help.
 */
int64_t units_missing(const struct planner *planner, const struct want *want);
/*
 * Returns true if a refusal is temporary. PERMIT_BUSY of an acquire means that the epoch was just raised.
 */
static inline bool refusal_may_wait(enum permit_status status)
{
    return status == PERMIT_NO_CAPACITY || status == PERMIT_PAUSED || status == PERMIT_BUSY;
}
/* Grants the units of a want that fits, with a new token. planner->named[index] is of this want. */
void grant_permit(struct planner *planner, const struct want *want, size_t index, const struct key *key, utc_us due_at,
                  struct permit *permit);
/*
 * Grants the permits to a new request, or to one that waits. `unclaimed_at`: the server at which its client waits,
 * which has to claim it; 0: it is claimed.
 */
void grant(struct planner *planner, struct key *key, const struct operation *operation, const struct fit *fit,
           uint64_t unclaimed_at);
/* Refuses an acquire whose key stands for this request, which is a different one. */
void refuse_reused(struct planner *planner, struct outcome *outcome, const struct request *request,
                   const struct operation *operation);
/* Claims an unclaimed grant: its ttl counts from now. */
void claim(struct planner *planner, struct key *key);

/* ---- plan_queue.c ---- */

/* Returns true if the server is alive. 0 is no server; if the living servers were not read, all others are alive. */
bool server_is_alive(const struct planner *planner, uint64_t server_id);
/* Records mail to the server of this request, or a call if it is this one. */
void send_mail(struct planner *planner, uint64_t server_id, uint64_t request_id);
/* Returns the place of an acquire: that of its waiter, or the one that it gets if it begins to wait now. */
utc_us place_of_acquire(struct planner *planner, const struct operation *operation);
/* Returns true for a look: the request of its subscribers is entered again if its row is gone. */
bool operation_may_enter_again(const struct planner *planner, const struct operation *operation);
enum asked {
    ASKED_ROW,          /* the walk decides the row for it, and answer_ask answers it then */
    ASKED_ANEW,         /* it is a new request, to be decided after the walk */
    ASKED_AND_ANSWERED, /* its outcome is set */
};
/* An acquire, look or leave whose key waits or has no row: does all for it that comes before the walk. */
enum asked plan_ask(struct planner *planner, struct outcome *outcome, struct key *key,
                    const struct operation *operation) MUST_CHECK;
/* After the walk: answers an operation with ASKED_ROW by what has become of the row. */
void answer_ask(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation);
/* Enters a new request that was refused (outcome->status) into the queue, or refuses that too. */
void queue_enter(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation);
/* Counts the places of a request in (1), or out (-1); 0: they change, but no client asks for them. */
void count_places(struct planner *planner, const struct request *request, int asked);
/* Returns true if the request waits at this server. */
bool is_ours(const struct planner *planner, const struct request *request);
/* The walk refuses a request that operations ask for. `fit` lives as long as the plan. */
void waiter_refuse(struct planner *planner, struct key *key, const struct fit *fit);
/* Tells the subscribers of a key that is granted; a key is granted once in a batch. */
void add_notice(struct planner *planner, const struct key *key, const struct outcome *outcome, bool unasked);
/* The request ends before it was granted: it is RELEASED as never held, and its server is told. */
void waiter_release(struct planner *planner, struct key *key);
/* Removes the row and its places; its server is told. */
void waiter_remove(struct planner *planner, struct key *key);
/* Collects the places, the mail and the calls. */
void collect_places(struct planner *planner, struct changes *changes);
void collect_mail(struct planner *planner, struct plan *plan);

/* ---- plan_walk.c ---- */

/* Decides all requests that wait. Does nothing if there are none. */
void queue_walk(struct planner *planner);
/* A request at this place is decided next: counts what is reserved and kept for those that stand before it. */
void stand_before(struct planner *planner, utc_us place, uint64_t id);
/* Adds a new request that is not granted. */
void stand(struct planner *planner, const struct request *request);
/* Keeps the need of an acquire that is put back, to lock these semaphores, from the new requests behind it. */
void stand_put_back(struct planner *planner, const struct operation *operation, const uint64_t *needs,
                    size_t need_count);
/*
 * Returns the semaphores with which a batch can decide an acquire that lacks only kept units, as acquire_fit has found:
 * its own, and those of the waiters that keep them. NULL: it lacks something else, or they are more than a batch locks,
 * or it was put back for that and there are no more, or too often; *ret_count is then 0.
 */
uint64_t *find_wider_locks(struct planner *planner, const struct operation *operation, size_t *ret_count);
/* Returns true if a walk asked for more rows. */
bool planner_reads_more(const struct planner *planner);
/* Collects what to read before the batch is planned again. */
void collect_reads(struct planner *planner, struct plan *plan);

/* ---- plan_labels.c ---- */

/*
 * Fills planner->labels and planner->seats with the changes for `image`. PERMIT_INVALID, PERMIT_IN_USE: *ret_detail
 * says why.
 */
enum permit_status planner_change_labels(struct planner *planner, const struct semaphore_image *image,
                                         const struct semaphore_change *change, const char **ret_detail) MUST_CHECK;
/* Records an event if any label changes, and one if any seat does. */
void planner_record_labels(struct planner *planner, const struct semaphore_image *image,
                           const struct operation *operation);

/* ---- planner.c; the ends of requests are in plan_hold.c, new ones in plan_acquire.c ---- */

/* Returns the list of `count` items of this size with room for another: the same one, or a larger copy. */
void *planner_list(const struct planner *planner, void *list, size_t count, size_t size);
/* Formats the detail of a refusal in the arena. */
const char *planner_sentence(struct planner *planner, const char *format, ...) PRINTF_LIKE(2, 3);
/* Sets a refusal. `detail` must live as long as the plan; NULL: the status's title. */
void outcome_refuse(struct outcome *outcome, enum permit_status status, const char *detail);
/* Puts a copy of the row, as it is now, into the answer. */
void outcome_attach_row(struct planner *planner, struct outcome *outcome, const struct request *request);
/* Same as outcome_attach_row, for a row that the operation does not otherwise change: it is still written. */
void outcome_count_replay(struct planner *planner, struct outcome *outcome, struct key *key);
/*
 * Returns true if nothing is decided about the key now, because an earlier operation on it was put back, or another
 * session has locked its row. Sets the outcome.
 */
bool key_is_blocked(struct planner *planner, struct outcome *outcome, struct key *key,
                    const struct operation *operation);
/*
 * Collects the semaphores of the rows of the operation's keys, ascending: REQUEST_MAX_SEMAPHORES of each, at most.
 * Returns their number.
 */
size_t semaphores_of_keys(const struct planner *planner, const struct operation *operation, uint64_t *ret_ids);
/*
 * Puts the operation back into the queue. `needs` lists the semaphores of the operation, of the rows of its keys,
 * and `more` (NULL with 0). Later operations on these keys are put back too. An acquire keeps its need in this batch.
 */
void outcome_put_back(struct planner *planner, struct outcome *outcome, struct key *key,
                      const struct operation *operation, const uint64_t *more, size_t more_count);

/* Records an operator's change of a locked semaphore. */
void record_event(struct planner *planner, const struct semaphore_image *image, struct event event);

/* Creates the row of a key that has none; copies the strings. */
struct request *request_new(struct planner *planner, const struct operation *operation);
/* Returns true if the request is held and past its due_at, so permitd may end it. */
bool request_is_due(const struct planner *planner, const struct request *request);
/* Returns END_EXPIRED, or END_STALE for a request without a ttl. */
enum end_reason due_reason(const struct request *request);
/* Does to a held request what procedures have marked. Its row and all its semaphores must be locked. */
void settle(struct planner *planner, struct key *key);
/* Ends a held request. All its semaphores must be locked. */
void end_request(struct planner *planner, struct key *key, enum end_reason reason);

/*
 * The common checks of operations on a held request. True: it is held or has ended, and all its semaphores are locked.
 * False: the outcome is 404, or put back. A request that waits holds nothing: 404.
 */
bool check_known(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation);
void limits_add(struct hold_limits *limits, const struct semaphore *semaphore);
/* Returns the combined limits of the semaphores of a held request, all of which are locked. */
struct hold_limits limits_of_request(struct planner *planner, const struct request *request);
/* Returns the reason to refuse a ttl, with the longest that is accepted; NULL: allowed. */
const char *ttl_refusal(struct ttl ttl, const struct hold_limits *limits, int64_t *ret_max_ttl_ms);
/* Returns the due_at of a request granted or renewed now; NEVER: no deadline of its own. */
utc_us due_from(utc_us now, int64_t ttl_ms, int64_t grace_ms, int64_t max_hold_ms);

/* Functions that decide one operation. The result is in the outcome. */
typedef void plan_keyed(struct planner *planner, struct outcome *outcome, struct key *key,
                        const struct operation *operation);
typedef void plan_administrative(struct planner *planner, struct outcome *outcome, const struct operation *operation);
plan_keyed plan_new, plan_replay, plan_release, plan_renew, plan_confirm, plan_exchange, plan_expire, plan_settle,
    plan_force_release;
plan_administrative plan_put, plan_labels, plan_pause, plan_retire; /* plan_pause resumes, too */
#endif
