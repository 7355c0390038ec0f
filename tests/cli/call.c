/* SPDX-License-Identifier: MIT */
/* One GET by libpermit: cli_call URL CA PATH. Prints the word of its status, and the message. Exits with 0 if it is ok. */
#include <stdio.h>

#include "permit/permit.h"

int main(int argc, char **argv)
{
    struct permit_client *client;
    if (argc != 4)
        return 64;
    enum permit_status status =
        permit_client_new(&(struct permit_client_options){.url = argv[1], .ca = argv[2]}, &client);
    if (status == PERMIT_OK) {
        status = permit_call(client, "GET", argv[3], NULL);
        printf("%s %s\n", permit_status_word(status), permit_client_message(client));
        permit_client_free(client);
    }
    return status == PERMIT_OK ? 0 : 1;
}
