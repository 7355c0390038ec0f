/* SPDX-License-Identifier: MIT */
#include "core/name.h"

#include "base/utf8.h"

static bool every_byte(struct bytes name, bool (*allowed)(unsigned char))
{
    if (name.length < 1 || name.length > NAME_MAX_BYTES)
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

static bool is_dots(struct bytes name)
{
    return bytes_equal(name, BYTES(".")) || bytes_equal(name, BYTES(".."));
}

bool name_is_semaphore(struct bytes name)
{
    return every_byte(name, semaphore_byte) && !is_dots(name);
}

bool name_is_key(struct bytes name)
{
    return every_byte(name, key_byte) && !is_dots(name);
}

bool name_is_label(struct bytes name)
{
    if (name.length < 1 || name.length > NAME_MAX_BYTES || !utf8_valid(name))
        return false;
    for (size_t i = 0; i < name.length; i++) {
        unsigned char byte = (unsigned char)name.data[i];
        bool upper_control = byte == 0xC2 && (unsigned char)name.data[i + 1] < 0xA0; /* it is valid, so one follows */
        if (byte < ' ' || byte == 0x7F || upper_control)
            return false;
    }
    return true;
}
