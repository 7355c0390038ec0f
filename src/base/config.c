/* SPDX-License-Identifier: MIT */
#include "base/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/distance.h"
#include "base/duration.h"
#include "base/help.h"
#include "base/io.h"
#include "base/sections.h"

/* Size of a setting's name in any of its three forms. Longer input is cut before it is compared or printed. */
enum { NAME_SIZE = EDIT_DISTANCE_MAX + 1, FILE_MAX = 1 << 20 };

static void *member(const struct config_row *row, void *settings)
{
    return (char *)settings + row->offset;
}

/* ---- values ---- */

static bool parse_bool(const char *text, bool *ret_value)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
        if (strcmp(text, words[i]) == 0) {
            *ret_value = i % 2 == 1;
            return true;
        }
    return false;
}

static bool parse_number(const char *text, int64_t *ret_value)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (*digits == '\0' || strspn(digits, "0123456789") != strlen(digits))
        return false;
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    *ret_value = value;
    return errno == 0;
}

/* Largest first; each is a multiple of the next. */
static const struct {
    const char *unit;
    int64_t bytes;
} size_units[] = {{"TiB", 1LL << 40}, {"GiB", 1LL << 30}, {"MiB", 1LL << 20}, {"KiB", 1LL << 10}, {"", 1}};

bool config_parse_size(const char *text, int64_t *ret_bytes)
{
    char digits[20];
    size_t length = strspn(text, "0123456789");
    int64_t number;
    if (length >= sizeof digits)
        return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    for (size_t i = 0; i < ARRAY_LENGTH(size_units); i++)
        if (strcmp(text + length, size_units[i].unit) == 0)
            return parse_number(digits, &number) && !__builtin_mul_overflow(number, size_units[i].bytes, ret_bytes);
    return false;
}

/* Prints a size in the largest unit that divides it. */
static void print_size(int64_t bytes, struct buf *out)
{
    size_t i = 0;
    while (bytes % size_units[i].bytes)
        i++;
    buf_printf(out, "%lld%s", (long long)(bytes / size_units[i].bytes), size_units[i].unit);
}

/* Sets a text. An empty text unsets it, which is an error unless the default is also unset or empty. */
static bool set_text(const struct config_row *row, char **text, const char *value)
{
    if (*value == '\0' && row->default_text && *row->default_text)
        return false;
    char *copy = *value ? strdup(value) : NULL;
    if (*value && !copy)
        return false;
    free(*text);
    *text = copy;
    return true;
}

static void list_free(struct config_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->texts[i]);
    free(list->texts);
    *list = (struct config_list){0};
}

static bool list_add(struct config_list *list, struct bytes text)
{
    char **texts = realloc(list->texts, (list->count + 2) * sizeof *texts);
    if (!texts)
        return false;
    list->texts = texts;
    texts[list->count] = strndup(text.data, text.length);
    if (!texts[list->count])
        return false;
    texts[++list->count] = NULL;
    return true;
}

/* Adds the texts of `value`, which commas separate. An empty text is an error. */
static bool set_list(struct config_list *list, const char *value)
{
    static const char blanks[] = " \t";
    if (list->complete)
        list_free(list);
    for (const char *at = value;; at++) {
        at += strspn(at, blanks);
        struct bytes text = {at, strcspn(at, ",")};
        at += text.length;
        while (text.length && strchr(blanks, text.data[text.length - 1]))
            text.length--;
        if (!text.length || !list_add(list, text))
            return false;
        if (!*at)
            return true;
    }
}

