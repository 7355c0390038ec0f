/* SPDX-License-Identifier: MIT */
#include "choice.h"

#include <stdio.h>
#include <string.h>

#include "testkit.h"

static const char *name_of(const void *rows, size_t row_size, size_t row)
{
    const char *name;
    memcpy(&name, (const char *)rows + row * row_size, sizeof(name));
    return name;
}

_Noreturn static void usage(const char *program, const void *rows, size_t row_size, size_t count)
{
    fprintf(stderr, "usage: %s [--quick] [PART ...]; parts:", program);
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, " %s", name_of(rows, row_size, i));
    fputc('\n', stderr);
    kit_fail("no such part");
}

struct choice choice_read(int argc, char **argv, const void *rows, size_t row_size, size_t count)
{
    struct choice choice = {false, {false}};
    bool some = false;
    KIT_CHECK(count <= CHOICE_MAX);
    for (int i = 1; i < argc; i++) {
        size_t row = 0;
        if (!strcmp(argv[i], "--quick")) {
            choice.quick = true;
            continue;
        }
        while (row < count && strcmp(argv[i], name_of(rows, row_size, row)))
            row++;
        if (row == count)
            usage(argv[0], rows, row_size, count);
        choice.chosen[row] = some = true;
    }
    for (size_t i = 0; i < count && !some; i++)
        choice.chosen[i] = true;
    return choice;
}
