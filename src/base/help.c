/* SPDX-License-Identifier: MIT */
#include "base/help.h"

enum { WIDTH = 100 };

/* Ends the line and indents the next one. Returns its column. */
static int next_line(int indent, FILE *out)
{
    (void)fprintf(out, "\n%*s", indent, "");
    return indent;
}

void help_print_entry(const char *name, const char *text, int indent, FILE *out)
{
    int column = fprintf(out, "%-*s", indent - 1, name);
    column = column < indent ? column + fprintf(out, " ") : next_line(indent, out);
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column > indent && column + 1 + (int)word > WIDTH)
            column = next_line(indent, out);
        column += fprintf(out, "%s%.*s", column > indent ? " " : "", (int)word, text);
        text += word + strspn(text + word, " ");
    }
    (void)fputc('\n', out);
}
