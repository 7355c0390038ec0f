/* SPDX-License-Identifier: MIT */
#include "proxies.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "kit_process.h"
#include "unix.h"

enum { START_MS = 60000, STOP_MS = 60000 };

static bool takes_connections(void *context)
{
    int fd = unix_connect(((const struct proxy *)context)->socket);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static struct proxy start(const char *name, char *socket, const char *const *argv)
{
    struct proxy proxy = {.name = name, .socket = socket};
    char *log = kit_path(name);
    kit_watch_log(log);
    proxy.pid = kit_spawn(argv, STDERR_FILENO, log);
    if (!kit_wait_until(takes_connections, &proxy, START_MS))
        kit_fail("%s does not take connections", name);
    free(log);
    return proxy;
}

struct proxy proxy_start_haproxy(unsigned permitd_port)
{
    char *socket = kit_path("haproxy.sock");
    char *config = kit_path("haproxy.cfg");
    FILE *file = fopen(config, "we");
    KIT_CHECK(file);
    fprintf(file,
            "defaults\n"
            "  mode http\n"
            "  timeout connect 60s\n"
            "  timeout server 60s\n"
            "  timeout client 3s\n"
            "  timeout http-request 3s\n"
            "  timeout http-keep-alive 3s\n"
            "frontend front\n"
            "  bind unix@%s\n"
            "  http-request deny if { url_sub smuggled }\n"
            "  default_backend permitd\n"
            "backend permitd\n"
            "  http-reuse always\n"
            "  server permitd 127.0.0.1:%u\n",
            socket, permitd_port);
    KIT_CHECK(fclose(file) == 0);
    const char *const argv[] = {"/usr/sbin/haproxy", "-db", "-f", config, NULL};
    struct proxy proxy = start("haproxy", socket, argv);
    free(config);
    return proxy;
}

struct proxy proxy_start_nginx(unsigned permitd_port)
{
    static const char *const directories[] = {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"};
    char *socket = kit_path("nginx.sock");
    char *config = kit_path("nginx.conf");
    FILE *file = fopen(config, "we");
    KIT_CHECK(file);
    fprintf(file, "daemon off;\nmaster_process off;\npid %s.pid;\nerror_log stderr;\nevents {}\n", socket);
    fprintf(
        file,
        "http {\n  access_log off;\n  client_header_timeout 3s;\n  client_body_timeout 3s;\n  keepalive_timeout 3s;\n");
    for (size_t i = 0; i < sizeof directories / sizeof directories[0]; i++)
        fprintf(file, "  %s_temp_path %s-%s;\n", directories[i], socket, directories[i]);
    fprintf(file,
            "  upstream permitd { server 127.0.0.1:%u; keepalive 4; }\n"
            "  server {\n"
            "    listen unix:%s;\n"
            "    if ($request_uri ~ smuggled) { return 403; }\n"
            "    location / {\n"
            "      proxy_pass http://permitd;\n"
            "      proxy_http_version 1.1;\n"
            "      proxy_set_header Connection \"\";\n"
            "      proxy_set_header Host $http_host;\n"
            "    }\n"
            "  }\n"
            "}\n",
            permitd_port, socket);
    KIT_CHECK(fclose(file) == 0);
    const char *const argv[] = {"/usr/sbin/nginx", "-c", config, "-p", kit_directory(), "-e", "stderr", NULL};
    struct proxy proxy = start("nginx", socket, argv);
    free(config);
    return proxy;
}

void proxy_stop(struct proxy *proxy)
{
    kill(proxy->pid, SIGTERM);
    if (kit_wait_pid(proxy->pid, STOP_MS) == -1)
        kit_fail("%s does not stop", proxy->name);
    free(proxy->socket);
}
