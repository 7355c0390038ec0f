/* SPDX-License-Identifier: MIT */
/* docs/openapi.json, embedded at build time by cmake/embed_openapi.cmake. */
#ifndef HTTP_OPENAPI_H
#define HTTP_OPENAPI_H

#include <stddef.h>

extern const char openapi_text[];
extern const size_t openapi_length;
#endif
