/* SPDX-License-Identifier: MIT */
#include "store/procedures.h"

#include <assert.h>
#include <stdio.h>

#include "store/dialect.h"
#include "store/packet.h"
#include "store/schema.h"

/* Longer than a permitd of an older version needs to find that the schema is not its own: it checks every 5 s. */
enum { AFTER_SCHEMA_S = 8 };

/*
 * Appends a text with what is for the session's server only: the text of comments that begin with the mark of MariaDB or
 * that of MySQL, as the servers read them. What is sent has no such comment, so the server keeps that text as it is.
 */
static void append_for(const struct session *session, struct bytes text, struct buf *out)
{
    static const struct {
        struct bytes mark;
        bool mariadb;
    } marks[] = {{{"/*M!", 4}, true}, {{"/*!80000", 8}, false}};
    bool inside = false, omitted = false;
    for (size_t i = 0; i < text.length;) {
        const struct bytes rest = {text.data + i, text.length - i};
        size_t m = 0;
        while (m < ARRAY_LENGTH(marks) && !bytes_begin_with(rest, marks[m].mark))
            m++;
        if (m < ARRAY_LENGTH(marks)) {
            inside = true;
            omitted = marks[m].mariadb != session_is_mariadb(session);
            i += marks[m].mark.length;
        } else if (inside && bytes_begin_with(rest, BYTES("*/"))) {
            inside = omitted = false;
            i += 2;
        } else {
            if (!omitted)
                buf_append_char(out, text.data[i]);
            i++;
        }
    }
}

static struct bytes trimmed(struct bytes text)
{
    while (text.length && strchr(" \n", text.data[text.length - 1]))
        text.length--;
    return text;
}

/* The statement of a file, without the comments before it. */
static struct bytes statement_of(const struct procedure *procedure)
{
    const char *start = strstr(procedure->text, "CREATE ");
    assert(start);
    return trimmed(bytes_of(start));
}

/* The part of the statement that the server keeps as text: that after the characteristics. */
static struct bytes body_of(const struct procedure *procedure)
{
    static const char last[] = "SQL SECURITY DEFINER\n";
    struct bytes statement = statement_of(procedure);
    const char *end = memmem(statement.data, statement.length, last, sizeof last - 1);
    assert(end);
    end += sizeof last - 1;
    return (struct bytes){end, statement.length - (size_t)(end - statement.data)};
}

static bool body_is(const struct session *session, const struct procedure *procedure, struct bytes found)
{
    struct buf body;
    struct bytes known = body_of(procedure);
    buf_init(&body, 2 * known.length);
    append_for(session, known, &body);
    bool same = !body.broken && bytes_equal(trimmed(found), (struct bytes){body.data, body.length});
    buf_release(&body);
    return same;
}

enum permit_status procedures_find(struct session *session, struct procedure_found ret_found[PROCEDURE_COUNT])
{
    struct packet packet = packet_begin(session, NULL);
    memset(ret_found, 0, PROCEDURE_COUNT * sizeof *ret_found);
    buf_append_text(&packet.sql, "SELECT ROUTINE_NAME,ROUTINE_DEFINITION,SECURITY_TYPE,DEFINER FROM"
                                 " information_schema.ROUTINES WHERE ROUTINE_SCHEMA=DATABASE() AND"
                                 " ROUTINE_TYPE='PROCEDURE' AND ROUTINE_NAME IN (''");
    for (size_t i = 0; i < PROCEDURE_COUNT; i++)
        buf_printf(&packet.sql, ",'%s'", procedures_all[i].name);
    buf_append_char(&packet.sql, ')');
    packet_send(&packet);
    while (packet_row(&packet)) {
        struct bytes name = row_column(&packet.row), body = row_column(&packet.row);
        struct bytes security = row_column(&packet.row), definer = row_column(&packet.row);
        for (size_t i = 0; i < PROCEDURE_COUNT; i++) {
            if (!bytes_equal(name, bytes_of(procedures_all[i].name)))
                continue;
            ret_found[i].exists = true;
            ret_found[i].same = body_is(session, &procedures_all[i], body) && bytes_equal(security, BYTES("DEFINER"));
            snprintf(ret_found[i].definer, PROCEDURE_ACCOUNT_SIZE, "%.*s", (int)definer.length, definer.data);
        }
    }
    return packet_end(&packet);
}

static enum permit_status create(struct session *session, const struct procedure *procedure)
{
    struct packet packet = packet_begin(session, NULL);
    append_for(session, statement_of(procedure), &packet.sql);
    packet_send(&packet);
    return packet_end(&packet);
}

/* Creates what is missing, and on MariaDB what is another. The named lock is held. */
static enum permit_status create_all(struct session *session, struct procedures_result *result, struct buf *message)
{
    struct procedure_found found[PROCEDURE_COUNT];
    enum permit_status status = procedures_find(session, found);
    for (size_t i = 0; status == PERMIT_OK && i < PROCEDURE_COUNT; i++) {
        if (found[i].same)
            continue;
        if (found[i].exists && !session_is_mariadb(session)) {
            result->state = PROCEDURES_OTHER;
            continue;
        }
        status = create(session, &procedures_all[i]);
        result->installed += status == PERMIT_OK;
    }
    if (status == PERMIT_OK)
        return PERMIT_OK;
    buf_append_text(message, session_message(session));
    if (!session_lacks_right(session))
        return status;
    result->state = PROCEDURES_DENIED;
    return PERMIT_OK;
}

/* Takes the named lock, if it is free, and finds whether the schema is complete for long enough. */
static enum permit_status begin(struct session *session, const char *database, bool *ret_locked, bool *ret_ready)
{
    struct packet packet = packet_begin(session, NULL);
    buf_printf(&packet.sql,
               "USE `%s`;SET SESSION lock_wait_timeout=1;SELECT GET_LOCK(" DIALECT_LOCK_NAME(
                   "schema") ",0);"
                             "SELECT COALESCE(version=%u AND applied_at<=UTC_TIMESTAMP(6)-INTERVAL %d SECOND,0) FROM "
                             "schema_version"
                             " ORDER BY version DESC LIMIT 1",
               database, schema_newest(), AFTER_SCHEMA_S);
    packet_send(&packet);
    packet_next(&packet);
    packet_next(&packet);
    *ret_locked = packet_row(&packet) && row_u64(&packet.row) == 1;
    packet_next(&packet);
    *ret_ready = packet_row(&packet) && row_u64(&packet.row) == 1;
    return packet_end(&packet);
}

enum permit_status procedures_install(struct session *session, const char *database,
                                      struct procedures_result *ret_result, struct buf *message)
{
    struct procedures_result result = {.state = PROCEDURES_EARLY};
    bool locked = false, ready = false;
    enum permit_status status = begin(session, database, &locked, &ready);
    if (status != PERMIT_OK)
        buf_append_text(message, session_message(session));
    if (status == PERMIT_OK && locked && ready) {
        result.state = PROCEDURES_CURRENT;
        status = create_all(session, &result, message);
    }
    if (locked) {
        enum permit_status unlocked = session_run(session, "DO RELEASE_LOCK(" DIALECT_LOCK_NAME("schema") ")");
        if (status == PERMIT_OK)
            status = unlocked;
    }
    if (status == PERMIT_OK)
        *ret_result = result;
    return status;
}
