/* SPDX-License-Identifier: MIT */
#include "cli/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "cli/cli.h"

int text_file_read(const char *path, size_t max, char **ret_text, size_t *ret_length)
{
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
    char *content = buf_steal(&text);
    buf_release(&text);
    int code = CLI_OK;
    if (!whole || !content)
        code = cli_error(CLI_USAGE, "cannot read %s, or it has more than %zu MiB", path, max >> 20);
    else if (memchr(content, '\0', length))
        code = cli_error(CLI_USAGE, "%s: contains a zero byte", path);
    if (code) {
        free(content);
        return code;
    }
    *ret_text = content;
    *ret_length = length;
    return CLI_OK;
}
