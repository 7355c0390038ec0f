/* SPDX-License-Identifier: MIT */
#include "core/credentials.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/distance.h"
#include "base/private_file.h"
#include "base/sections.h"
#include "core/name.h"

/* ---- roles ---- */

#define USE     (RIGHT_LOOK | RIGHT_USE)
#define OPERATE (USE | RIGHT_OPERATE)

static const struct role roles[] = {
    {"look", RIGHT_LOOK, true},   {"use", USE, true},
    {"operate", OPERATE, true},   {"admin", OPERATE | RIGHT_ADMIN | RIGHT_FENCE | RIGHT_METRICS, false},
    {"fence", RIGHT_FENCE, true}, {"metrics", RIGHT_METRICS, false},
};

const struct role *role_of_word(const char *word)
{
    for (size_t i = 0; i < ARRAY_LENGTH(roles); i++)
        if (strcmp(roles[i].word, word) == 0)
            return &roles[i];
    return NULL;
}

/* ---- lists ---- */

static bool list_add(struct credential_list *list, struct credential credential)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        struct credential *items = realloc(list->items, capacity * sizeof *items);
        if (!items)
            return false;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = credential;
    return true;
}

/* By key; of equal keys the earlier line comes first. */
static int compare_credentials(const void *a, const void *b)
{
    const struct credential *left = a;
    const struct credential *right = b;
    int order = bytes_compare(left->key, right->key);
    return order ? order : left->line - right->line;
}

/* Sorts the list. Returns the first line of the file with a key that an earlier line has; NULL: all keys differ. */
static const struct credential *list_sort(struct credential_list *list)
{
    const struct credential *twice = NULL;
    if (list->count)
        qsort(list->items, list->count, sizeof *list->items, compare_credentials);
    for (size_t i = 1; i < list->count; i++)
        if (bytes_equal(list->items[i - 1].key, list->items[i].key) && (!twice || list->items[i].line < twice->line))
            twice = &list->items[i];
    return twice;
}

