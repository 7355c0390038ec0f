/* SPDX-License-Identifier: MIT */
/*
 * Grants that nobody knows of: the key was made here, and the client went away before it could be told. Nobody can ask
 * for them again, so they are released. Those under a key of the client's stand until it asks, or until they expire.
 */
#ifndef HTTP_UNCLAIMED_H
#define HTTP_UNCLAIMED_H

#include "http/exchange.h"

/* Releases what the exchange was granted under keys made here. Its answer is complete and went to nobody. */
void unclaimed_release(struct exchange *exchange);
#endif
