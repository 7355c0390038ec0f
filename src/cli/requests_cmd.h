/* SPDX-License-Identifier: MIT */
/* Prints one request. */
#ifndef CLI_REQUESTS_CMD_H
#define CLI_REQUESTS_CMD_H

#include "client/json.h"

/* Prints the answer of GET /v1/requests/{external_id}. */
void request_print(struct json_object *answer);
#endif
