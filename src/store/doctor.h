/* SPDX-License-Identifier: MIT */
/*
 * Is this server safe? Settings that a session cannot set for itself, checked one by one. permitd refuses to serve on
 * what would break a promise (P14): at its start, on each new connection of a worker, and, because a setting can change
 * under an open connection, every few seconds. `permitd --check` and `permitctl doctor` print the list.
 */
#ifndef STORE_DOCTOR_H
#define STORE_DOCTOR_H

#include "base/buf.h"
#include "store/session.h"

enum doctor_verdict {
    DOCTOR_OK,
    DOCTOR_WARN,   /* permitd's promises hold; something else may suffer */
    DOCTOR_REFUSE, /* a promise would not hold */
};

enum { DOCTOR_MAX_FINDINGS = 32, DOCTOR_SENTENCE_SIZE = 400 };

struct doctor_finding {
    enum doctor_verdict verdict;
    const char *check;                   /* "flush_at_commit"; constant text */
    char sentence[DOCTOR_SENTENCE_SIZE]; /* what was found; if not OK also why that matters and how to mend it */
};

struct doctor_report {
    struct doctor_finding findings[DOCTOR_MAX_FINDINGS];
    size_t count;
    size_t refusals; /* how many of them are DOCTOR_REFUSE */
    size_t warnings;
};

struct doctor_options {
    bool unsafe_multi_writer; /* several writable primaries are only a warning */
};

/* Something that is so at the server: a global variable, a status value. Those that it does not have are left out. */
struct doctor_fact {
    const char *name;  /* "sync_binlog" */
    const char *value; /* "1" */
};

/*
 * Examines the server and, if the session is in a database, the tables there: a few small reads. `options` NULL: none.
 * PERMIT_OK means that the questions were answered, not that all is well; on any other status *ret_report is untouched
 * (session_message says why).
 */
enum permit_status doctor_examine(struct session *session, const struct doctor_options *options,
                                  struct doctor_report *ret_report) MUST_CHECK;
/* The same of given facts, without tables: what they mean, decided without a server. */
void doctor_judge(const struct doctor_fact *facts, size_t count, const struct doctor_options *options,
                  struct doctor_report *ret_report);
/* One more finding, of somebody else's; `check` is constant text. A report that is full takes no more. */
void doctor_add(struct doctor_report *report, const char *check, enum doctor_verdict verdict, const char *format, ...)
    PRINTF_LIKE(4, 5);

/*
 * The first refusal, and how many more there are: "sync_binlog is 0: with log_bin ... (and 1 more: permitctl doctor)".
 * "" without refusals.
 */
void doctor_say_refusal(const struct doctor_report *report, char *ret_sentence, size_t size);
/* "ok", "warn", "refuse". */
const char *doctor_verdict_word(enum doctor_verdict verdict);
/* One line a finding: "refuse  flush_at_commit  sentence". from: the mildest verdict that is printed. */
void doctor_print(const struct doctor_report *report, enum doctor_verdict from, struct buf *out);
#endif
