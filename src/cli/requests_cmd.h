/* SPDX-License-Identifier: MIT */
/* Prints one request. */
#ifndef CLI_REQUESTS_CMD_H
#define CLI_REQUESTS_CMD_H

/* Prints the answer of GET /v1/requests/{external_id}. */
void request_print(const char *body);
#endif
