/* SPDX-License-Identifier: MIT */
/*
 * A private MariaDB that takes long to answer. A wrapper waits before it becomes mariadbd, and meanwhile makes progress
 * ("slow") or does nothing ("hung"). Or it fails each time ("fails", "refuses").
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

enum { PATIENCE_MS = 240000 }; /* for messages that come every 10 s */

static const char program[] =
    "#!/bin/sh\n"
    "here=$(dirname \"$0\")\n"
    "real=$(PATH=/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin; command -v mariadbd)\n"
    "case $(cat \"$here/mode\") in\n"
    "slow) until [ -e \"$here/go\" ]; do echo x >>\"$here/done\"; sleep 0.2; done ;;\n"
    "hung) read -r go <\"$here/gate\" ;;\n"
    "fails) echo '[Note] begins'; echo '[ERROR] no space left'; echo '[ERROR] Aborting'; exit 7 ;;\n"
    "refuses) echo '[Note] begins'; echo 'cannot change directory'; echo '0 [ERROR] Aborting'; exit 8 ;;\n"
    "esac\n"
    "exec \"$real\" \"$@\"\n";

/* A permitd on an existing database, whose mariadbd is started through the wrapper. */
struct scene {
    const char *programs; /* directory of the wrapper and its files */
    char *data_dir;
    struct kit_permitd *permitd;
    struct talk talk;
};

static void set_mode(const struct scene *scene, const char *mode)
{
    write_file(text("%s/mode", scene->programs), mode, 0600);
}

static unsigned free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static struct scene scene_set(const char *mode)
{
    struct scene scene = {.programs = kept(kit_path("programs")), .data_dir = kit_path("patient")};
    kit_permitd_stop(kit_permitd_start(&(struct kit_permitd_options){.data_dir = scene.data_dir}));
    const char *mariadbd = text("%s/mariadbd", scene.programs);
    cr_assert_eq(mkdir(scene.programs, 0700), 0);
    write_file(mariadbd, program, 0700);
    cr_assert_eq(mkfifo(text("%s/gate", scene.programs), 0600), 0);
    set_mode(&scene, mode);
    setenv("PATH", text("%s:%s", scene.programs, getenv("PATH")), 1);
    unsigned port = free_port();
    scene.permitd = kit_permitd_spawn(
        &(struct kit_permitd_options){.data_dir = scene.data_dir, .listen = text("127.0.0.1:%u", port)});
    scene.talk = talk_to(port);
    return scene;
}

static void scene_end(struct scene *scene)
{
    talk_end(&scene->talk);
    kit_permitd_stop(scene->permitd);
    free(scene->data_dir);
}

/* Lets the wrapper continue and become mariadbd. */
static void let_go(const struct scene *scene, const char *mode)
{
    if (strcmp(mode, "slow") == 0) {
        write_file(text("%s/go", scene->programs), "", 0600);
        return;
    }
    /* The descriptor stays open: the wrapper may not have opened the FIFO yet. */
    int fd = open(text("%s/gate", scene->programs), O_RDWR | O_CLOEXEC);
    cr_assert(fd >= 0 && write(fd, "\n", 1) == 1);
}

/* Returns the detail of /readyz; "" if /readyz is not answered 503. Valid until the next call. */
static const char *readyz_detail(struct scene *scene)
{
    static char *detail;
    free(detail);
    detail = NULL;
    reply_release(&scene->talk.reply);
    if (kit_http_get(&scene->talk.http, "/readyz", &scene->talk.reply) && scene->talk.reply.status == 503)
        detail = kit_json_text(scene->talk.reply.body, "detail");
    return detail ? detail : "";
}

struct expected {
    struct scene *scene;
    const char *part;
    int waited_s; /* at least */
};

static bool is_said(void *context)
{
    const struct expected *expected = context;
    const char *said = readyz_detail(expected->scene);
    const char *waited = strstr(said, "starting for ");
    return strstr(said, expected->part) && (!expected->waited_s || (waited && atoi(waited + 13) >= expected->waited_s));
}

static void wait_for_detail(struct scene *scene, const char *part, int waited_s)
{
    struct expected expected = {scene, part, waited_s};
    cr_assert(kit_wait_until(is_said, &expected, PATIENCE_MS), "no \"%s\" in %s", part, scene->talk.reply.body);
}

static bool is_down(void *talk)
{
    return metric_of(talk, "permitd_database_up") == 0;
}

static void grants(struct talk *talk)
{
    const char *name = fresh_name("s");
    say(talk, 201, "PUT", semaphore_path(name), "{\"capacity\":1}");
    say(talk, 201, "POST", "/v1/requests", text("{\"permits\":[{\"semaphore\":\"%s\"}]}", name));
}

