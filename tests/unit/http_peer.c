/* SPDX-License-Identifier: MIT */
#include "http/peer.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>

static struct sockaddr_storage address_of(const char *text)
{
    struct sockaddr_storage address = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&address;
    in->sin_family = AF_INET;
    cr_assert_eq(inet_pton(AF_INET, text, &in->sin_addr), 1);
    return address;
}

struct scene {
    struct map peers;
    struct list failing;
    struct memory_share strangers;
};

static struct peer *join(struct scene *scene, const char *text)
{
    struct sockaddr_storage address = address_of(text);
    struct peer *peer = peer_join(&scene->peers, &address, (uid_t)-1, &scene->strangers);
    cr_assert_not_null(peer);
    return peer;
}

#define SECONDS(n) ((n) * (mono_us)US_PER_SECOND)

Test(peer, ten_failures_in_a_second_close_it_for_a_second)
{
    struct scene scene = {0};
    list_init(&scene.failing);
    struct peer *peer = join(&scene, "10.0.0.1");
    struct peer *other = join(&scene, "10.0.0.2");
    mono_us now = SECONDS(100);
    for (int i = 0; i < PEER_MAX_FAILURES - 1; i++)
        peer_count_failure(&scene.failing, peer, now);
    cr_expect_not(peer_is_closed(peer, now));
    peer_count_failure(&scene.failing, peer, now + SECONDS(1) - 1);
    cr_expect(peer_is_closed(peer, now + SECONDS(1)));
    cr_expect(peer_is_closed(peer, now + SECONDS(2) - 2));
    cr_expect_not(peer_is_closed(peer, now + SECONDS(2) - 1));
    cr_expect_not(peer_is_closed(other, now + SECONDS(1)));
    peer_leave(&scene.peers, other);
    peer_leave(&scene.peers, peer);
    peers_forgive(&scene.peers, &scene.failing, INT64_MAX);
    cr_expect_eq(scene.peers.count, 0);
    map_release(&scene.peers);
}

Test(peer, failures_of_different_seconds_do_not_add_up)
{
    struct scene scene = {0};
    list_init(&scene.failing);
    struct peer *peer = join(&scene, "10.0.0.1");
    for (int i = 0; i < 5 * PEER_MAX_FAILURES; i++)
        peer_count_failure(&scene.failing, peer, SECONDS(100 + i));
    cr_expect_not(peer_is_closed(peer, SECONDS(100 + 5 * PEER_MAX_FAILURES)));
    peer_leave(&scene.peers, peer);
    peers_forgive(&scene.peers, &scene.failing, INT64_MAX);
    map_release(&scene.peers);
}

Test(peer, failing_one_is_remembered_without_connections)
{
    struct scene scene = {0};
    list_init(&scene.failing);
    mono_us now = SECONDS(100);
    for (int i = 0; i < PEER_MAX_FAILURES; i++) { /* a connection for each, as after 401 */
        struct peer *peer = join(&scene, "10.0.0.1");
        peer_count_failure(&scene.failing, peer, now + i);
        peer_leave(&scene.peers, peer);
    }
    struct peer *peer = join(&scene, "10.0.0.1");
    cr_expect(peer_is_closed(peer, now + PEER_MAX_FAILURES));
    peer_leave(&scene.peers, peer);
    peers_forgive(&scene.peers, &scene.failing, now + SECONDS(1));
    cr_expect_eq(scene.peers.count, 1);
    peers_forgive(&scene.peers, &scene.failing, now + SECONDS(3));
    cr_expect_eq(scene.peers.count, 0);
    map_release(&scene.peers);
}
