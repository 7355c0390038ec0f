/* SPDX-License-Identifier: MIT */
/*
 * The procedures that shops call in their own transactions (docs/protocol.md, "Sales in SQL"). They are installed beside
 * the schema, not by a migration: permitd serves without them, and its user may lack the right to create them.
 */
#ifndef STORE_PROCEDURES_H
#define STORE_PROCEDURES_H

#include "base/buf.h"
#include "permit/status.h"

struct session;

enum { PROCEDURE_COUNT = 8, PROCEDURE_ACCOUNT_SIZE = 400 };

/* The files of sql/procedures/, embedded by CMakeLists.txt, in the order of installation. */
struct procedure {
    const char *name; /* the name in SQL */
    const char *text; /* comments and one statement, CREATE PROCEDURE; differences of the servers in comments for one */
};
extern const struct procedure procedures_all[PROCEDURE_COUNT];

/* The procedures that a shop may be granted; the others are called by these. */
static const char *const procedures_public[] = {"permit_confirm", "permit_release", "permit_refund", "permit_hold"};

/* What the database has of one procedure. */
struct procedure_found {
    bool exists;
    bool same;                            /* with the text of this permitd */
    char definer[PROCEDURE_ACCOUNT_SIZE]; /* USER@HOST */
};

/* Reads the procedures of the session's current database, in the order of procedures_all. */
enum permit_status procedures_find(struct session *session,
                                   struct procedure_found ret_found[PROCEDURE_COUNT]) MUST_CHECK;

enum procedures_state {
    PROCEDURES_CURRENT, /* all are there, with the text of this permitd */
    PROCEDURES_EARLY,   /* the schema is not complete for long enough, or another permitd is at it: call again soon */
    PROCEDURES_DENIED,  /* this user has no right to create them; the message has the server's words */
    PROCEDURES_OTHER,   /* MySQL: one has another text, and is not replaced, since its grants would go with it */
};

struct procedures_result {
    enum procedures_state state;
    unsigned installed; /* number of procedures that this call has created or replaced */
};

/*
 * Creates the procedures that are missing and, on MariaDB, replaces those with another text; an unchanged one is left
 * alone. Does so under the named lock of the schema, and not before 8 s after the newest version of the schema was
 * written: until then a permitd of an older version may be in a batch beside it, which does not know of errands. The
 * session has no open transaction and a STORE_ADMIN's time-outs. PERMIT_LOCK_TIMEOUT: a procedure is in use in a
 * transaction that is open; call again later. On failure `message` has the cause.
 */
enum permit_status procedures_install(struct session *session, const char *database,
                                      struct procedures_result *ret_result, struct buf *message) MUST_CHECK;
#endif
