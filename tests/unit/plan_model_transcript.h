/* SPDX-License-Identifier: MIT */
/*
 * Transcripts of plan_batch(): a line is a batch, operations in order of arrival, and how each ends. script_run() holds
 * each against the model as well, so a transcript says in words what the model says in code.
 *
 *     "ok created ACQUIRED a=7[1,2] b=3x5 ttl=30s due=31s replays=1"   token 7 with slots 1 and 2 of a, token 3 with 5
 *                                                   units of the counted b; deadlines count from the first batch
 *     "no_capacity a:1+2>2"                         1 in use, 2 wanted, capacity 2
 *     "put_back ..."                                how it ended after it was put back
 *     "; k2: ok created ...", "; mail 2 k2", "; call k2"  after the outcomes: a grant to a waiter that no operation asks
 *                                                   for; mail to a permitd, and a call at this one
 *     "-"                                           at the end: the batch had nothing to write
 *
 * "alive=6", "grants_from=5s", "server=2", "was=1" and "dead=4" are no operations: they say which owners are alive (a bit each),
 * from when on something may be granted, which permitd runs the batch, and which permitd are dead (a bit each), in this
 * batch and later ones.
 */
#ifndef UNIT_PLAN_MODEL_TRANSCRIPT_H
#define UNIT_PLAN_MODEL_TRANSCRIPT_H

#include "plan_model.h"

struct line {
    const char *operations; /* separated by "; " */
    const char *expected;   /* likewise */
    int64_t at_s;           /* seconds since the first batch; 0: as before */
    uint64_t epoch;         /* 0: as before */
};

struct transcript {
    struct run run;
    struct script script;
    struct buf notes[MODEL_STEPS];
    bool shows_record; /* events follow each outcome: " +a capacity 1>2" */
};

extern struct transcript transcript;

void transcript_init(void);
void transcript_release(void);
/* Notes of a PUT would point into the parsed text, so transcripts have none. */
void transcript_expect(const struct line *lines, size_t count);

#define EXPECT(...)                                                                                                    \
    do {                                                                                                               \
        static const struct line lines[] = {__VA_ARGS__};                                                              \
        transcript_expect(lines, ARRAY_LENGTH(lines));                                                                 \
    } while (0)

#define PUT_A(capacity)                                                                                                \
    {                                                                                                                  \
        "put a capacity=" #capacity, "ok created capacity=" #capacity " in_use=0 config=1", 0, 0                       \
    }
#define PUT_B(capacity)                                                                                                \
    {                                                                                                                  \
        "put b capacity=" #capacity, "ok created capacity=" #capacity " in_use=0 config=1", 0, 0                       \
    }
#endif
