/* SPDX-License-Identifier: MIT */
/* The table of the settings of the handlers. docs/config.md is printed from such tables. */
#include "api/service.h"
#include "base/config.h"

#define AT(member) offsetof(struct service_settings, member)
#define DAY_MS     (24LL * 3600 * 1000)

static const struct config_row rows[] = {
    {.name = "allowed_hosts",
     .type = CONFIG_TEXT,
     .offset = AT(allowed_hosts),
     .flags = CONFIG_RELOADABLE,
     .placeholder = "NAMES",
     .help = "Host names that clients may use in URLs, separated by commas. Addresses and localhost are always served. "
             "A request for another host is answered 421, because a web page could have chosen the name."},
    {.name = "max_wait",
     .type = CONFIG_DURATION,
     .offset = AT(max_wait_ms),
     .default_text = "10m",
     .min = 0,
     .max = DAY_MS,
     .flags = CONFIG_RELOADABLE,
     .help = "Longest wait of an acquire. 0: waiting is off."},
    {.name = "feed_tenants",
     .type = CONFIG_BOOL,
     .offset = AT(feed_tenants),
     .default_text = "false",
     .flags = CONFIG_RELOADABLE,
     .help = "Let operators set the feed of their semaphores to all, which takes disk for each request. Otherwise it "
             "needs the right admin."},
    {.name = "max_streams",
     .type = CONFIG_NUMBER,
     .offset = AT(max_streams),
     .default_text = "2000",
     .min = 0,
     .max = 1000000,
     .flags = CONFIG_RELOADABLE,
     .help =
         "Maximum number of readers of the feed that wait at this permitd; more are answered 429. Each also needs a "
         "connection."},
    {.name = "metrics_semaphores",
     .type = CONFIG_NUMBER,
     .offset = AT(metrics_semaphores),
     .default_text = "1000",
     .min = 0,
     .max = 100000,
     .help = "Maximum number of semaphores that /metrics shows one by one. With more it shows only sums."},
};
const struct config_section service_section = {rows, ARRAY_LENGTH(rows)};