static bool set_value(const struct config_row *row, void *settings, const char *value)
{
    int64_t amount;
    bool is_amount = false;
    switch (row->type) {
    case CONFIG_TEXT: return set_text(row, member(row, settings), value);
    case CONFIG_LIST: return set_list(member(row, settings), value);
    case CONFIG_BOOL: return parse_bool(value, member(row, settings));
    case CONFIG_CHOICE:
        for (const char *const *choice = row->choices; *choice; choice++)
            if (strcmp(*choice, value) == 0) {
                *(const char **)member(row, settings) = *choice;
                return true;
            }
        return false;
    case CONFIG_NUMBER: is_amount = parse_number(value, &amount); break;
    case CONFIG_DURATION: is_amount = duration_parse_any(bytes_of(value), &amount); break;
    case CONFIG_SIZE: is_amount = config_parse_size(value, &amount); break;
    }
    if (!is_amount || amount < row->min || amount > row->max)
        return false;
    *(int64_t *)member(row, settings) = row->flags & CONFIG_MICROSECONDS ? amount * US_PER_MS : amount;
    return true;
}

/* Appends the values that the setting accepts, to follow "expected". */
static void append_expected(const struct config_row *row, struct buf *message)
{
    char least[DURATION_TEXT_SIZE];
    char most[DURATION_TEXT_SIZE];
    switch (row->type) {
    case CONFIG_TEXT: buf_append_text(message, "a non-empty text"); return;
    case CONFIG_LIST: buf_append_text(message, "texts separated by commas, none of them empty"); return;
    case CONFIG_BOOL: buf_append_text(message, "true or false"); return;
    case CONFIG_NUMBER:
        buf_printf(message, "a whole number from %lld to %lld", (long long)row->min, (long long)row->max);
        return;
    case CONFIG_DURATION:
        duration_format(row->min, least);
        duration_format(row->max, most);
        buf_printf(message, "a duration from %s to %s, such as 500ms, 30s or 1h30m", least, most);
        return;
    case CONFIG_SIZE:
        buf_append_text(message, "a size from ");
        print_size(row->min, message);
        buf_append_text(message, " to ");
        print_size(row->max, message);
        buf_append_text(message, ", such as 512MiB or 2GiB");
        return;
    case CONFIG_CHOICE:
        for (const char *const *choice = row->choices; *choice; choice++)
            buf_printf(message, "%s%s", choice == row->choices ? "" : choice[1] ? ", " : " or ", *choice);
        return;
    }
}

/*
 * Sets a value, or appends an error. `shown` is the setting's name in the form of its source: log_level,
 * PERMITD_LOG_LEVEL or --log-level.
 */
static bool set_or_explain(const struct config_row *row, void *settings, const char *shown, const char *value,
                           struct buf *message)
{
    if (set_value(row, settings, value))
        return true;
    if (row->flags & CONFIG_SECRET)
        buf_printf(message, "%s: invalid value; expected ", shown);
    else
        buf_printf(message, "%s: invalid value '%s'; expected ", shown, value);
    append_expected(row, message);
    const char *hint = row->type == CONFIG_DURATION ? duration_hint(bytes_of(value)) : NULL;
    if (hint)
        buf_printf(message, "; %s", hint);
    return false;
}

/* ---- names ---- */

/* The forms of a name: log_level, log-level (without the leading dashes), LOG_LEVEL (without the prefix). */
enum form { FORM_FILE, FORM_FLAG, FORM_VARIABLE };

/* Writes a name in this form, cut to NAME_SIZE; `name` may have any. */
static const char *name_in(enum form form, const char *name, char ret_name[NAME_SIZE])
{
    size_t at = 0;
    for (; name[at] && at < NAME_SIZE - 1; at++) {
        char byte = name[at] == '-' || name[at] == '_' ? (form == FORM_FLAG ? '-' : '_') : name[at];
        ret_name[at] = (char)(form == FORM_VARIABLE ? toupper((unsigned char)byte) : tolower((unsigned char)byte));
    }
    ret_name[at] = '\0';
    return ret_name;
}

static const struct config_row *find_row(const struct config_table *table, enum form form, struct bytes name)
{
    for (size_t i = 0; i < table->count; i++) {
        char known[NAME_SIZE];
        if (bytes_equal(name, bytes_of(name_in(form, table->rows[i].name, known))))
            return &table->rows[i];
    }
    return NULL;
}

