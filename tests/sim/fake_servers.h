/* SPDX-License-Identifier: MIT */
/* The permitd that run on the database in memory: store/servers.h. */
#ifndef SIM_FAKE_SERVERS_H
#define SIM_FAKE_SERVERS_H

#include "store/servers.h"

extern const struct store_servers fake_servers;
#endif
