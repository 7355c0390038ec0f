/* SPDX-License-Identifier: MIT */
/*
 * Plans that are wrong: the database refuses them, their clients are told, and permitd serves the others. A trigger
 * changes the plan on its way into the table.
 */
#include <criterion/criterion.h>

#include "fixture.h"

/* A slot is said to be sold that is taken: the statement is that of a plan that sells it again. */
Test(wrong_plans, slot_that_is_taken_is_not_sold_again, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct kit_sql *sql = own_sql("own0");
    const char *hall = fresh_semaphore(&talk, "{\"capacity\":3}");
    say(&talk, 201, "POST", "/v1/requests", acquire_body("first", hall, 1, ""));
    kit_sql_run(sql, "CREATE TRIGGER sells_again BEFORE INSERT ON slot FOR EACH ROW SET NEW.number ="
                     " IF(NEW.number = 2, 1, NEW.number)");
    for (int i = 0; i < 2; i++) {
        refused(&talk, 500, "internal", "POST", "/v1/requests", acquire_body("second", hall, 1, ""));
        refused(&talk, 404, "unknown_request", "GET", request_path("second"), NULL);
    }
    cr_expect_geq(log_count(permitd, "Column 'permit_id' cannot be null"), 2);
    const char *third = text("{\"external_id\":\"third\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[3]}]}", hall);
    say(&talk, 201, "POST", "/v1/requests", third);
    kit_sql_run(sql, "DROP TRIGGER sells_again");
    say(&talk, 201, "POST", "/v1/requests", acquire_body("second", hall, 1, ""));
    cr_expect_eq(number_of(&talk, "permits.0.slots.0"), 2);
    say(&talk, 200, "POST", "/v1/requests", acquire_body("first", hall, 1, ""));
    cr_expect_eq(number_of(&talk, "permits.0.slots.0"), 1);
    say(&talk, 200, "GET", semaphore_path(hall), NULL);
    cr_expect_eq(number_of(&talk, "in_use"), 3);
    kit_sql_close(sql);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}
