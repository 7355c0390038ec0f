/* SPDX-License-Identifier: MIT */
/* The plans that the server makes for the statements that run with every request, on the tables as they are. */
#ifndef STORE_PLANS_H
#define STORE_PLANS_H

#include "base/base.h"
#include "permit/status.h"

struct doctor_report;
struct store;

/* Adds findings about EXPLAIN of these statements: a warning for each that scans a table, or that the server refuses. */
enum permit_status plans_check(struct store *store, struct doctor_report *report) MUST_CHECK;
#endif
