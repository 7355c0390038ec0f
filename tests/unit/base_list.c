/* SPDX-License-Identifier: MIT */
/* The list with links embedded in its members. */
#include <criterion/criterion.h>

#include "base/list.h"

struct item {
    int number;
    struct list node;
};

enum { ITEMS = 6 };

static struct item items[ITEMS];

static void setup(void)
{
    for (int i = 0; i < ITEMS; i++) {
        items[i].number = i;
        list_init(&items[i].node);
    }
}

TestSuite(list, .init = setup);

/* Asserts the members in order, forwards and backwards. */
static void expect_order(struct list *list, const char *numbers)
{
    char forwards[ITEMS + 1] = {0};
    char backwards[ITEMS + 1] = {0};
    size_t count = 0;
    list_for_each (node, following, list)
        forwards[count++] = (char)('0' + LIST_ENTRY(node, struct item, node)->number);
    size_t left = count;
    for (struct list *node = list->prev; node != list; node = node->prev)
        backwards[--left] = (char)('0' + LIST_ENTRY(node, struct item, node)->number);
    cr_expect_str_eq(forwards, numbers);
    cr_expect_str_eq(backwards, numbers);
    cr_expect_eq(list_empty(list), count == 0);
}

Test(list, keeps_the_order_of_insertion)
{
    struct list list;
    list_init(&list);
    expect_order(&list, "");
    list_append(&list, &items[1].node);
    list_append(&list, &items[2].node);
    list_insert_before(list.next, &items[0].node);
    list_append(&list, &items[4].node);
    list_insert_before(&items[4].node, &items[3].node);
    expect_order(&list, "01234");
}

Test(list, removing_an_entry_twice_is_harmless)
{
    struct list list;
    list_init(&list);
    for (int i = 0; i < 3; i++)
        list_append(&list, &items[i].node);
    list_remove(&items[1].node);
    list_remove(&items[1].node);
    list_remove(&items[5].node);
    expect_order(&list, "02");
}

Test(list, loop_may_remove_its_current_entry)
{
    struct list list;
    list_init(&list);
    for (int i = 0; i < ITEMS; i++)
        list_append(&list, &items[i].node);
    list_for_each (node, following, &list)
        if (LIST_ENTRY(node, struct item, node)->number % 2 == 0)
            list_remove(node);
    expect_order(&list, "135");
}

Test(list, list_is_appended_to_another)
{
    struct list first, second;
    list_init(&first);
    list_init(&second);
    list_append_all(&first, &second);
    expect_order(&first, "");
    list_append(&second, &items[0].node);
    list_append_all(&first, &second);
    expect_order(&first, "0");
    expect_order(&second, "");
    list_append(&second, &items[1].node);
    list_append(&second, &items[2].node);
    list_append_all(&first, &second);
    expect_order(&first, "012");
    expect_order(&second, "");
}
