/* SPDX-License-Identifier: MIT */
/*
 * http/parser against a slow and obvious reading of the same bytes by RFC 9112. The first byte selects the size limit
 * of bodies; the rest are requests in sequence. They are read three times: as a whole, byte by byte, and in two pieces.
 * Each time the events, the values and the end of each request must equal those of the reference.
 *
 * A byte 0x01, which is invalid in requests, repeats the next byte 512 times, so that short inputs reach the limits.
 */
#include <strings.h>

#include "fuzz.h"
#include "http/parser.h"

enum { HEADERS_MAX = PARSER_HEAD_MAX, CHUNK_FREE = 18, REPEATED = 512, INPUT_MAX = 64 * 1024 };

/* ---- the reference ---- */

struct pair {
    struct bytes name, value;
};

/* The result of reading one request. */
struct reading {
    enum parser_event end; /* HUNGRY, DONE, MALFORMED or TOO_LARGE */
    bool head;             /* the headers were complete and good */
    size_t used;           /* bytes of a complete request */
    struct bytes method, path, query;
    struct bytes host; /* of the target, else of the header Host; length 0: none */
    unsigned minor;
    bool keep_alive, expects, chunked;
    uint64_t length;
    size_t header_count;
    struct pair headers[HEADERS_MAX];
    size_t body_length;
    char body[INPUT_MAX];
};

static struct bytes part(struct bytes text, size_t from, size_t to)
{
    return (struct bytes){text.data + from, to - from};
}

static size_t find(struct bytes text, char wanted)
{
    size_t at = 0;
    while (at < text.length && text.data[at] != wanted)
        at++;
    return at;
}

static bool same_words(struct bytes text, const char *word)
{
    return text.length == strlen(word) && strncasecmp(text.data, word, text.length) == 0;
}

static struct bytes without_blanks(struct bytes text)
{
    size_t from = 0, to = text.length;
    while (from < to && (text.data[from] == ' ' || text.data[from] == '\t'))
        from++;
    while (to > from && (text.data[to - 1] == ' ' || text.data[to - 1] == '\t'))
        to--;
    return part(text, from, to);
}

static bool consists_of(struct bytes text, const char *allowed)
{
    for (size_t i = 0; i < text.length; i++)
        if (text.data[i] == '\0' || !strchr(allowed, text.data[i]))
            return false;
    return text.length > 0;
}

#define DIGITS  "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define TOKEN   "!#$%&'*+-.^_`|~" DIGITS LETTERS
/* Visible ASCII. */
#define VISIBLE "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" DIGITS LETTERS

/* "host", "host:port", "[v6]:port"; may be empty. */
static bool reference_authority(struct bytes text)
{
    size_t from = text.length && text.data[0] == '[' ? find(text, ']') : 0;
    size_t colon = from + find(part(text, from, text.length), ':');
    struct bytes host = part(text, from, colon);
    if (host.length && !consists_of(host, VISIBLE))
        return false;
    for (size_t i = 0; i < host.length; i++)
        if (strchr("/\\?#@,\"<>", host.data[i]))
            return false;
    struct bytes port = part(text, colon < text.length ? colon + 1 : colon, text.length);
    return port.length == 0 || consists_of(port, DIGITS);
}

/* Finds the line at `at`. HUNGRY: its end has not been read. */
static enum parser_event line_at(struct bytes text, size_t at, struct bytes *ret_line)
{
    size_t end = at;
    while (end < text.length) {
        unsigned char byte = (unsigned char)text.data[end];
        if (byte != '\t' && (byte < 0x20 || byte == 0x7F))
            break;
        end++;
    }
    *ret_line = part(text, at, end);
    if (end == text.length)
        return PARSER_NEEDS_INPUT;
    if (text.data[end] != '\r')
        return PARSER_MALFORMED;
    if (end + 1 == text.length)
        return PARSER_NEEDS_INPUT;
    return text.data[end + 1] == '\n' ? PARSER_DONE : PARSER_MALFORMED;
}

/* Returns the length of the line so far, with CR and LF. */
static size_t seen_of(struct bytes text, size_t at, struct bytes line)
{
    size_t rest = text.length - at - line.length;
    return line.length + (rest < 2 ? rest : 2);
}

