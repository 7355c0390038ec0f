/* SPDX-License-Identifier: MIT */
/* Appends a section to a credentials file of permitd, so that the file is valid before and after. */
#ifndef CLI_CREDENTIALS_FILE_H
#define CLI_CREDENTIALS_FILE_H

#include <sys/types.h>

#include "base/buf.h"

/* A file that credentials_file_append has changed. It is locked for others that append until credentials_file_close. */
struct credentials_file {
    int fd;
    off_t old_length;
};

/*
 * Appends the section and waits until the disk has it. Creates the file with mode 0600; keeps the mode and owner of a
 * file that is there. Refuses a file that permitd would refuse, and a section that would make the file invalid. False:
 * `message` has the reason; the file has its old content.
 */
bool credentials_file_append(const char *path, struct bytes section, struct credentials_file *ret_file,
                             struct buf *message) MUST_CHECK;
/* Gives the file its old content again. False: it still has the section. */
bool credentials_file_undo(const struct credentials_file *file);
void credentials_file_close(struct credentials_file *file);
#endif
