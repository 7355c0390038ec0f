/* SPDX-License-Identifier: MIT */
#include "core/name.h"

#include "base/escape.h"

static bool every_byte(struct bytes name, size_t max, bool (*allowed)(unsigned char))
{
    if (name.length < 1 || name.length > max)
        return false;
    for (size_t i = 0; i < name.length; i++)
        if (!allowed((unsigned char)name.data[i]))
            return false;
    return true;
}

static bool semaphore_byte(unsigned char byte)
{
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') ||
           byte == '.' || byte == '_' || byte == ':' || byte == '@' || byte == '-';
}

static bool key_byte(unsigned char byte)
{
    return byte > ' ' && byte < 0x7f;
}

static bool nonce_byte(unsigned char byte)
{
    return byte >= ' ' && byte < 0x7f;
}

static bool is_dots(struct bytes name)
{
    return bytes_equal(name, BYTES(".")) || bytes_equal(name, BYTES(".."));
}

bool name_is_semaphore(struct bytes name)
{
    return every_byte(name, NAME_MAX_BYTES, semaphore_byte) && !is_dots(name);
}

bool name_is_key(struct bytes name)
{
    return every_byte(name, NAME_MAX_BYTES, key_byte) && !is_dots(name);
}

static bool namespace_byte(unsigned char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || byte == '-';
}

bool name_is_namespace(struct bytes name)
{
    return every_byte(name, NAMESPACE_MAX_BYTES, namespace_byte);
}

bool name_has_namespace(struct bytes stored)
{
    return stored.length > 0 && stored.data[0] == NAMESPACE_MARK;
}

struct bytes name_without_namespace(struct bytes stored)
{
    const char *mark = name_has_namespace(stored) ? memchr(stored.data + 1, NAMESPACE_MARK, stored.length - 1) : NULL;
    return mark ? (struct bytes){mark + 1, stored.length - (size_t)(mark + 1 - stored.data)} : stored;
}

static bool sql_user_byte(unsigned char byte)
{
    return key_byte(byte) && !strchr("'\"`\\", byte);
}

bool name_is_sql_user(struct bytes name)
{
    return every_byte(name, SQL_USER_MAX_BYTES, sql_user_byte) && !is_dots(name);
}

bool name_is_nonce(struct bytes nonce)
{
    return every_byte(nonce, NONCE_MAX_BYTES, nonce_byte);
}

bool name_is_label(struct bytes name)
{
    return name.length >= 1 && name.length <= NAME_MAX_BYTES &&
           escape_plain_length(name.data, name.length) == name.length;
}

bool name_is_seat_name(struct bytes name)
{
    return name.length <= SEAT_NAME_MAX_BYTES && name_is_label(name);
}

bool name_is_tag(struct bytes name)
{
    return every_byte(name, SEAT_NAME_MAX_BYTES, key_byte);
}
