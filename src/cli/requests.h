/* SPDX-License-Identifier: MIT */
/* How one request is shown to a person. */
#ifndef CLI_REQUESTS_H
#define CLI_REQUESTS_H

/* The answer of GET /v1/requests/{external_id}. */
void request_print(const char *body);
#endif
