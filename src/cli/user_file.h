/* SPDX-License-Identifier: MIT */
/*
 * The user's file of permitctl, ~/.config/permit/config: where the server is and how to log in there. permitctl login
 * writes it. It may contain a secret, so other users must not be able to read it.
 */
#ifndef CLI_USER_FILE_H
#define CLI_USER_FILE_H

#include "base/buf.h"

enum { USER_FILE_PATH_MAX = 4096 };

/* Each member may be NULL. user_file_release frees the texts of a file that user_file_load has filled. */
struct user_file {
    char *url;
    char *token;
    char *ca;
    char *cert;
    char *key;
};

/*
 * Writes the path: permit/config in XDG_CONFIG_HOME, or in ~/.config. Returns false if neither is known, or the path is
 * too long.
 */
bool user_file_path(char path[USER_FILE_PATH_MAX]) MUST_CHECK;
/*
 * Reads the file; without a file all members are NULL. Returns false after a sentence: it cannot be read, others can
 * read it, or it has a mistake. user_file_release is needed in any case.
 */
bool user_file_load(struct user_file *file, const char *path, struct buf *message) MUST_CHECK;
/* Replaces the file by these members, and creates its directories. Returns false after a sentence. */
bool user_file_write(const struct user_file *file, const char *path, struct buf *message) MUST_CHECK;
/* Accepts a zeroed object. */
void user_file_release(struct user_file *file);

/* Returns true if the credential of the file belongs to each server of this list: the file names them, or none. */
bool user_file_covers(const struct user_file *file, const char *urls) MUST_CHECK;
#endif