/*
 * Returns the setting with the most similar name; NULL if more than half of the letters differ from every setting.
 * `name` has underscores and lower-case letters.
 */
static const struct config_row *nearest_row(const struct config_table *table, const char *name)
{
    const struct config_row *nearest = NULL;
    size_t least = strlen(name) / 2 + 1;
    for (size_t i = 0; i < table->count; i++) {
        const char *known = table->rows[i].name;
        bool contains = strlen(name) > 2 && (strstr(known, name) || strstr(name, known));
        size_t away = contains ? 1 : edit_distance(bytes_of(name), bytes_of(known));
        if (away < least) {
            least = away;
            nearest = &table->rows[i];
        }
    }
    return nearest;
}

/* Appends the error for an unknown setting. Never prints the value: it may be a secret under a misspelt name. */
static void explain_unknown(const struct config_table *table, const char *name, struct buf *message, enum form form,
                            const char *prefix)
{
    static const char of_names[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    char plain[NAME_SIZE], near[NAME_SIZE];
    const struct config_row *row = nearest_row(table, name_in(FORM_FILE, name, plain));
    if (*name && !name[strspn(name, of_names)])
        buf_printf(message, "%s%.*s is not a setting", prefix, NAME_SIZE - 1, name);
    else /* more than a name, such as a URL with a password */
        buf_append_text(message, "that is not the name of a setting");
    if (row)
        buf_printf(message, "; the nearest is %s%s", prefix, name_in(form, row->name, near));
}

/* ---- life ---- */

bool config_init(const struct config_table *table, void *settings, struct buf *message)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct config_row *row = &table->rows[i];
        if (row->type == CONFIG_LIST)
            *(struct config_list *)member(row, settings) = (struct config_list){0};
        if (!row->default_text && row->type == CONFIG_TEXT)
            *(char **)member(row, settings) = NULL;
        if (!row->default_text && (row->type == CONFIG_TEXT || row->type == CONFIG_LIST))
            continue;
        if (!row->default_text || !set_value(row, settings, row->default_text)) {
            buf_printf(message, "%s: its default cannot be set: no memory, or a mistake in the table", row->name);
            return false;
        }
    }
    return true;
}

void config_release(const struct config_table *table, void *settings)
{
    for (size_t i = 0; settings && i < table->count; i++)
        if (table->rows[i].type == CONFIG_TEXT) {
            char **text = member(&table->rows[i], settings);
            free(*text);
            *text = NULL;
        } else if (table->rows[i].type == CONFIG_LIST) {
            list_free(member(&table->rows[i], settings));
        }
}

void config_begin_source(const struct config_table *table, void *settings)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->rows[i].type == CONFIG_LIST)
            ((struct config_list *)member(&table->rows[i], settings))->complete = true;
}

/* ---- file ---- */

/* State while a file is read. */
struct file_reading {
    const struct config_table *table;
    void *settings;
    bool *seen; /* one per row */
};

static bool on_setting(void *context, const char *name, const char *value, int line, struct buf *why)
{
    struct file_reading *file = context;
    const struct config_row *row = find_row(file->table, FORM_FILE, bytes_of(name));
    (void)line;
    if (!row) {
        explain_unknown(file->table, name, why, FORM_FILE, "");
        return false;
    }
    bool *seen = &file->seen[row - file->table->rows];
    if (*seen && row->type != CONFIG_LIST) {
        buf_printf(why, "duplicate setting %s (a line that begins with a space continues the line before it)", name);
        return false;
    }
    *seen = true;
    return set_or_explain(row, file->settings, name, value, why);
}

