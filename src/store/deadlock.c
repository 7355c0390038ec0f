/* SPDX-License-Identifier: MIT */
/*
 * The section LATEST DETECTED DEADLOCK of SHOW ENGINE INNODB STATUS. MariaDB and MySQL write it for people, nearly
 * equal; an unknown line is passed over.
 *
 *     2026-11-28 03:11:22 0x7f3b1c0d5700
 *     *** (1) TRANSACTION:
 *     TRANSACTION 4711, ACTIVE 5 sec starting index read
 *     MariaDB thread id 12, OS thread handle 139, query id 55 localhost root Updating
 *     UPDATE ...
 *     *** (1) WAITING FOR THIS LOCK TO BE GRANTED:                  MariaDB: without its number
 *     RECORD LOCKS space id 5 page no 3 n bits 8 index PRIMARY of table `permitd`.`semaphore` trx id 4711 ...
 *     *** (2) TRANSACTION:
 *     ...
 *     *** WE ROLL BACK TRANSACTION (1)
 */
#include "store/locks.h"
#include "store/packet.h"

static bool line_next(struct bytes *text, struct bytes *ret_line)
{
    if (text->length == 0)
        return false;
    const char *end = memchr(text->data, '\n', text->length);
    size_t length = end ? (size_t)(end - text->data) : text->length;
    *ret_line = (struct bytes){text->data, length};
    text->data += length + (end != NULL);
    text->length -= length + (end != NULL);
    return true;
}

/* Returns what follows the first `part` of the line; data NULL: the line does not have it. */
static struct bytes line_after(struct bytes line, const char *part)
{
    const char *found = line.length ? memmem(line.data, line.length, part, strlen(part)) : NULL;
    if (!found)
        return (struct bytes){0};
    found += strlen(part);
    return (struct bytes){found, line.length - (size_t)(found - line.data)};
}

/* Cuts the text before the first of the bytes `ends` off. */
static struct bytes cut_word(struct bytes *text, const char *ends)
{
    size_t length = 0;
    while (length < text->length && !strchr(ends, text->data[length]))
        length++;
    struct bytes word = {text->data, length};
    size_t cut = length + (length < text->length);
    *text = (struct bytes){text->data + cut, text->length - cut};
    return word;
}

/* Reads N of "(N)"; 0 if there is none. */
static unsigned number_of(struct bytes text)
{
    return text.length >= 3 && text.data[0] == '(' && text.data[2] == ')' && text.data[1] > '0' && text.data[1] <= '9'
               ? (unsigned)(text.data[1] - '0')
               : 0;
}

/* "55 localhost root Updating", or with the address behind the name of the host: "55 db7 10.0.0.7 shop Updating". */
static void read_account(struct bytes after_query_id, struct deadlock_part *part)
{
    (void)cut_word(&after_query_id, " ");
    part->host = cut_word(&after_query_id, " ");
    part->user = cut_word(&after_query_id, " ");
    if (part->user.length &&
        (memchr(part->user.data, '.', part->user.length) || memchr(part->user.data, ':', part->user.length)))
        part->user = cut_word(&after_query_id, " ");
}

/* Reads "PRIMARY of table `permitd`.`semaphore` trx id ...". Returns whether the table is in the database. */
static bool lock_of(struct bytes after_index, struct bytes database, struct deadlock_part *part)
{
    struct bytes index = cut_word(&after_index, " "), rest = line_after(after_index, "of table `");
    if (!rest.data)
        return false;
    struct bytes within = cut_word(&rest, "`");
    rest = line_after(rest, ".`");
    struct bytes table = cut_word(&rest, "`");
    bool ours = bytes_equal(within, database);
    if (ours || !part->table.data) {
        part->index = index;
        part->table = ours ? table : (struct bytes){within.data, (size_t)(table.data - within.data) + table.length};
    }
    return ours;
}

void deadlock_parse(struct bytes status, struct bytes database, struct deadlock *ret_deadlock)
{
    struct deadlock found = {.count = 0};
    struct deadlock_part *part = NULL;
    struct bytes text = line_after(status, "LATEST DETECTED DEADLOCK\n"), line;
    bool in_statement = false, waits = false, ours = false;
    *ret_deadlock = found;
    (void)line_next(&text, &line); /* the rule below the heading */
    while (line_next(&text, &line)) {
        struct bytes star = line_after(line, "*** ");
        struct bytes index = line_after(line, " index ");
        if (star.data && star.data == line.data + 4) {
            bool begins = line_after(star, "TRANSACTION:").data != NULL;
            in_statement = false;
            waits = line_after(star, "WAITING FOR THIS LOCK").data != NULL;
            if (begins)
                part = found.count < DEADLOCK_MAX ? &found.parts[found.count++] : NULL;
            struct bytes victim = line_after(star, "WE ROLL BACK TRANSACTION ");
            if (victim.data) {
                found.rolled_back = number_of(victim);
                break;
            }
        } else if (!found.at.data) {
            found.at = (struct bytes){line.data, line.length < 19 ? line.length : 19};
        } else if (part && line_after(line, "thread id ").data && line_after(line, "query id ").data) {
            read_account(line_after(line, "query id "), part);
            in_statement = true;
        } else if (part && in_statement && line.length) {
            struct bytes *statement = &part->statement; /* of several lines */
            const char *begin = statement->data ? statement->data : line.data;
            *statement = (struct bytes){begin, (size_t)(line.data + line.length - begin)};
        } else if (part && line_after(line, "RECORD LOCKS").data && index.data) {
            struct deadlock_part other = {.index = {0}};
            ours |= lock_of(index, database, waits ? part : &other);
        }
    }
    if (ours)
        *ret_deadlock = found;
}
