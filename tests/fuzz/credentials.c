/* SPDX-License-Identifier: MIT */
/*
 * The credentials file. Every line of an accepted file must be in the result. A file written from the result must give
 * the same result. Each credential must be found, and no other.
 */
#include "core/credentials.h"

#include <ctype.h>

#include "core/name.h"
#include "fuzz.h"

enum { MESSAGE_MAX = 64 * 1024, TEXT_MAX = 1024 * 1024 };

/* ---- the lines of the text ---- */

struct counts {
    size_t sections;
    size_t tokens;
    size_t certificates;
    size_t users;
    size_t roles;      /* of the section */
    size_t namespaces; /* of the section */
    unsigned quotas;   /* of the section: bits of its quotas */
};

static bool is_word(const char *line, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(line, word, length) != 0)
        return false;
    line += length + strspn(line + length, " \t\r\v\f");
    return *line == '=' || *line == ':';
}

/* Returns true for a quota that the section has not had before. */
static bool is_new_quota(const char *line, struct counts *counts)
{
    static const char *const quotas[] = {"connections", "waiting", "bytes", "rate", "units", "answers"};
    size_t i = 0;
    while (i < ARRAY_LENGTH(quotas) && !is_word(line, quotas[i]))
        i++;
    bool is_new = i < ARRAY_LENGTH(quotas) && !(counts->quotas & 1U << i);
    counts->quotas |= 1U << i;
    return is_new;
}

/* Counts the heading or word of a line. Any other line must be blank or a comment. */
static void count_line(const char *line, struct counts *counts)
{
    bool indented = *line && strchr(" \t\r\v\f", *line);
    line += strspn(line, " \t\r\v\f");
    if (*line == '\0' || *line == ';' || *line == '#')
        return;
    MUST(!indented);
    if (*line == '[') {
        const char *behind = strchr(line, ']');
        MUST(behind);
        size_t blanks = strspn(behind + 1, " \t\r\v\f");
        MUST(behind[1 + blanks] == '\0' || (behind[1 + blanks] == ';' && blanks > 0));
        MUST(counts->sections == 0 || counts->roles == 1);
        counts->sections++;
        counts->roles = counts->namespaces = counts->quotas = 0;
        return;
    }
    if (is_word(line, "token"))
        counts->tokens++;
    else if (is_word(line, "certificate"))
        counts->certificates++;
    else if (is_word(line, "user"))
        counts->users++;
    else if (is_word(line, "role"))
        MUST(++counts->roles == 1);
    else if (is_word(line, "namespace"))
        MUST(++counts->namespaces == 1);
    else
        MUST(is_word(line, "semaphores") || is_new_quota(line, counts));
}

static struct counts count_lines(struct bytes content)
{
    struct counts counts = {0};
    char *text = fuzz_text((const uint8_t *)content.data, content.length);
    char *rest = text;
    MUST(!memchr(text, '\0', content.length));
    if (strncmp(rest, "\xEF\xBB\xBF", 3) == 0)
        rest += 3;
    while (rest)
        count_line(strsep(&rest, "\n"), &counts);
    free(text);
    return counts;
}

/* ---- the result ---- */

static void check_list(const struct credential_list *list, size_t lines, const struct credentials *all)
{
    MUST(list->count == lines);
    for (size_t i = 0; i < list->count; i++) {
        bool known = false;
        MUST(i == 0 || bytes_compare(list->items[i - 1].key, list->items[i].key) < 0);
        for (size_t p = 0; p < all->principals.count; p++)
            known = known || all->principals.items[p].principal == list->items[i].principal;
        MUST(known);
    }
}

