-- SPDX-License-Identifier: MIT
-- placeholder
DO 0;