static bool reference_target(struct reading *reading, struct bytes target)
{
    if (target.length == 0 || !consists_of(target, VISIBLE) || find(target, '#') < target.length)
        return false;
    size_t scheme = 0;
    if (target.length > 7 && same_words(part(target, 0, 7), "http://"))
        scheme = 7;
    else if (target.length > 8 && same_words(part(target, 0, 8), "https://"))
        scheme = 8;
    if (scheme) {
        struct bytes rest = part(target, scheme, target.length);
        size_t slash = find(rest, '/'), mark = find(rest, '?');
        size_t end = slash < mark ? slash : mark;
        reading->host = part(rest, 0, end);
        target = part(rest, end, rest.length);
        if (reading->host.length == 0 || !reference_authority(reading->host))
            return false;
    } else if (target.data[0] != '/') {
        if (!bytes_equal(target, BYTES("*")) || !bytes_equal(reading->method, BYTES("OPTIONS")))
            return false;
    }
    size_t mark = find(target, '?');
    reading->path = mark ? part(target, 0, mark) : BYTES("/");
    reading->query = part(target, mark < target.length ? mark + 1 : mark, target.length);
    return true;
}

static bool reference_request_line(struct reading *reading, struct bytes line)
{
    size_t spaces = 0;
    for (size_t i = 0; i < line.length; i++)
        spaces += line.data[i] == ' ';
    if (spaces != 2)
        return false;
    size_t first = find(line, ' ');
    size_t second = first + 1 + find(part(line, first + 1, line.length), ' ');
    struct bytes version = part(line, second + 1, line.length);
    reading->method = part(line, 0, first);
    if (bytes_equal(version, BYTES("HTTP/1.1")))
        reading->minor = 1;
    else if (!bytes_equal(version, BYTES("HTTP/1.0")))
        return false;
    return consists_of(reading->method, TOKEN) && reference_target(reading, part(line, first + 1, second));
}

static bool reference_header(struct bytes line, struct pair *ret_pair)
{
    size_t colon = find(line, ':');
    ret_pair->name = part(line, 0, colon);
    if (colon == line.length || !consists_of(ret_pair->name, TOKEN))
        return false;
    ret_pair->value = without_blanks(part(line, colon + 1, line.length));
    return true;
}

/* Reads digits of this base; false: none, or 2^63 or more. */
static bool reference_number(struct bytes digits, unsigned base, uint64_t *ret_number)
{
    __extension__ unsigned __int128 number = 0;
    if (!consists_of(digits, base == 16 ? DIGITS "abcdefABCDEF" : DIGITS))
        return false;
    for (size_t i = 0; i < digits.length; i++) {
        char digit[2] = {digits.data[i], '\0'};
        number = number * base + (unsigned)strtoul(digit, NULL, 16);
        if (number > INT64_MAX)
            return false;
    }
    *ret_number = (uint64_t)number;
    return true;
}

static bool has_word(struct bytes list, const char *word)
{
    size_t comma = find(list, ',');
    if (same_words(without_blanks(part(list, 0, comma)), word))
        return true;
    return comma < list.length && has_word(part(list, comma + 1, list.length), word);
}

/* Returns how many of the first `count` headers have this name. */
static unsigned times(const struct reading *reading, size_t count, const char *name)
{
    unsigned found = 0;
    for (size_t i = 0; i < count; i++)
        found += same_words(reading->headers[i].name, name);
    return found;
}

/* Returns true if this header is valid, given the headers before it. */
static bool reference_good(struct reading *reading, size_t at)
{
    struct bytes name = reading->headers[at].name, value = reading->headers[at].value;
    if (same_words(name, "Host"))
        return !times(reading, at, "Host") && reference_authority(value);
    if (same_words(name, "Content-Length"))
        return !times(reading, at, "Content-Length") && reference_number(value, 10, &reading->length);
    if (same_words(name, "Transfer-Encoding"))
        return !times(reading, at, "Transfer-Encoding") && same_words(value, "chunked");
    return true;
}

/* Evaluates all headers together. */
static bool reference_framing(struct reading *reading)
{
    bool closes = false, keeps = false, has_length = times(reading, reading->header_count, "Content-Length");
    for (size_t i = 0; i < reading->header_count; i++) {
        struct bytes name = reading->headers[i].name, value = reading->headers[i].value;
        if (same_words(name, "Host") && !reading->host.length)
            reading->host = value;
        if (same_words(name, "Connection")) {
            closes |= has_word(value, "close");
            keeps |= has_word(value, "keep-alive");
        }
        reading->expects |= same_words(name, "Expect") && same_words(value, "100-continue") && reading->minor == 1;
    }
    reading->chunked = times(reading, reading->header_count, "Transfer-Encoding");
    reading->keep_alive = !closes && (reading->minor == 1 || keeps);
    if (reading->minor == 1 && !times(reading, reading->header_count, "Host"))
        return false;
    return !reading->chunked || (!has_length && reading->minor == 1);
}

