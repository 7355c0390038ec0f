/* SPDX-License-Identifier: MIT */
#include "base/budget.h"

#include <criterion/criterion.h>

#include "base/buf.h"

enum { PIECE = 10000 };

/* A budget of 10 pieces, the half of it of all strangers, and a half of that for each of two addresses. */
struct scene {
    struct budget all, strangers, first, second;
};

static bool budget_take(struct budget *budget, size_t size)
{
    return budget_change(budget, 0, size) == BUDGET_OK;
}

static struct scene *scene_of(struct scene *scene)
{
    scene->all = (struct budget){.limit = 10 * PIECE};
    scene->strangers = (struct budget){.whole = &scene->all, .part = 2};
    scene->first = (struct budget){.whole = &scene->strangers, .part = 2};
    scene->second = (struct budget){.whole = &scene->strangers, .part = 2};
    return scene;
}

static void uses(const struct scene *scene, int all, int strangers, int first, int second)
{
    cr_expect_eq((size_t)scene->all.used, (size_t)all * PIECE);
    cr_expect_eq((size_t)scene->strangers.used, (size_t)strangers * PIECE);
    cr_expect_eq((size_t)scene->first.used, (size_t)first * PIECE);
    cr_expect_eq((size_t)scene->second.used, (size_t)second * PIECE);
}

Test(budget, piece_must_fit_into_its_share_and_into_the_whole)
{
    struct scene space, *scene = scene_of(&space);
    cr_assert_eq(budget_limit(&scene->first), 25 * PIECE / 10);
    cr_expect(budget_take(&scene->first, PIECE));
    cr_expect(budget_take(&scene->first, PIECE));
    cr_expect_eq(budget_change(&scene->first, 0, PIECE), BUDGET_SHARE_FULL, "its own share is full");
    uses(scene, 2, 2, 2, 0);
    cr_expect(budget_take(&scene->second, PIECE));
    cr_expect(budget_take(&scene->second, PIECE));
    uses(scene, 4, 4, 2, 2);
    cr_expect(budget_take(&scene->all, 6 * PIECE));
    budget_give(&scene->second, PIECE);
    cr_expect(budget_take(&scene->all, PIECE));
    cr_expect_eq(budget_change(&scene->second, 0, PIECE), BUDGET_FULL, "the whole is full");
    uses(scene, 10, 3, 2, 1);
    cr_expect_eq((size_t)scene->all.refused, 1);
    cr_expect_eq((size_t)scene->all.share_refused, 1);
}

/* Together, clients without a share of their own that is full may fill the share above theirs. */
Test(budget, shares_of_a_share_are_limited_together)
{
    struct scene space, *scene = scene_of(&space);
    scene->first.limit = scene->second.limit = 4 * PIECE;
    cr_expect(budget_take(&scene->first, 4 * PIECE));
    cr_expect_eq(budget_change(&scene->second, 0, 2 * PIECE), BUDGET_SHARE_FULL);
    uses(scene, 4, 4, 4, 0);
    cr_expect(budget_take(&scene->all, 6 * PIECE), "the rest is kept for others");
}

Test(budget, piece_that_is_alone_in_its_share_needs_room_in_the_whole_only)
{
    struct scene space, *scene = scene_of(&space);
    cr_expect_eq(budget_change(&scene->first, 0, 4 * PIECE), BUDGET_OK);
    cr_expect_eq(budget_change(&scene->first, 4 * PIECE, 9 * PIECE), BUDGET_OK, "it grows");
    cr_expect_eq(budget_change(&scene->first, 0, PIECE), BUDGET_SHARE_FULL, "a second one");
    cr_expect_eq(budget_change(&scene->first, 9 * PIECE, 11 * PIECE), BUDGET_FULL);
    uses(scene, 9, 9, 9, 0);
    budget_give(&scene->first, 9 * PIECE);
    uses(scene, 0, 0, 0, 0);
}

Test(budget, move_changes_only_what_the_two_do_not_have_in_common)
{
    struct scene space, *scene = scene_of(&space);
    struct budget principal = {.whole = &scene->all, .part = 2};
    cr_assert(budget_take(&scene->all, 8 * PIECE));
    cr_assert(budget_take(&scene->first, 2 * PIECE));
    cr_expect_eq(budget_move(&scene->first, &scene->second, 2 * PIECE), BUDGET_OK, "the whole is full, and keeps it");
    uses(scene, 10, 2, 0, 2);
    cr_expect_eq(budget_move(&scene->second, &principal, 2 * PIECE), BUDGET_OK);
    uses(scene, 10, 0, 0, 0);
    cr_expect_eq((size_t)principal.used, 2 * (size_t)PIECE);
    cr_expect_eq(budget_move(&principal, &scene->all, 2 * PIECE), BUDGET_OK);
    cr_expect_eq((size_t)principal.used, 0);
    cr_expect_eq(budget_move(&scene->all, NULL, 2 * PIECE), BUDGET_OK);
    uses(scene, 8, 0, 0, 0);
    cr_expect_eq(budget_move(NULL, &scene->first, 2 * PIECE), BUDGET_OK);
    uses(scene, 10, 2, 2, 0);
}

Test(budget, move_that_does_not_fit_changes_nothing)
{
    struct scene space, *scene = scene_of(&space);
    scene->second.limit = 4 * PIECE;
    cr_assert(budget_take(&scene->all, 3 * PIECE));
    cr_assert(budget_take(&scene->first, 3 * PIECE));
    cr_assert(budget_take(&scene->second, PIECE));
    cr_expect_eq(budget_move(&scene->all, &scene->second, 2 * PIECE), BUDGET_SHARE_FULL, "the share above it is full");
    uses(scene, 7, 4, 3, 1);
    cr_expect_eq(budget_move(NULL, &scene->all, 4 * PIECE), BUDGET_FULL);
    uses(scene, 7, 4, 3, 1);
}

Test(budget, share_changes_with_the_whole)
{
    struct scene space, *scene = scene_of(&space);
    cr_expect(budget_take(&scene->first, PIECE));
    scene->all.limit = 4 * PIECE;
    cr_expect_eq(budget_change(&scene->first, 0, PIECE), BUDGET_SHARE_FULL);
    scene->all.limit = 40 * PIECE;
    cr_expect_eq(budget_change(&scene->first, 0, PIECE), BUDGET_OK);
}

Test(budget, small_pieces_are_neither_counted_nor_refused)
{
    struct scene space, *scene = scene_of(&space);
    cr_assert(budget_take(&scene->all, 10 * PIECE));
    cr_expect(budget_take(&scene->first, BUDGET_SMALL));
    cr_expect_not(budget_take(&scene->first, BUDGET_SMALL + 1));
    cr_expect_eq((size_t)scene->first.used, 0);
}

Test(budget, buffer_tells_which_limit_it_has_met)
{
    struct scene space, *scene = scene_of(&space);
    static const char bytes[3 * PIECE];
    struct buf own, other;
    buf_init(&own, SIZE_MAX);
    buf_init(&other, SIZE_MAX);
    own.budget = other.budget = &scene->first;
    buf_append(&own, bytes, PIECE);
    buf_append(&other, bytes, 3 * PIECE);
    cr_expect_eq(other.broken, BUF_SHARE_FULL);
    buf_release(&own);
    buf_append(&own, bytes, PIECE);
    cr_assert(budget_take(&scene->all, 8 * PIECE));
    buf_append(&own, bytes, 3 * PIECE);
    cr_expect_eq(own.broken, BUF_NO_MEMORY);
    buf_release(&own);
    buf_release(&other);
    cr_expect_eq((size_t)scene->all.used, 8 * PIECE);
}
