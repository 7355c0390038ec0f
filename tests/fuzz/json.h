/* SPDX-License-Identifier: MIT */
/* Judges a JSON text by RFC 8259 alone, as strictly as possible, without a library. */
#ifndef FUZZ_JSON_H
#define FUZZ_JSON_H

#include "base/base.h"

struct json_facts {
    bool is_json; /* one value, surrounded by white space only */
    bool is_object;
    size_t depth;   /* nesting depth of arrays and objects */
    bool twice;     /* an object has two members of one name */
    bool nul_name;  /* a name contains an escaped NUL */
    bool surrogate; /* an unpaired surrogate escape, which has no defined meaning */
};

void json_judge(struct bytes text, struct json_facts *ret_facts);
#endif