static void check_principal(const struct principal *principal)
{
    const struct role *role = role_of_word(principal->role->word);
    struct bytes name = bytes_of(principal->name);
    MUST(role == principal->role && principal->rights == role->rights && role->rights != 0);
    MUST(name_is_semaphore(name) && !strchr(principal->name, ':'));
    MUST(principal->namespace.length == 0 || name_is_namespace(principal->namespace));
    MUST(principal->scope.count >= 1);
    for (size_t i = 0; i < principal->scope.count; i++) {
        const struct scope_entry *entry = &principal->scope.entries[i];
        MUST(name_is_semaphore(entry->text) || (entry->is_prefix && entry->text.length == 0));
        MUST(scope_covers(&principal->scope, entry->text));
        MUST(i == 0 || bytes_compare(principal->scope.entries[i - 1].text, entry->text) < 0);
    }
    MUST(role->needs_scope || (principal->scope.count == 1 && principal->scope.entries[0].text.length == 0));
}

/* Each digest is found, and one that differs in one bit only if the file has that, too. */
static void check_tokens(const struct credentials *credentials)
{
    const struct credential_list *list = &credentials->tokens;
    for (size_t i = 0; i < list->count; i++) {
        unsigned char digest[DIGEST_SIZE];
        MUST(list->items[i].key.length == DIGEST_SIZE);
        memcpy(digest, list->items[i].key.data, DIGEST_SIZE);
        MUST(credentials_of_digest(credentials, digest) == &list->items[i]);
        for (size_t bit = 0; bit < 8 * (size_t)DIGEST_SIZE; bit += 37) {
            const struct credential *expected = NULL;
            digest[bit / 8] ^= (unsigned char)(1 << bit % 8);
            for (size_t k = 0; k < list->count; k++)
                if (memcmp(list->items[k].key.data, digest, DIGEST_SIZE) == 0)
                    expected = &list->items[k];
            MUST(credentials_of_digest(credentials, digest) == expected);
            digest[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
    }
}

static const struct principal *of_names(const struct credentials *credentials, const char *const *names, size_t count)
{
    const struct principal *principal;
    MUST(credentials_of_certificate(credentials, names, count, &principal));
    return principal;
}

static void check_names(const struct credentials *credentials)
{
    for (size_t i = 0; i < credentials->certificates.count; i++) {
        const struct credential *certificate = &credentials->certificates.items[i];
        const char *names[] = {certificate->key.data, "other:of a kind that no file has"};
        char *upper = strdup(names[0]);
        bool is_common = strncmp(names[0], "CN=", 3) == 0;
        MUST(of_names(credentials, names, 1) == certificate->principal);
        MUST(of_names(credentials, names, 2) == (is_common ? NULL : certificate->principal));
        for (char *at = upper; strncmp(names[0], "DNS:", 4) == 0 && *at; at++)
            *at = (char)toupper((unsigned char)*at);
        MUST(of_names(credentials, (const char *const *)&upper, 1) == certificate->principal);
        free(upper);
    }
    for (size_t i = 0; i < credentials->users.count; i++) {
        const struct credential *user = &credentials->users.items[i];
        MUST(credentials_of_user(credentials, (uid_t)strtoul(user->key.data, NULL, 10)) == user->principal);
    }
}

static void check_taken(const struct credentials *credentials, struct bytes content)
{
    struct counts counts = count_lines(content);
    check_list(&credentials->principals, counts.sections, credentials);
    check_list(&credentials->tokens, counts.tokens, credentials);
    check_list(&credentials->certificates, counts.certificates, credentials);
    check_list(&credentials->users, counts.users, credentials);
    MUST(counts.sections > 0);
    for (size_t i = 0; i < credentials->principals.count; i++)
        check_principal(credentials->principals.items[i].principal);
    check_tokens(credentials);
    check_names(credentials);
}

/* ---- written again ---- */

/* Without blanks around "=", because a line of the file may be as long as a line can be. */
static void write_list(struct buf *out, const struct credential_list *list, const struct principal *principal,
                       const char *word)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct credential *item = &list->items[i];
        if (item->principal != principal)
            continue;
        buf_printf(out, "%s=", word);
        if (*word != 't') {
            buf_append(out, item->key.data, item->key.length);
        } else {
            buf_append_text(out, "sha256:");
            buf_append_hex(out, item->key.data, item->key.length);
        }
        buf_append_char(out, '\n');
    }
}