/* Reads from the request line to the empty line; *ret_at is the position after it. DONE: valid. */
static enum parser_event reference_head(struct bytes text, struct reading *reading, size_t *ret_at)
{
    bool requested = false, skipped = false;
    for (size_t at = 0;;) {
        struct bytes line;
        enum parser_event end = line_at(text, at, &line);
        if (at + seen_of(text, at, line) > PARSER_HEAD_MAX)
            return PARSER_MALFORMED;
        if (end != PARSER_DONE)
            return end;
        at += line.length + 2;
        if (!requested && line.length == 0 && !skipped) {
            skipped = true;
        } else if (!requested) {
            requested = true;
            if (!reference_request_line(reading, line))
                return PARSER_MALFORMED;
        } else if (line.length == 0) {
            *ret_at = at;
            return reference_framing(reading) ? PARSER_DONE : PARSER_MALFORMED;
        } else {
            size_t header = reading->header_count++;
            if (!reference_header(line, &reading->headers[header]) || !reference_good(reading, header))
                return PARSER_MALFORMED;
        }
    }
}

static void append(struct reading *reading, struct bytes bytes)
{
    MUST(reading->body_length + bytes.length <= sizeof reading->body);
    memcpy(reading->body + reading->body_length, bytes.data, bytes.length);
    reading->body_length += bytes.length;
}

/* Reads trailers, as headers are read. */
static enum parser_event reference_trailers(struct bytes text, size_t at, size_t spent, size_t *ret_at)
{
    for (;;) {
        struct bytes line;
        struct pair pair;
        enum parser_event end = line_at(text, at, &line);
        spent += seen_of(text, at, line);
        if (spent > PARSER_HEAD_MAX)
            return PARSER_MALFORMED;
        if (end != PARSER_DONE)
            return end;
        at += line.length + 2;
        *ret_at = at;
        if (line.length == 0)
            return PARSER_DONE;
        if (!reference_header(line, &pair))
            return PARSER_MALFORMED;
    }
}

/* Reads a chunk size: "1a" or "1a;extensions". */
static bool reference_size(struct bytes line, uint64_t *ret_size)
{
    size_t digits = 0;
    while (digits < line.length && line.data[digits] && strchr(DIGITS "abcdefABCDEF", line.data[digits]))
        digits++;
    struct bytes rest = part(line, digits, line.length);
    struct bytes trimmed = without_blanks(rest);
    if (rest.length && (!trimmed.length || trimmed.data[0] != ';'))
        return false;
    return reference_number(part(line, 0, digits), 16, ret_size);
}

static enum parser_event reference_chunks(struct bytes text, size_t at, size_t body_max, struct reading *reading,
                                          size_t *ret_at)
{
    for (size_t spent = 0;;) {
        struct bytes line;
        uint64_t size;
        enum parser_event end = line_at(text, at, &line);
        size_t seen = seen_of(text, at, line);
        spent += seen > CHUNK_FREE ? seen - CHUNK_FREE : 0;
        if (spent > PARSER_HEAD_MAX)
            return PARSER_MALFORMED;
        if (end != PARSER_DONE)
            return end;
        at += line.length + 2;
        if (!reference_size(line, &size))
            return PARSER_MALFORMED;
        if (size > body_max - reading->body_length)
            return PARSER_TOO_LARGE;
        if (size == 0)
            return reference_trailers(text, at, spent, ret_at);
        size_t there = text.length - at < size ? text.length - at : (size_t)size;
        append(reading, part(text, at, at + there));
        at += there;
        if (at < text.length && text.data[at] != '\r')
            return PARSER_MALFORMED;
        if (at + 1 < text.length && text.data[at + 1] != '\n')
            return PARSER_MALFORMED;
        if (at + 2 > text.length)
            return PARSER_NEEDS_INPUT;
        at += 2;
    }
}

static void reference_read(struct bytes text, size_t body_max, struct reading *reading)
{
    size_t at = 0;
    reading->end = reference_head(text, reading, &at);
    if (reading->end != PARSER_DONE)
        return;
    reading->head = true;
    if (reading->chunked) {
        reading->end = reference_chunks(text, at, body_max, reading, &at);
    } else if (reading->length > body_max) {
        reading->end = PARSER_TOO_LARGE;
    } else if (reading->length > text.length - at) {
        reading->end = PARSER_NEEDS_INPUT;
    } else {
        append(reading, part(text, at, at + (size_t)reading->length));
        at += (size_t)reading->length;
    }
    reading->used = at;
}

/* ---- the comparison ---- */

