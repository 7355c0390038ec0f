/* SPDX-License-Identifier: MIT */
/* permitctl: everything is in src/cli. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv);
}
