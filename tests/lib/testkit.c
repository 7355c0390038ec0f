/* SPDX-License-Identifier: MIT */
/* The test kit: see testkit.h. */
#include "testkit.h"
