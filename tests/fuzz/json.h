/* SPDX-License-Identifier: MIT */
/* A JSON text judged by RFC 8259 alone, as strictly as it can be read, and without a library. */
#ifndef FUZZ_JSON_H
#define FUZZ_JSON_H

#include "base/base.h"

struct json_facts {
    bool is_json; /* one value, and nothing but white space around it */
    bool is_object;
    size_t depth;   /* of arrays and objects within each other */
    bool twice;     /* an object has two members of one name */
    bool nul_name;  /* a name has an escaped NUL in it */
    bool surrogate; /* an escaped half of a surrogate pair stands alone: what it means, nobody knows */
};

void json_judge(struct bytes text, struct json_facts *ret_facts);
#endif
