/* SPDX-License-Identifier: MIT */
#include "loading.h"

#include <stdlib.h>
#include <string.h>

#include "kit_process.h"
#include "testkit.h"

char *loading_print(const char *command, bool *ret_good)
{
    char *output = kit_path("output");
    char *whole = kit_text("{ %s\n} >'%s' 2>&1", command, output);
    *ret_good = system(whole) == 0;
    char *printed = kit_read_file(output);
    KIT_CHECK(printed);
    free(whole);
    free(output);
    return printed;
}

void loading_must(const char *command)
{
    bool good;
    char *printed = loading_print(command, &good);
    if (!good)
        kit_fail("%s: %s", command, printed);
    free(printed);
}

void loading_must_refuse(const char *command, const char *part)
{
    bool good;
    char *printed = loading_print(command, &good);
    if (good || !strstr(printed, part) || !strstr(printed, "not loaded"))
        kit_fail("%s must be refused with '%s': %s", command, part, printed);
    free(printed);
}
