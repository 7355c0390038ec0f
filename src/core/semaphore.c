/* SPDX-License-Identifier: MIT */
#include "core/semaphore.h"

const char *const semaphore_kind_words[] = {"slotted", "counted", NULL};
const char *const semaphore_queue_words[] = {"backfill", "fifo", NULL};
const char *const semaphore_feed_words[] = {"none", "sales", "all", NULL};

/* Returns the word of a choice; the first for a number that has none. */
static const char *choice_word(const char *const *words, int64_t number)
{
    for (int64_t i = 0; words[i]; i++)
        if (i + 1 == number)
            return words[i];
    return words[0];
}

const char *semaphore_kind_word(enum semaphore_kind kind)
{
    return choice_word(semaphore_kind_words, kind);
}

const char *semaphore_queue_word(enum semaphore_queue queue)
{
    return choice_word(semaphore_queue_words, queue);
}

#define SETTING_ROW(name_, c_type, member, type_, flags_, min, max, initial_, words_, expected, letter, option_, ...)  \
    {.name = #name_,                                                                                                   \
     .column = #member,                                                                                                \
     .type = SETTING_##type_,                                                                                          \
     .flags = (flags_),                                                                                                \
     .initial = (initial_),                                                                                            \
     .words = (words_),                                                                                                \
     .option = (option_),                                                                                              \
     .size = sizeof(c_type),                                                                                           \
     .offset = offsetof(struct semaphore, member),                                                                     \
     .change_offset = offsetof(struct semaphore_change, member),                                                       \
     .has_offset = offsetof(struct semaphore_change, has_##name_)},

const struct semaphore_setting semaphore_settings[SETTING_COUNT] = {SEMAPHORE_SETTINGS(SETTING_ROW)};

struct bytes setting_text(const struct semaphore_setting *setting, const struct semaphore *semaphore)
{
    if (setting->type == SETTING_TEXT)
        return *(const struct bytes *)((const char *)semaphore + setting->offset);
    if (setting->type == SETTING_CHOICE)
        return bytes_of(choice_word(setting->words, setting_number(setting, semaphore)));
    return (struct bytes){0};
}

void semaphore_reset(struct semaphore *semaphore, int64_t default_ttl_ms)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct semaphore_setting *setting = &semaphore_settings[i];
        if (setting->flags & SETTING_FIXED)
            continue;
        if (setting->type == SETTING_TEXT)
            setting_set_text(setting, semaphore, (struct bytes){0});
        else
            setting_set_number(setting, semaphore, setting->initial);
    }
    semaphore->default_ttl_ms = default_ttl_ms;
}

void semaphore_apply(struct semaphore *semaphore, const struct semaphore_change *change)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct semaphore_setting *setting = &semaphore_settings[i];
        if (*((const bool *)change + setting->has_offset) && !(setting->flags & SETTING_FIXED))
            memcpy((char *)semaphore + setting->offset, (const char *)change + setting->change_offset, setting->size);
    }
}

void semaphore_change_all(const struct semaphore *semaphore, struct semaphore_change *change)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct semaphore_setting *setting = &semaphore_settings[i];
        memcpy((char *)change + setting->change_offset, (const char *)semaphore + setting->offset, setting->size);
        *((bool *)change + setting->has_offset) =
            setting->type != SETTING_TEXT || setting_text(setting, semaphore).data;
    }
}

bool semaphore_same_settings(const struct semaphore *a, const struct semaphore *b)
{
    bool same = true;
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct semaphore_setting *setting = &semaphore_settings[i];
        if (setting->type == SETTING_TEXT)
            same &= bytes_same(setting_text(setting, a), setting_text(setting, b));
        else
            same &= setting_number(setting, a) == setting_number(setting, b);
    }
    return same;
}