static const struct credential *list_find(const struct credential_list *list, struct bytes key,
                                          int (*compare)(struct bytes a, struct bytes b))
{
    size_t low = 0;
    size_t high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare(list->items[middle].key, key);
        if (order == 0)
            return &list->items[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ---- reading ---- */

/* The state of the reader. */
struct reading {
    struct credentials *credentials;
    struct principal *principal; /* of the section; NULL: before the first one */
    int principal_line;
    const struct word *word;     /* the last one */
    unsigned seen;               /* words of the section: bits by their rows */
    struct scope_entry *entries; /* of the section; texts in the arena */
    size_t entry_count;
    size_t entry_capacity;
};

/* One row for each word of a section. */
struct word {
    const char *name;
    bool once;
    bool (*take)(struct reading *reading, const char *value, int line, struct buf *why);
};

static bool no_memory(struct buf *why)
{
    buf_append_text(why, "no memory");
    return false;
}

static bool is_token_byte(char byte)
{
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') ||
           byte == '-' || byte == '_';
}

bool token_is_well_formed(struct bytes token)
{
    if (token.length != TOKEN_SIZE || !bytes_begin_with(token, BYTES("pmt_")))
        return false;
    for (size_t i = 4; i < token.length; i++)
        if (!is_token_byte(token.data[i]))
            return false;
    return true;
}

bool credential_parse_date(const char *text, int64_t *ret_until)
{
    char moment[RFC3339_SIZE];
    utc_us last;
    if (strlen(text) != strlen("2027-01-31"))
        return false;
    snprintf(moment, sizeof moment, "%sT23:59:59Z", text);
    if (!clock_parse_rfc3339(bytes_of(moment), &last))
        return false;
    *ret_until = last / US_PER_SECOND + 1;
    return true;
}

static bool parse_digest(const char *text, unsigned char ret_digest[DIGEST_SIZE])
{
    for (size_t i = 0; i < DIGEST_SIZE; i++) {
        int high = hex_value(text[2 * i]);
        int low = high < 0 ? -1 : hex_value(text[2 * i + 1]);
        if (low < 0)
            return false;
        ret_digest[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

/* Reads "sha256:HEX" or "sha256:HEX until 2027-01-31". The value is never shown: it may be the token itself. */
static bool take_token(struct reading *reading, const char *value, int line, struct buf *why)
{
    static const char prefix[] = "sha256:", between[] = "until";
    unsigned char digest[DIGEST_SIZE];
    struct credential token = {.principal = reading->principal, .line = line, .until = INT64_MAX};
    bool has_digest = strncmp(value, prefix, strlen(prefix)) == 0 && parse_digest(value + strlen(prefix), digest);
    const char *rest = has_digest ? value + strlen(prefix) + 2 * (size_t)DIGEST_SIZE : "?";
    size_t spaces = strspn(rest, " \t");
    if (*rest && !spaces) {
        bool is_token = token_is_well_formed((struct bytes){value, strcspn(value, " \t")});
        buf_append_text(
            why, is_token ? "this is the token itself, and no longer secret: make another one, and put its digest here"
                          : "expected 'token = sha256:' and 64 hexadecimal digits");
        return false;
    }
    rest += spaces;
    if (*rest) {
        bool is_until = strncmp(rest, between, strlen(between)) == 0;
        const char *date = is_until ? rest + strlen(between) : rest;
        spaces = strspn(date, " \t");
        if (!is_until || !spaces || !credential_parse_date(date + spaces, &token.until)) {
            buf_append_text(why, "behind the digest only 'until' and a date such as 2027-01-31 may follow");
            return false;
        }
    }
    token.key = arena_copy(&reading->credentials->arena, (struct bytes){(char *)digest, sizeof digest});
    return (token.key.data && list_add(&reading->credentials->tokens, token)) || no_memory(why);
}

/* DNS names are case-insensitive. */
static void lower_dns(char *name, size_t length)
{
    if (length < 4 || memcmp(name, "DNS:", 4) != 0)
        return;
    for (size_t i = 4; i < length; i++)
        if (name[i] >= 'A' && name[i] <= 'Z')
            name[i] = (char)(name[i] | 0x20);
}

static bool is_common_name(const char *name)
{
    return strncmp(name, "CN=", 3) == 0;
}

static bool take_certificate(struct reading *reading, const char *value, int line, struct buf *why)
{
    static const char *const kinds[] = {"DNS:", "URI:", "email:", "CN="};
    size_t kind = 0;
    while (kind < ARRAY_LENGTH(kinds) && strncmp(value, kinds[kind], strlen(kinds[kind])) != 0)
        kind++;
    if (kind == ARRAY_LENGTH(kinds) || value[strlen(kinds[kind])] == '\0') {
        buf_append_text(why, "expected a name as in DNS:shop.example, URI:spiffe://example/shop, "
                             "email:shop@example.com or CN=shop");
        return false;
    }
    struct bytes name = arena_copy(&reading->credentials->arena, bytes_of(value));
    if (!name.data)
        return no_memory(why);
    lower_dns((char *)name.data, name.length);
    return list_add(&reading->credentials->certificates,
                    (struct credential){.key = name, .principal = reading->principal, .line = line}) ||
           no_memory(why);
}

/* Accepts only the decimal digits as printed, so that the text is the key. */
static bool take_user(struct reading *reading, const char *value, int line, struct buf *why)
{
    size_t digits = strspn(value, "0123456789");
    unsigned long long uid = digits && digits <= 10 ? strtoull(value, NULL, 10) : UINT32_MAX;
    if (value[digits] || uid >= UINT32_MAX || (value[0] == '0' && digits > 1)) {
        buf_append_text(why, "expected the number of a user, such as 1000");
        return false;
    }
    struct bytes text = arena_copy(&reading->credentials->arena, bytes_of(value));
    return (text.data && list_add(&reading->credentials->users,
                                  (struct credential){.key = text, .principal = reading->principal, .line = line})) ||
           no_memory(why);
}

static bool take_role(struct reading *reading, const char *value, int line, struct buf *why)
{
    (void)line;
    const struct role *role = role_of_word(value);
    if (!role) {
        buf_append_text(why, "this is not a role; expected look, use, operate, admin, fence or metrics");
        return false;
    }
    reading->principal->role = role;
    reading->principal->rights = role->rights;
    return true;
}

bool scope_name_is_valid(struct bytes name)
{
    bool is_prefix = name.length && name.data[name.length - 1] == '*';
    struct bytes text = {name.data, name.length - is_prefix};
    return name_is_semaphore(text) || (is_prefix && text.length == 0);
}

static bool add_entry(struct reading *reading, struct bytes name, struct buf *why)
{
    bool is_prefix = name.data[name.length - 1] == '*';
    struct bytes text = {name.data, name.length - is_prefix};
    if (!scope_name_is_valid(name)) {
        buf_append_text(why, "a name has 1 to 255 of A-Z a-z 0-9 . _ : @ - , and a prefix ends in *");
        return false;
    }
    if (reading->entry_count == reading->entry_capacity) {
        size_t capacity = reading->entry_capacity ? 2 * reading->entry_capacity : 16;
        struct scope_entry *entries = realloc(reading->entries, capacity * sizeof *entries);
        if (!entries)
            return no_memory(why);
        reading->entries = entries;
        reading->entry_capacity = capacity;
    }
    text = arena_copy(&reading->credentials->arena, text);
    if (!text.data)
        return no_memory(why);
    reading->entries[reading->entry_count++] = (struct scope_entry){text, is_prefix};
    return true;
}

static bool take_semaphores(struct reading *reading, const char *value, int line, struct buf *why)
{
    (void)line;
    for (value += strspn(value, " \t"); *value; value += strspn(value, " \t")) {
        struct bytes name = {value, strcspn(value, " \t")};
        if (!add_entry(reading, name, why))
            return false;
        value += name.length;
    }
    return true;
}

static bool take_quota(struct reading *reading, const char *value, int line, struct buf *why)
{
    (void)line;
    enum quota quota = quota_of_word(reading->word->name);
    return quota_parse(quota, value, &reading->principal->quotas.limits[quota], why);
}

static bool take_namespace(struct reading *reading, const char *value, int line, struct buf *why)
{
    (void)line;
    if (!name_is_namespace(bytes_of(value))) {
        buf_append_text(why, "a namespace has 1 to 32 of a-z 0-9 -");
        return false;
    }
    reading->principal->namespace = arena_copy(&reading->credentials->arena, bytes_of(value));
    return reading->principal->namespace.data || no_memory(why);
}

static const struct word words[] = {
    {"token", false, take_token},
    {"certificate", false, take_certificate},
    {"user", false, take_user},
    {"role", true, take_role},
    {"semaphores", false, take_semaphores},
    {"namespace", true, take_namespace},
    {"connections", true, take_quota},
    {"waiting", true, take_quota},
    {"bytes", true, take_quota},
    {"rate", true, take_quota},
    {"units", true, take_quota},
    {"answers", true, take_quota},
};

static bool refuse_word(const char *name, struct buf *why)
{
    buf_append_text(why, "unknown word; expected token, certificate, user, role, semaphores, namespace or a quota");
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
        if (name_distance(bytes_of(name), bytes_of(words[i].name)) < NAME_FAR)
            buf_printf(why, "; the nearest is %s", words[i].name);
    return false;
}

static bool on_word(void *context, const char *name, const char *value, int line, struct buf *why)
{
    struct reading *reading = context;
    size_t i = 0;
    while (i < ARRAY_LENGTH(words) && strcmp(words[i].name, name) != 0)
        i++;
    if (i == ARRAY_LENGTH(words))
        return refuse_word(name, why);
    if (!reading->principal) {
        buf_printf(why, "%s stands before the first [principal]", name);
        return false;
    }
    if (words[i].once && reading->seen & 1U << i) {
        buf_printf(why, "%s is given twice in this section", name);
        return false;
    }
    reading->seen |= 1U << i;
    reading->word = &words[i];
    return words[i].take(reading, value, line, why);
}

/* Checks a section at its end. */
static bool end_section(struct reading *reading, struct buf *why)
{
    struct principal *principal = reading->principal;
    if (!principal)
        return true;
    if (!principal->role)
        buf_printf(why, "[%s] has no role", principal->name);
    else if (principal->role->needs_scope && !reading->entry_count)
        buf_printf(why, "[%s] has no semaphores; role %s needs them (* for all)", principal->name,
                   principal->role->word);
    else if (!principal->role->needs_scope && reading->entry_count)
        buf_printf(why, "[%s]: role %s has all semaphores; remove the word semaphores", principal->name,
                   principal->role->word);
    if (why->length)
        return false;
    if (!principal->role->needs_scope && !add_entry(reading, BYTES("*"), why))
        return false;
    size_t count = scope_normalize(reading->entries, reading->entry_count);
    struct scope_entry *entries = arena_array(&reading->credentials->arena, count, sizeof *entries);
    if (!entries)
        return no_memory(why);
    memcpy(entries, reading->entries, count * sizeof *entries);
    principal->scope = (struct scope){entries, count};
    return true;
}

bool principal_name_is_valid(struct bytes name)
{
    return name_is_semaphore(name) && !memchr(name.data, ':', name.length);
}

static bool on_section(void *context, struct bytes name, int line, struct buf *why)
{
    struct reading *reading = context;
    struct credentials *credentials = reading->credentials;
    if (!end_section(reading, why))
        return false;
    if (!principal_name_is_valid(name)) {
        buf_append_text(why, "the name of a principal has 1 to 255 of A-Z a-z 0-9 . _ @ -");
        return false;
    }
    struct bytes copy = arena_copy(&credentials->arena, name);
    struct principal *principal = arena_alloc(&credentials->arena, sizeof *principal);
    if (!copy.data || !principal ||
        !list_add(&credentials->principals, (struct credential){.key = copy, .principal = principal, .line = line}))
        return no_memory(why);
    principal->name = copy.data;
    reading->principal = principal;
    reading->principal_line = line;
    reading->seen = 0;
    reading->entry_count = 0;
    return true;
}

/* Sorts the lists. Refuses a duplicate section, token, certificate or user. */
static bool sort_lists(struct credentials *credentials, const char *path, struct buf *message)
{
    const struct {
        struct credential_list *list;
        const char *what;
    } lists[] = {{&credentials->principals, "section"},
                 {&credentials->tokens, "token"},
                 {&credentials->certificates, "certificate"},
                 {&credentials->users, "user"}};
    for (size_t i = 0; i < ARRAY_LENGTH(lists); i++) {
        const struct credential *twice = list_sort(lists[i].list);
        if (twice) {
            buf_printf(message, "%s, line %d: this %s is already on line %d", path, twice->line, lists[i].what,
                       twice[-1].line);
            return false;
        }
    }
    return true;
}

bool credentials_parse(struct bytes text, const char *path, struct credentials *ret_credentials, struct buf *message)
{
    struct reading reading = {.credentials = ret_credentials};
    const struct sections_handler handler = {.section = on_section, .word = on_word, .context = &reading};
    struct buf why;
    buf_init(&why, 1024);
    arena_init(&ret_credentials->arena, 4096, 16 * (size_t)CREDENTIALS_MAX_BYTES);
    bool good = sections_read(text, path, &handler, message);
    if (good && !end_section(&reading, &why)) {
        buf_printf(message, "%s, line %d: %s", path, reading.principal_line, buf_text(&why));
        good = false;
    } else if (good && !reading.principal) {
        buf_printf(message, "%s: has no section of a principal", path);
        good = false;
    }
    good = good && sort_lists(ret_credentials, path, message);
    free(reading.entries);
    buf_release(&why);
    if (!good)
        credentials_release(ret_credentials);
    return good;
}

bool credentials_load(const char *path, uid_t user, struct credentials *ret_credentials, struct buf *message)
{
    struct buf content;
    bool good = private_file_read(path, user, CREDENTIALS_MAX_BYTES, &content, message) &&
                credentials_parse((struct bytes){buf_text(&content), content.length}, path, ret_credentials, message);
    buf_release(&content);
    return good;
}

void credentials_release(struct credentials *credentials)
{
    if (!credentials)
        return;
    free(credentials->principals.items);
    free(credentials->tokens.items);
    free(credentials->certificates.items);
    free(credentials->users.items);
    arena_release(&credentials->arena);
    *credentials = (struct credentials){0};
}

/* ---- finding ---- */

int64_t credentials_until(const struct credentials *credentials, int64_t now)
{
    int64_t soonest = INT64_MAX;
    for (size_t i = 0; i < credentials->tokens.count; i++)
        if (credentials->tokens.items[i].until > now)
            soonest = min_i64(soonest, credentials->tokens.items[i].until);
    return soonest;
}

/* As bytes_compare of two digests, without a branch or a number of steps that depends on them. */
static int compare_digests(struct bytes a, struct bytes b)
{
    int order = 0;
    for (size_t i = DIGEST_SIZE; i-- > 0;) {
        int difference = (unsigned char)a.data[i] - (unsigned char)b.data[i];
        int is_same = (int)(((unsigned)difference - 1) >> 31 & 1) & (int)(((unsigned)-difference - 1) >> 31 & 1);
        order = order * is_same + difference;
    }
    return order;
}

const struct credential *credentials_of_digest(const struct credentials *credentials,
                                               const unsigned char digest[DIGEST_SIZE])
{
    return list_find(&credentials->tokens, (struct bytes){(const char *)digest, DIGEST_SIZE}, compare_digests);
}

/* Finds one name. No name of the file is longer than a line of it. */
static const struct principal *of_name(const struct credentials *credentials, const char *name)
{
    char lower[1024];
    size_t length = strlen(name);
    if (length >= sizeof lower)
        return NULL;
    memcpy(lower, name, length + 1);
    lower_dns(lower, length);
    const struct credential *found =
        list_find(&credentials->certificates, (struct bytes){lower, length}, bytes_compare);
    return found ? found->principal : NULL;
}

bool credentials_of_certificate(const struct credentials *credentials, const char *const *names, size_t count,
                                const struct principal **ret_principal)
{
    const struct principal *principal = NULL;
    bool only_common = true;
    for (size_t i = 0; i < count; i++)
        only_common = only_common && is_common_name(names[i]);
    for (size_t i = 0; i < count; i++) {
        const struct principal *found =
            is_common_name(names[i]) && !only_common ? NULL : of_name(credentials, names[i]);
        if (found && principal && found != principal)
            return false;
        principal = found ? found : principal;
    }
    *ret_principal = principal;
    return true;
}

const struct principal *credentials_of_user(const struct credentials *credentials, uid_t uid)
{
    char text[24];
    int length = snprintf(text, sizeof text, "%llu", (unsigned long long)uid);
    const struct credential *found =
        list_find(&credentials->users, (struct bytes){text, (size_t)length}, bytes_compare);
    return found ? found->principal : NULL;
}
