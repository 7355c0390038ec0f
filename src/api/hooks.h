/* SPDX-License-Identifier: MIT */
/* The hooks of the API in the HTTP server. */
#ifndef API_HOOKS_H
#define API_HOOKS_H

#include "http/server.h"

extern const struct server_hooks api_hooks;
#endif