static void write_again(const struct credentials *credentials, struct buf *out)
{
    for (size_t p = 0; p < credentials->principals.count; p++) {
        const struct principal *principal = credentials->principals.items[p].principal;
        buf_printf(out, "[%s]\nrole = %s\n", principal->name, principal->role->word);
        for (size_t i = 0; i < principal->scope.count && principal->role->needs_scope; i++) {
            const struct scope_entry *entry = &principal->scope.entries[i];
            buf_append_text(out, "semaphores=");
            buf_append(out, entry->text.data, entry->text.length);
            buf_append_text(out, entry->is_prefix ? "*\n" : "\n");
        }
        for (enum quota quota = 0; quota < QUOTA_COUNT; quota++)
            if (principal->quotas.limits[quota])
                buf_printf(out, "%s = %lld\n", quota_word(quota), (long long)principal->quotas.limits[quota]);
        if (principal->namespace.length)
            buf_printf(out, "namespace = %.*s\n", (int)principal->namespace.length, principal->namespace.data);
        write_list(out, &credentials->tokens, principal, "token");
        write_list(out, &credentials->certificates, principal, "certificate");
        write_list(out, &credentials->users, principal, "user");
    }
}

static bool same_scope(const struct scope *a, const struct scope *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++)
        same =
            a->entries[i].is_prefix == b->entries[i].is_prefix && bytes_equal(a->entries[i].text, b->entries[i].text);
    return same;
}

static void check_same(const struct credential_list *a, const struct credential_list *b)
{
    MUST(a->count == b->count);
    for (size_t i = 0; i < a->count; i++) {
        const struct principal *left = a->items[i].principal, *right = b->items[i].principal;
        MUST(bytes_equal(a->items[i].key, b->items[i].key));
        MUST(strcmp(left->name, right->name) == 0 && left->rights == right->rights);
        MUST(same_scope(&left->scope, &right->scope) && bytes_equal(left->namespace, right->namespace));
        MUST(memcmp(&left->quotas, &right->quotas, sizeof left->quotas) == 0);
    }
}

static void check_again(const struct credentials *credentials)
{
    struct credentials again = {0};
    struct buf text, message;
    buf_init(&text, TEXT_MAX);
    buf_init(&message, MESSAGE_MAX);
    write_again(credentials, &text);
    MUST(!text.broken && credentials_parse((struct bytes){text.data, text.length}, "again", &again, &message));
    check_same(&credentials->principals, &again.principals);
    check_same(&credentials->tokens, &again.tokens);
    check_same(&credentials->certificates, &again.certificates);
    check_same(&credentials->users, &again.users);
    credentials_release(&again);
    buf_release(&text);
    buf_release(&message);
}

/* A refusal names the file and shows nothing of it but names of sections, which may look like tokens. */
static void check_refusal(const struct credentials *credentials, const char *message, struct bytes content)
{
    MUST(strncmp(message, "FILE, line ", 11) == 0 || strcmp(message, "FILE: has no section of a principal") == 0);
    MUST(!credentials->principals.items && !credentials->tokens.items && !credentials->arena.chunks);
    MUST(!strstr(message, "pmt_") || memmem(content.data, content.length, "[", 1));
    for (const char *at = message; *at; at++)
        MUST((unsigned char)*at >= ' ' && (unsigned char)*at < 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct credentials credentials = {0};
    struct buf message;
    struct bytes content = fuzz_bytes(data, size);
    buf_init(&message, MESSAGE_MAX);
    if (credentials_parse(content, "FILE", &credentials, &message)) {
        MUST(message.length == 0);
        check_taken(&credentials, content);
        check_again(&credentials);
    } else {
        check_refusal(&credentials, buf_text(&message), content);
    }
    credentials_release(&credentials);
    buf_release(&message);
    free((void *)content.data);
    return 0;
}