bool config_load_file(const struct config_table *table, void *settings, const char *path, struct buf *message)
{
    struct file_reading file = {.table = table, .settings = settings};
    const struct sections_handler handler = {.word = on_setting, .context = &file, .values_continue = true};
    struct buf text;
    bool loaded = false;
    buf_init(&text, FILE_MAX);
    config_begin_source(table, settings);
    file.seen = calloc(table->count + 1, sizeof *file.seen);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (!file.seen)
        buf_printf(message, "%s: no memory", path);
    else if (fd < 0)
        buf_printf(message, "%s: cannot be opened: %s", path, strerror(errno));
    else if (io_read_all(fd, &text))
        loaded = sections_read((struct bytes){buf_text(&text), text.length}, path, &handler, message);
    else if (text.broken)
        buf_printf(message, "%s: larger than %d bytes, or no memory", path, FILE_MAX);
    else
        buf_printf(message, "%s: cannot be read: %s", path, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    buf_release(&text);
    free(file.seen);
    return loaded;
}

/* ---- environment ---- */

/*
 * Returns true for NAME=value as Kubernetes writes it for a service, and docker --link for a container. `variable` is
 * without the prefix: a service with the name permitd makes PERMITD_SERVICE_HOST, and one with the name permitd-eu
 * makes PERMITD_EU_SERVICE_HOST. Values are compared, too: PERMITD_PORT=7070 is a mistake of the user.
 */
static bool is_service_variable(const char *variable)
{
    static const char form[] = "^([A-Z0-9_]+_)?(SERVICE_HOST=|SERVICE_PORT(_[A-Z0-9_]+)?=[0-9]+$"
                               "|PORT(_[0-9]+_(TCP|UDP|SCTP))?=(tcp|udp|sctp)://"
                               "|PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO=(tcp|udp|sctp)$|PORT=[0-9]+$|ADDR=))"
                               "|^(NAME=/[^/]+/[^/]+$|ENV_[^=]+=)"; /* only docker */
    regex_t pattern;
    if (regcomp(&pattern, form, REG_EXTENDED | REG_NOSUB) != 0)
        return false;
    bool matches = regexec(&pattern, variable, 0, NULL, 0) == 0;
    regfree(&pattern);
    return matches;
}

/* Loads `variable`, NAME=value without the prefix. */
static bool load_variable(const struct config_table *table, void *settings, const char *variable, struct buf *message)
{
    struct bytes name = {variable, strcspn(variable, "=")};
    for (const char *const *other = table->environment_ignored; other && *other; other++)
        if (bytes_equal(name, bytes_of(*other)))
            return true;
    const struct config_row *row = find_row(table, FORM_VARIABLE, name);
    char shown[2 * NAME_SIZE];
    if (row) {
        snprintf(shown, sizeof shown, "%s%.*s", table->environment_prefix, (int)name.length, name.data);
        return set_or_explain(row, settings, shown, variable + name.length + 1, message);
    }
    if (is_service_variable(variable))
        return true;
    snprintf(shown, NAME_SIZE, "%.*s", (int)name.length, name.data);
    explain_unknown(table, shown, message, FORM_VARIABLE, table->environment_prefix);
    return false;
}

bool config_load_environment(const struct config_table *table, void *settings, struct buf *message)
{
    size_t prefix = strlen(table->environment_prefix);
    config_begin_source(table, settings);
    for (char **variable = environ; variable && *variable; variable++)
        if (strncmp(*variable, table->environment_prefix, prefix) == 0 && strchr(*variable, '=') &&
            !load_variable(table, settings, *variable + prefix, message))
            return false;
    return true;
}

void config_name_service_variables(const char *prefix, struct buf *names)
{
    size_t length = strlen(prefix);
    for (char **variable = environ; variable && *variable; variable++)
        if (strncmp(*variable, prefix, length) == 0 && is_service_variable(*variable + length))
            buf_printf(names, "%s%.*s", names->length ? ", " : "", (int)strcspn(*variable, "="), *variable);
}

/* ---- command line ---- */

/* Returns the last setting before this argument, such as "--log-level", without its value; length 0: there is none. */
static struct bytes setting_before(const struct config_table *table, char **argv, int index)
{
    for (int at = index - 1; at >= 0 && at >= index - 2; at--) {
        struct bytes word = {argv[at], strcspn(argv[at], "=")};
        if (strncmp(word.data, "--", 2) == 0 &&
            find_row(table, FORM_FLAG, (struct bytes){word.data + 2, word.length - 2}))
            return word;
    }
    return (struct bytes){0};
}

bool config_load_argument(const struct config_table *table, void *settings, int argc, char **argv, int *index,
                          struct buf *message)
{
    const char *argument = argv[*index];
    if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0') {
        /* Print the word only if it is a setting without its dashes: any other word may be a secret. */
        struct bytes word = {argument, strcspn(argument, "=")};
        struct bytes before = setting_before(table, argv, *index);
        if (find_row(table, FORM_FLAG, word))
            buf_printf(message, "'%.*s' is not expected", (int)word.length, word.data);
        else if (before.length)
            buf_printf(message, "argument %d, after %.*s, is not expected", *index, (int)before.length, before.data);
        else
            buf_printf(message, "argument %d is not expected", *index);
        buf_append_text(message, "; settings are given as --name value");
        return false;
    }
    struct bytes name = {argument + 2, strcspn(argument + 2, "=")};
    char shown[NAME_SIZE + 2] = "--";
    snprintf(shown + 2, NAME_SIZE, "%.*s", (int)name.length, name.data);
    const struct config_row *row = find_row(table, FORM_FLAG, name);
    if (!row) {
        explain_unknown(table, shown + 2, message, FORM_FLAG, "--");
        return false;
    }
    if (name.data[name.length] == '=')
        return set_or_explain(row, settings, shown, name.data + name.length + 1, message);
    bool ignored;
    if (row->type == CONFIG_BOOL && !(*index + 1 < argc && parse_bool(argv[*index + 1], &ignored)))
        return set_or_explain(row, settings, shown, "true", message);
    if (*index + 1 < argc)
        return set_or_explain(row, settings, shown, argv[++*index], message);
    buf_printf(message, "%s: missing value; expected ", shown);
    append_expected(row, message);
    return false;
}

