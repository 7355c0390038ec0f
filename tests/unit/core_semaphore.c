/* SPDX-License-Identifier: MIT */
/* The table of settings of a semaphore: its loops, and that documents and migrations have each row. */
#include <criterion/criterion.h>
#include <glob.h>
#include <json-c/json.h>
#include <stdio.h>

#include "core/semaphore.h"

/* A value that differs from the initial one of every setting. */
static void set_other(const struct semaphore_setting *setting, struct semaphore *semaphore)
{
    if (setting->type == SETTING_TEXT)
        setting_set_text(setting, semaphore, BYTES("other"));
    else
        setting_set_number(setting, semaphore, setting->type == SETTING_CHOICE ? 2 : 77);
}

static struct semaphore fresh(void)
{
    struct semaphore semaphore = {.kind = KIND_SLOTTED};
    semaphore_reset(&semaphore, DEFAULT_TTL_MS);
    return semaphore;
}

Test(semaphore, reset_gives_the_initial_values)
{
    struct semaphore semaphore = {.kind = KIND_COUNTED};
    for (size_t i = 0; i < SETTING_COUNT; i++)
        set_other(&semaphore_settings[i], &semaphore);
    semaphore_reset(&semaphore, 1234);
    cr_expect(semaphore.kind == KIND_COUNTED && semaphore.queue == QUEUE_BACKFILL && semaphore.capacity == 0);
    cr_expect(semaphore.default_ttl_ms == 1234 && semaphore.max_ttl_ms == -1 && semaphore.grace_ms == 0);
    cr_expect(semaphore.max_hold_ms == DEFAULT_MAX_HOLD_MS && semaphore.note.data == NULL);
}

Test(semaphore, change_sets_the_settings_that_it_has)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct semaphore_setting *setting = &semaphore_settings[i];
        struct semaphore before = fresh(), other = fresh(), after = fresh();
        struct semaphore_change change = {.if_none_match = true};
        set_other(setting, &other);
        cr_expect_not(semaphore_same_settings(&before, &other), "%s", setting->name);
        semaphore_change_all(&other, &change);
        for (size_t j = 0; j < SETTING_COUNT; j++)
            *((bool *)&change + semaphore_settings[j].has_offset) &= i == j;
        semaphore_apply(&after, &change);
        bool is_fixed = setting->flags & SETTING_FIXED;
        cr_expect(semaphore_same_settings(&after, is_fixed ? &before : &other), "%s", setting->name);
    }
}

Test(semaphore, change_all_leaves_out_a_text_that_is_not_set)
{
    struct semaphore semaphore = fresh();
    struct semaphore_change change = {.if_none_match = true};
    semaphore_change_all(&semaphore, &change);
    cr_expect(change.if_none_match && change.has_kind && change.has_max_ttl && !change.has_note);
    semaphore.note = BYTES("");
    cr_expect_not(semaphore_same_settings(&semaphore, &(struct semaphore){0}));
    semaphore_change_all(&semaphore, &change);
    cr_expect(change.has_note);
}

Test(semaphore, choice_is_shown_as_its_word)
{
    struct semaphore semaphore = {.kind = KIND_COUNTED, .queue = 9};
    cr_expect(bytes_equal(setting_text(&semaphore_settings[SETTING_kind], &semaphore), BYTES("counted")));
    cr_expect(bytes_equal(setting_text(&semaphore_settings[SETTING_queue], &semaphore), BYTES("backfill")));
    cr_expect_null(setting_text(&semaphore_settings[SETTING_grace], &semaphore).data);
}