/* An earlier version gave up after 60 s, each time. */
Test(slow_database, slow_start_with_progress_is_awaited_beyond_a_minute, .timeout = 600)
{
    struct scene scene = scene_set("slow");
    struct talk *talk = &scene.talk;
    wait_for_detail(&scene, "private MariaDB", 0);
    say(talk, 200, "GET", "/healthz", NULL);
    refused(talk, 503, "database_unavailable", "POST", "/v1/requests", "{\"permits\":[{\"semaphore\":\"s\"}]}");
    cr_assert(strstr(talk->reply.body, "private MariaDB"), "%s", talk->reply.body);
    cr_assert_geq(number_of(talk, "retry_after_ms"), 1);
    refused(talk, 404, "unknown_path", "GET", "/v1/nothing", NULL);
    cr_assert(is_down(talk));
    wait_for_detail(&scene, "makes progress", 61);
    cr_assert_geq(log_count(scene.permitd, "makes progress"), 6, "said every 10 s");
    cr_assert_eq(log_count(scene.permitd, "has done nothing"), 0);
    let_go(&scene, "slow");
    cr_assert(kit_permitd_wait_served(scene.permitd, PATIENCE_MS));
    say(talk, 200, "GET", "/readyz", NULL);
    grants(talk);
    scene_end(&scene);
}

static bool is_gone(void *pid)
{
    return kill(*(pid_t *)pid, 0) != 0;
}

Test(slow_database, hung_start_is_reported_and_ended_only_by_a_signal, .timeout = 600)
{
    struct scene scene = scene_set("hung");
    wait_for_detail(&scene, "has done nothing for", 0);
    cr_assert_geq(log_count(scene.permitd, "has done nothing for"), 1);
    pid_t pid = mariadbd_of(scene.data_dir);
    cr_assert_eq(kill(pid, SIGSTOP), 0);
    wait_for_detail(&scene, "send it SIGCONT", 0);
    scene_end(&scene); /* exits 0 */
    cr_assert(kit_wait_until(is_gone, &pid, 60000), "what was waited for is left behind");
}

Test(slow_database, hung_restart_is_reported_and_awaited, .timeout = 600)
{
    struct scene scene = scene_set("direct");
    cr_assert(kit_permitd_wait_served(scene.permitd, PATIENCE_MS));
    grants(&scene.talk);
    set_mode(&scene, "hung");
    cr_assert_eq(kill(mariadbd_of(scene.data_dir), SIGKILL), 0);
    wait_for_detail(&scene, "has done nothing for", 0);
    refused(&scene.talk, 503, "database_unavailable", "GET", "/v1/semaphores/s", NULL);
    cr_assert(strstr(scene.talk.reply.body, "has done nothing for"), "%s", scene.talk.reply.body);
    say(&scene.talk, 200, "GET", "/healthz", NULL);
    cr_assert(kit_wait_until(is_down, &scene.talk, PATIENCE_MS));
    let_go(&scene, "hung");
    say_until(&scene.talk, 200, "GET", "/readyz", NULL);
    grants(&scene.talk);
    scene_end(&scene);
}

/* An earlier version logged the exit only, and the detail of 503 was "Database unavailable". */
Test(slow_database, failing_restart_is_reported_with_its_first_error, .timeout = 600)
{
    static const char sentence[] = "the private MariaDB fails to start: ";
    struct scene scene = scene_set("direct");
    cr_assert(kit_permitd_wait_served(scene.permitd, PATIENCE_MS));
    set_mode(&scene, "fails");
    cr_assert_eq(kill(mariadbd_of(scene.data_dir), SIGKILL), 0);
    wait_for_detail(&scene, sentence, 0);
    cr_expect(strstr(readyz_detail(&scene), "exit status 7: [ERROR] no space left"), "%s", scene.talk.reply.body);
    refused(&scene.talk, 503, "database_unavailable", "GET", "/v1/semaphores/s", NULL);
    cr_expect(strstr(scene.talk.reply.body, sentence), "%s", scene.talk.reply.body);
    size_t lines = log_count(scene.permitd, "private MariaDB fails to start");
    cr_expect(lines >= 1 && lines <= 3, "%zu lines in the first seconds after 10", lines);
    cr_expect_eq(log_count(scene.permitd, "no space left"), lines);
    set_mode(&scene, "refuses"); /* no line of the cause has the word */
    wait_for_detail(&scene, "exit status 8: cannot change directory", 0);
    set_mode(&scene, "hung");
    wait_for_detail(&scene, "has done nothing for", 0);
    cr_expect(strstr(readyz_detail(&scene), "; before, "), "%s", scene.talk.reply.body);
    cr_expect(strstr(readyz_detail(&scene), "cannot change directory"), "%s", scene.talk.reply.body);
    let_go(&scene, "hung");
    say_until(&scene.talk, 200, "GET", "/readyz", NULL);
    grants(&scene.talk);
    scene_end(&scene);
}

Test(slow_database, check_of_a_hung_database_is_ended_by_a_signal, .timeout = 600)
{
    struct scene scene = scene_set("hung");
    wait_for_detail(&scene, "private MariaDB", 0);
    talk_end(&scene.talk);
    kit_permitd_stop(scene.permitd);
    static const char *const flags[] = {"--check", NULL};
    struct kit_permitd *checking =
        kit_permitd_spawn(&(struct kit_permitd_options){.data_dir = scene.data_dir, .flags = flags});
    int64_t end = kit_now_us() + PATIENCE_MS * 1000LL;
    while (log_count(checking, "has done nothing for") == 0 && kit_now_us() < end)
        kit_sleep_ms(100);
    kill(checking->pid, SIGTERM);
    int status = kit_permitd_wait_end(checking, PATIENCE_MS);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %d", status);
    cr_assert_eq(log_count(checking, "stopped before the private MariaDB answered"), 1);
    kit_permitd_kill(checking);
    free(scene.data_dir);
}