/* ---- reload ---- */

static size_t member_size(const struct config_row *row)
{
    switch (row->type) {
    case CONFIG_TEXT:
    case CONFIG_CHOICE: return sizeof(char *);
    case CONFIG_LIST: return sizeof(struct config_list);
    case CONFIG_BOOL: return sizeof(bool);
    case CONFIG_NUMBER:
    case CONFIG_DURATION:
    case CONFIG_SIZE: break;
    }
    return sizeof(int64_t);
}

static bool same_value(const struct config_row *row, void *a, void *b)
{
    if (row->type == CONFIG_LIST) {
        const struct config_list *list_a = member(row, a), *list_b = member(row, b);
        bool same = list_a->count == list_b->count;
        for (size_t i = 0; same && i < list_a->count; i++)
            same = strcmp(list_a->texts[i], list_b->texts[i]) == 0;
        return same;
    }
    if (row->type != CONFIG_TEXT)
        return memcmp(member(row, a), member(row, b), member_size(row)) == 0;
    const char *text_a = *(char **)member(row, a);
    const char *text_b = *(char **)member(row, b);
    return text_a && text_b ? strcmp(text_a, text_b) == 0 : text_a == text_b;
}

static bool is_amount(const struct config_row *row)
{
    return row->type == CONFIG_NUMBER || row->type == CONFIG_DURATION || row->type == CONFIG_SIZE;
}

/* Swaps the members, so that each struct still owns one text or list. */
static void swap_value(const struct config_row *row, void *a, void *b)
{
    char saved[sizeof(struct config_list)];
    if (is_amount(row)) {
        *(int64_t *)member(row, b) = atomic_exchange((_Atomic int64_t *)member(row, a), *(int64_t *)member(row, b));
        return;
    }
    memcpy(saved, member(row, a), member_size(row));
    memcpy(member(row, a), member(row, b), member_size(row));
    memcpy(member(row, b), saved, member_size(row));
}

