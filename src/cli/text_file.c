/* SPDX-License-Identifier: MIT */
#include "cli/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "cli/cli.h"

static int cut_lines(struct text_file *file, size_t length)
{
    size_t lines = 1;
    for (size_t i = 0; i < length; i++)
        lines += file->text[i] == '\n';
    file->lines = calloc(lines, sizeof(*file->lines));
    if (!file->lines)
        return cli_error(CLI_NO_START, "out of memory");
    for (char *at = file->text, *end = at + length; at < end;) {
        size_t line = strcspn(at, "\n");
        file->lines[file->count++] = at;
        at[line] = '\0';
        if (line && at[line - 1] == '\r')
            at[line - 1] = '\0';
        at += line + 1;
    }
    return CLI_OK;
}

int text_file_read(const char *path, size_t max, struct text_file *ret_file)
{
    *ret_file = (struct text_file){0};
    bool is_input = strcmp(path, "-") == 0;
    int fd = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cli_error(CLI_USAGE, "%s: %s", path, strerror(errno));
    struct buf text;
    buf_init(&text, max);
    bool whole = io_read_all(fd, &text);
    if (!is_input)
        (void)close(fd);
    size_t length = text.length;
    buf_append_char(&text, '\0');
    ret_file->text = buf_steal(&text);
    buf_release(&text);
    if (!whole || !ret_file->text)
        return cli_error(CLI_USAGE, "cannot read %s, or it has more than %zu MiB", path, max >> 20);
    if (memchr(ret_file->text, '\0', length))
        return cli_error(CLI_USAGE, "%s: contains a zero byte", path);
    return cut_lines(ret_file, length);
}

void text_file_release(struct text_file *file)
{
    free(file->lines);
    free(file->text);
}