/* Checks that each header has the value, and the number of occurrences, of the reference. */
static void check_headers(const struct parser *parser, const struct reading *reading)
{
    enum { LOOKED_AT = 40 };
    for (size_t i = 0; i < reading->header_count && i < LOOKED_AT; i++) {
        char *name = fuzz_text((const uint8_t *)reading->headers[i].name.data, reading->headers[i].name.length);
        size_t first = 0;
        while (!same_words(reading->headers[first].name, name))
            first++;
        unsigned found;
        const char *value = parser_header(parser, name, &found);
        MUST(value && bytes_equal(bytes_of(value), reading->headers[first].value));
        MUST(found == times(reading, reading->header_count, name));
        free(name);
    }
    unsigned found;
    MUST(reading->header_count || (!parser_header(parser, "Host", &found) && found == 0));
}

static void check_head(const struct parser *parser, const struct reading *reading)
{
    MUST(bytes_equal(parser_method(parser), reading->method));
    MUST(bytes_equal(parser_path(parser), reading->path));
    MUST(bytes_equal(parser_query(parser), reading->query));
    MUST(bytes_equal(parser_host(parser), reading->host));
    MUST(parser->minor_version == reading->minor && parser->keep_alive == reading->keep_alive);
    MUST(parser->expects_continue == reading->expects && parser->chunked == reading->chunked);
    MUST(parser->chunked || parser->length == reading->length);
    check_headers(parser, reading);
}

/*
 * Feeds `text` in a piece of `first` bytes and then pieces of `step`. Returns the last event; *ret_used is the number
 * of bytes used.
 */
static enum parser_event feed(struct parser *parser, struct bytes text, size_t first, size_t step, size_t body_max,
                              const struct reading *reading, size_t *ret_used)
{
    size_t heads = 0, at = 0, length = 0;
    enum parser_event event = PARSER_NEEDS_INPUT;
    char *piece = NULL; /* exactly as long as its contents, so that an over-read is detected */
    for (size_t wanted = first; at < text.length && event == PARSER_NEEDS_INPUT; wanted = step) {
        size_t there = wanted < text.length - at ? wanted : text.length - at;
        if (there != length) {
            free(piece);
            piece = malloc(there);
            MUST(piece);
        }
        length = there;
        memcpy(piece, text.data + at, length);
        struct bytes input = {piece, length};
        while ((event = parser_feed(parser, &input)) == PARSER_HEAD) {
            heads++;
            parser->body_max = body_max;
            check_head(parser, reading);
        }
        MUST(event != PARSER_NEEDS_INPUT || input.length == 0);
        at += length - input.length;
    }
    free(piece);
    MUST(heads == reading->head);
    *ret_used = at;
    return event;
}

/* Checks that one request, read in these pieces, equals the reference. */
static void compare(struct parser *parser, struct bytes text, size_t first, size_t step, size_t body_max,
                    const struct reading *reading)
{
    size_t used;
    parser_begin(parser);
    enum parser_event event = feed(parser, text, first, step, body_max, reading, &used);
    MUST(event == reading->end);
    if (event == PARSER_DONE) {
        MUST(used == reading->used);
        MUST(bytes_equal((struct bytes){parser->body.data, parser->body.length},
                         (struct bytes){reading->body, reading->body_length}));
        check_head(parser, reading);
    }
    struct bytes nothing = {"", 0};
    MUST(event == PARSER_NEEDS_INPUT || parser_feed(parser, &nothing) == event); /* and stays so */
    MUST((event == PARSER_MALFORMED) == (parser->why != NULL));
}

static size_t expand(const uint8_t *data, size_t size, char text[INPUT_MAX])
{
    size_t length = 0;
    for (size_t i = 0; i < size && length < INPUT_MAX; i++) {
        size_t count = 1;
        if (data[i] == 1 && i + 1 < size) {
            i++;
            count = REPEATED < INPUT_MAX - length ? REPEATED : INPUT_MAX - length;
        }
        memset(text + length, data[i], count);
        length += count;
    }
    return length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[INPUT_MAX];
    static struct reading reading;
    struct parser parser = {0};
    size_t body_max = (size_t)fuzz_choice(&data, &size) * 16;
    struct bytes left = {text, expand(data, size, text)};
    size_t cut = size ? data[0] : 0;
    while (left.length) {
        memset(&reading, 0, offsetof(struct reading, headers));
        reading.body_length = 0;
        reference_read(left, body_max, &reading);
        compare(&parser, left, left.length, 1, body_max, &reading);
        compare(&parser, left, 1, 1, body_max, &reading);
        compare(&parser, left, 1 + cut % left.length, left.length, body_max, &reading);
        if (reading.end != PARSER_DONE)
            break;
        left = part(left, reading.used, left.length);
    }
    parser_release(&parser);
    return 0;
}
