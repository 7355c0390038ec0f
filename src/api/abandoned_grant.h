/* SPDX-License-Identifier: MIT */
/*
 * Abandoned grants: permitd generated the key, and the client disconnected before the answer was sent. No client can
 * ask for them, so they are released. A grant under the client's own key is kept until the client asks for it or it
 * expires.
 */
#ifndef API_ABANDONED_GRANT_H
#define API_ABANDONED_GRANT_H

#include "http/exchange.h"

/* Releases grants of the exchange under generated keys. The answer is complete and was sent to no client. */
void abandoned_grants_release(struct exchange *exchange);
#endif
