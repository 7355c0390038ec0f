/* SPDX-License-Identifier: MIT */
#include "cli/semaphore_settings.h"

void settings_unset(struct cli_options *options)
{
    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (setting_is_number(&semaphore_settings[i]))
            options->settings[i].number = CLI_UNSET;
        else
            options->settings[i].text = NULL;
}

struct json_writer *settings_new(const struct cli_options *given)
{
    struct json_writer *writer = json_writer_new();
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct semaphore_setting *setting = &semaphore_settings[i];
        const union setting_option *option = &given->settings[i];
        if (!setting_is_number(setting))
            json_add_text(writer, setting->name, option->text);
        else if (option->number == SETTING_NONE)
            json_add_text(writer, setting->name, setting_none_word(setting));
        else if (setting->type == SETTING_INTEGER || setting->type == SETTING_INTEGER_OR_NONE)
            json_add_number(writer, setting->name, option->number);
        else
            json_add_duration(writer, setting->name, option->number);
    }
    return writer;
}

void settings_print(struct json_object *answer)
{
    for (size_t i = SETTING_default_ttl; i < SETTING_COUNT; i++) {
        char heading[32];
        (void)snprintf(heading, sizeof(heading), "%s", semaphore_settings[i].option);
        for (char *at = heading; (at = strchr(at, '-'));)
            *at = ' ';
        json_print_lines(answer, &(struct json_column){heading, semaphore_settings[i].column}, 1);
        if (semaphore_settings[i].type == SETTING_DURATION_OR_STRICT) /* the word stands under the other name */
            json_print_lines(answer, &(struct json_column){heading, semaphore_settings[i].name}, 1);
    }
}
