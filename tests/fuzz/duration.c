/* SPDX-License-Identifier: MIT */
/* Durations: accepted values are in range and agree with a plain reading, and formatted values parse to the same. */
#include "base/duration.h"

#include "fuzz.h"

/* The grammar of docs/protocol.md, in numbers that cannot overflow. False: not a duration with units. */
static bool reference_units(const char *text, double *ret_ms)
{
    static const char *const words[] = {"d", "h", "m", "s", "ms"};
    static const int64_t ms[] = {86400000, 3600000, 60000, 1000, 1};
    double total = 0;
    size_t next = 0;
    bool point = false;
    while (*text) {
        double number = 0;
        int64_t decimals = 0, of = 1;
        size_t digits = strspn(text, "0123456789");
        if (digits == 0 || point) /* decimals end the text */
            return false;
        for (size_t i = 0; i < digits; i++)
            number = number * 10 + (text[i] - '0');
        text += digits;
        point = *text == '.';
        if (point) {
            digits = strspn(++text, "0123456789");
            if (digits < 1 || digits > 9)
                return false;
            for (size_t i = 0; i < digits; i++, of *= 10)
                decimals = decimals * 10 + (text[i] - '0');
            text += digits;
        }
        size_t letters = strspn(text, "dhms");
        size_t unit = next;
        while (unit < 5 && !(strlen(words[unit]) == letters && memcmp(text, words[unit], letters) == 0))
            unit++;
        if (unit == 5 || decimals * ms[unit] % of != 0)
            return false;
        total += number * (double)ms[unit] + (double)(decimals * ms[unit] / of);
        next = unit + 1;
        text += letters;
    }
    *ret_ms = total;
    return next > 0;
}

/* 30, 0.25: a whole number, and at most three decimals; at most a day. */
static bool reference_seconds(const char *text, double *ret_ms)
{
    size_t whole = strspn(text, "0123456789");
    size_t decimals = text[whole] == '.' ? strspn(text + whole + 1, "0123456789") : 0;
    bool point = text[whole] == '.';
    if (whole == 0 || (point && (decimals < 1 || decimals > 3)) || text[whole + point + decimals])
        return false;
    double ms = 0;
    for (size_t i = 0; i < whole + 3; i++) {
        bool behind = i >= whole;
        size_t at = behind ? i + 1 : i;
        ms = ms * 10 + (behind && i - whole >= decimals ? 0 : text[at] - '0');
    }
    *ret_ms = ms;
    return ms <= 86400e3;
}

static void check(bool taken, int64_t ms, bool expected, double expected_ms)
{
    MUST(taken == (expected && expected_ms <= (double)DURATION_MAX_MS));
    MUST(!taken || (double)ms == expected_ms); /* below 2^53: exact */
}

static void check_printed(int64_t ms)
{
    char printed[DURATION_TEXT_SIZE];
    int64_t again = -1;
    size_t length = duration_format(ms, printed);
    MUST(length == strlen(printed) && length < sizeof printed);
    if (ms >= 0 && ms <= DURATION_MAX_MS)
        MUST(duration_parse(bytes_of(printed), &again) && again == ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct bytes bytes = fuzz_bytes(data, size);
    bool plain = strlen(text) == size; /* a duration has no zero byte */
    double units_ms = 0, seconds_ms = 0;
    int64_t by_units = -7, by_seconds = -7, by_any = -7;
    bool units = duration_parse(bytes, &by_units);
    bool seconds = duration_parse_seconds(bytes, &by_seconds);
    bool any = duration_parse_any(bytes, &by_any);
    check(units, by_units, plain && reference_units(text, &units_ms), units_ms);
    check(seconds, by_seconds, plain && reference_seconds(text, &seconds_ms), seconds_ms);
    MUST(any == (units || seconds) && !(units && seconds));
    MUST((units || by_units == -7) && (seconds || by_seconds == -7)); /* *ret_ms is untouched then */
    MUST(by_any == (units ? by_units : by_seconds));
    if (any)
        check_printed(by_any);
    int64_t number = 0;
    memcpy(&number, data, size < sizeof number ? size : sizeof number);
    check_printed(number);
    free((void *)bytes.data);
    free(text);
    return 0;
}