void config_copy_values(const struct config_section *section, const void *from, void *to)
{
    for (size_t i = 0; i < section->count; i++) {
        const struct config_row *row = &section->rows[i];
        if (row->flags & CONFIG_RELOADABLE && (is_amount(row) || row->type == CONFIG_BOOL))
            memcpy(member(row, to), (const char *)from + row->offset, member_size(row));
    }
}

void config_reload(const struct config_table *table, void *settings, void *fresh, struct buf *message)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct config_row *row = &table->rows[i];
        if (same_value(row, settings, fresh))
            continue;
        if (row->flags & CONFIG_RELOADABLE)
            swap_value(row, settings, fresh);
        else
            buf_printf(message, "%s%s", message->length ? ", " : "", row->name);
    }
}

/* ---- printing ---- */

static void print_placeholder(const struct config_row *row, const char *separator, struct buf *out)
{
    static const char *const words[] = {[CONFIG_TEXT] = "TEXT",
                                        [CONFIG_LIST] = "TEXT",
                                        [CONFIG_NUMBER] = "N",
                                        [CONFIG_DURATION] = "TIME",
                                        [CONFIG_SIZE] = "SIZE"};
    if (row->placeholder)
        buf_append_text(out, row->placeholder);
    else if (row->type == CONFIG_CHOICE)
        for (const char *const *choice = row->choices; *choice; choice++)
            buf_printf(out, "%s%s", choice == row->choices ? "" : separator, *choice);
    else
        buf_append_text(out, words[row->type]);
}

enum { PRINTED_MAX = 4096 };

static bool shows_default(const struct config_row *row)
{
    return row->default_text && *row->default_text && !(row->flags & CONFIG_SECRET);
}

void config_print_help(const struct config_table *table, FILE *out)
{
    struct buf flag, text;
    buf_init(&flag, PRINTED_MAX);
    buf_init(&text, PRINTED_MAX);
    for (size_t i = 0; i < table->count; i++) {
        const struct config_row *row = &table->rows[i];
        char name[NAME_SIZE];
        buf_clear(&flag);
        buf_printf(&flag, "  --%s", name_in(FORM_FLAG, row->name, name));
        if (row->type != CONFIG_BOOL) {
            buf_append_char(&flag, ' ');
            print_placeholder(row, "|", &flag);
        }
        buf_clear(&text);
        buf_append_text(&text, row->help);
        /* " (default 10s; may be reloaded)"; the default of a switch is not shown */
        bool reloadable = row->flags & CONFIG_RELOADABLE;
        bool shown = shows_default(row) && row->type != CONFIG_BOOL;
        if (shown)
            buf_printf(&text, " (default %s%s)", row->default_text, reloadable ? "; may be reloaded" : "");
        else if (reloadable)
            buf_append_text(&text, " (may be reloaded)");
        help_print_entry(buf_text(&flag), buf_text(&text), CONFIG_HELP_INDENT, out);
    }
    buf_release(&flag);
    buf_release(&text);
}

static void print_markdown_row(const struct config_row *row, struct buf *value, FILE *out)
{
    buf_clear(value);
    if (row->type == CONFIG_BOOL)
        buf_append_text(value, "true, false");
    else
        print_placeholder(row, ", ", value);
    bool shown = shows_default(row);
    fprintf(out, "| `%s` | %s | %s%s%s | %s | ", row->name, buf_text(value), shown ? "`" : "",
            shown ? row->default_text : "none", shown ? "`" : "", row->flags & CONFIG_RELOADABLE ? "yes" : "no");
    for (const char *text = row->help; *text; text++) /* a bare | would end the cell */
        fprintf(out, "%s%c", *text == '|' ? "\\" : "", *text);
    fputs(" |\n", out);
}

void config_print_markdown(const struct config_table *table, FILE *out)
{
    struct buf value;
    buf_init(&value, PRINTED_MAX);
    fputs("| setting | value | default | reload | what it does |\n|---|---|---|---|---|\n", out);
    for (size_t i = 0; i < table->count; i++)
        print_markdown_row(&table->rows[i], &value, out);
    buf_release(&value);
}
