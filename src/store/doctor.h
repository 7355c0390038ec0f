/* SPDX-License-Identifier: MIT */
/*
 * Checks the server settings that a session cannot set for itself. permitd refuses to serve on a setting that breaks a
 * promise (P14). It checks at its start, on each new connection of a worker, and every few seconds, because a setting
 * can change while a connection is open. `permitd --check` and `permitctl doctor` print the list.
 */
#ifndef STORE_DOCTOR_H
#define STORE_DOCTOR_H

#include "base/base.h"
#include "base/buf.h"

enum doctor_verdict {
    DOCTOR_OK,
    DOCTOR_WARN,   /* permitd's promises hold; other users of the server, or speed, may suffer */
    DOCTOR_REFUSE, /* a promise does not hold */
};

enum { DOCTOR_MAX_FINDINGS = 48, DOCTOR_SENTENCE_SIZE = 400 };

struct doctor_finding {
    enum doctor_verdict verdict;
    const char *check;                   /* name of the check, such as "flush_at_commit"; constant text */
    char sentence[DOCTOR_SENTENCE_SIZE]; /* the value found; unless it is OK, also the consequence and the fix */
};

struct doctor_report {
    struct doctor_finding findings[DOCTOR_MAX_FINDINGS];
    size_t count;
    size_t refusals; /* number of findings with DOCTOR_REFUSE */
    size_t warnings; /* number of findings with DOCTOR_WARN */
};

struct doctor_options {
    bool unsafe_multi_writer; /* several writable nodes are a warning, not a refusal */
};

/* A global variable or status value of the server. Facts that the server does not have are left out. */
struct doctor_fact {
    const char *name;  /* "sync_binlog" */
    const char *value; /* "1" */
};

/* The undo log that open transactions keep in the database. */
struct doctor_undo {
    int64_t history;  /* length of InnoDB's history list; -1: unknown */
    int64_t oldest_s; /* age of the oldest open transaction; -1: unknown, as without the right PROCESS */
};

/* Judges given facts, without a server and without tables. */
void doctor_judge(const struct doctor_fact *facts, size_t count, const struct doctor_options *options,
                  struct doctor_report *ret_report);
/* Adds a finding; callers outside doctor.c add their own. `check` is constant text. A full report ignores it. */
void doctor_add(struct doctor_report *report, const char *check, enum doctor_verdict verdict, const char *format, ...)
    PRINTF_LIKE(4, 5);

/*
 * Writes the first refusal and the number of others: "sync_binlog is 0: with log_bin ... (and 1 more: permitctl
 * doctor)". "" if there is no refusal.
 */
void doctor_format_refusal(const struct doctor_report *report, char *ret_sentence, size_t size);
/* Returns "ok", "warn" or "refuse". */
const char *doctor_verdict_word(enum doctor_verdict verdict);
/* Prints one line per finding, "refuse  flush_at_commit  sentence". `from` is the mildest verdict to print. */
void doctor_print(const struct doctor_report *report, enum doctor_verdict from, struct buf *out);
#endif
