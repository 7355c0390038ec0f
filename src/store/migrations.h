/* SPDX-License-Identifier: MIT */
/* The files of sql/, embedded at build time by cmake/embed_sql.cmake. */
#ifndef STORE_MIGRATIONS_H
#define STORE_MIGRATIONS_H

struct migration {
    unsigned version; /* the number in the file's name */
    const char *name;
    const char *text;
};

/* Ascending by version; ends with version 0. */
extern const struct migration schema_migrations[];
#endif
