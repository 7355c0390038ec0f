/* SPDX-License-Identifier: MIT */
/* The text of docs/openapi.json, embedded by CMakeLists.txt. */
#ifndef API_OPENAPI_H
#define API_OPENAPI_H

#include <stddef.h>

extern const char openapi_text[];
extern const size_t openapi_length;
#endif
