/* SPDX-License-Identifier: MIT */
/* The files of sql/, embedded by CMakeLists.txt. */
#ifndef STORE_MIGRATIONS_H
#define STORE_MIGRATIONS_H

struct migration {
    unsigned version; /* number in the file name */
    const char *name; /* file name */
    const char *text; /* SQL statements; each ends with ';' at the end of a line */
};

/* All migrations, ascending by version. The last element has version 0. */
extern const struct migration schema_migrations[];
#endif