/* ---- documents ---- */

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s", path);
    char *text = calloc(1, 1 << 20);
    cr_assert(text && fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

/* The properties of a schema. */
static struct json_object *properties_of(struct json_object *api, const char *schema)
{
    static const char *const path[] = {"components", "schemas", NULL, "properties"};
    struct json_object *at = api;
    for (size_t i = 0; i < ARRAY_LENGTH(path); i++)
        cr_assert(json_object_object_get_ex(at, path[i] ? path[i] : schema, &at), "%s", schema);
    return at;
}

Test(semaphore, openapi_has_every_setting_and_no_other)
{
    static const char *const answers[] = {"Semaphore", "Template"};
    struct json_object *api = json_object_from_file(PERMIT_SOURCE_DIR "/docs/openapi.json");
    cr_assert(api);
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct semaphore_setting *setting = &semaphore_settings[i];
        cr_expect(json_object_object_get_ex(properties_of(api, "SemaphoreChange"), setting->name, NULL), "%s",
                  setting->name);
        cr_expect(json_object_object_get_ex(properties_of(api, "TemplateChange"), setting->name, NULL), "%s",
                  setting->name);
        for (size_t j = 0; j < ARRAY_LENGTH(answers); j++)
            cr_expect(json_object_object_get_ex(properties_of(api, answers[j]), setting->column, NULL), "%s in %s",
                      setting->column, answers[j]);
    }
    cr_expect_eq(json_object_object_length(properties_of(api, "SemaphoreChange")), SETTING_COUNT + 1); /* labels */
    cr_expect_eq(json_object_object_length(properties_of(api, "TemplateChange")), SETTING_COUNT);
    json_object_put(api);
}

Test(semaphore, protocol_describes_every_setting)
{
    char *protocol = read_text(PERMIT_SOURCE_DIR "/docs/protocol.md");
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        char quoted[80];
        snprintf(quoted, sizeof quoted, "`%s`", semaphore_settings[i].name);
        cr_expect(strstr(protocol, quoted), "%s", quoted);
        snprintf(quoted, sizeof quoted, "`%s`", semaphore_settings[i].column);
        cr_expect(strstr(protocol, quoted), "%s", quoted);
    }
    free(protocol);
}

/* ---- migrations ---- */

/* Returns true if the line of a migration makes this column, with a comment, and NULL allowed or not. */
static bool makes_column(const char *line, const char *column, bool nullable)
{
    size_t length = strlen(column);
    line += strspn(line, " ");
    if (strncmp(line, "ADD COLUMN ", 11) == 0)
        line += 11;
    return strncmp(line, column, length) == 0 && line[length] == ' ' && strstr(line, " COMMENT '") &&
           nullable == !strstr(line, " NOT NULL");
}

/* Returns how often the migration makes the column of the table. */
static int count_columns(const char *path, const char *table, const struct semaphore_setting *setting)
{
    bool nullable = setting->type == SETTING_TEXT || setting->type == SETTING_INTEGER_OR_NONE ||
                    setting->type == SETTING_DURATION_OR_NONE || setting->type == SETTING_DURATION_OR_STRICT;
    char *text = read_text(path), *rest = text, *line;
    int count = 0;
    bool inside = false;
    while ((line = strsep(&rest, "\n"))) {
        char name[80];
        if (sscanf(line, "CREATE TABLE %79s", name) == 1 || sscanf(line, "ALTER TABLE %79s", name) == 1)
            inside = strcmp(name, table) == 0;
        else
            count += inside && makes_column(line, setting->column, nullable);
    }
    free(text);
    return count;
}

Test(semaphore, migrations_make_every_column)
{
    static const char *const tables[] = {"semaphore", "template"};
    glob_t migrations;
    cr_assert_eq(glob(PERMIT_SOURCE_DIR "/sql/[0-9]*.sql", 0, NULL, &migrations), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(tables); i++)
        for (size_t j = 0; j < SETTING_COUNT; j++) {
            int count = 0;
            for (size_t k = 0; k < migrations.gl_pathc; k++)
                count += count_columns(migrations.gl_pathv[k], tables[i], &semaphore_settings[j]);
            cr_expect_eq(count, 1, "%s.%s", tables[i], semaphore_settings[j].column);
        }
    globfree(&migrations);
}
