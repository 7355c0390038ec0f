/* SPDX-License-Identifier: MIT */
#include "http/parser.h"

#include <assert.h>
#include <strings.h>

enum { CHUNK_LINE = 18 /* bytes of a chunk size line that do not count against PARSER_HEAD_MAX */ };

/* Characters allowed in a line: HT, printable ASCII, and obs-text (RFC 9110, 5.5). */
static bool is_text(unsigned char byte)
{
    return byte >= ' ' ? byte != 0x7F : byte == '\t';
}

/* Characters of a token (RFC 9110, 5.6.2). */
static bool is_token_char(unsigned char byte)
{
    static const bool others[0x80] = {
        ['!'] = true, ['#'] = true, ['$'] = true, ['%'] = true, ['&'] = true, ['\''] = true, ['*'] = true, ['+'] = true,
        ['-'] = true, ['.'] = true, ['^'] = true, ['_'] = true, ['`'] = true, ['|'] = true,  ['~'] = true};
    unsigned char letter = byte | 0x20;
    return (letter >= 'a' && letter <= 'z') || (byte >= '0' && byte <= '9') || (byte < 0x80 && others[byte]);
}

static bool is_token(struct bytes text)
{
    for (size_t i = 0; i < text.length; i++)
        if (!is_token_char((unsigned char)text.data[i]))
            return false;
    return text.length > 0;
}

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t';
}

static struct bytes trim(struct bytes text)
{
    while (text.length && is_blank(text.data[0]))
        text = (struct bytes){text.data + 1, text.length - 1};
    while (text.length && is_blank(text.data[text.length - 1]))
        text.length--;
    return text;
}

static bool equal_words(struct bytes text, const char *word)
{
    return text.length == strlen(word) && strncasecmp(text.data, word, text.length) == 0;
}

/* ---- events ---- */

static enum parser_event refuse(struct parser *parser, enum parser_event refusal, const char *why)
{
    parser->state = REFUSED;
    parser->refusal = refusal;
    parser->why = why;
    return refusal;
}

static enum parser_event malformed(struct parser *parser, const char *why)
{
    return refuse(parser, PARSER_MALFORMED, why);
}

/* ---- the request line ---- */

/* "host", "host:7070", "[::1]:7070" (RFC 9110, 7.2). Does not check whether the host name is valid. */
static bool is_authority(struct bytes text)
{
    const char *end = text.data + text.length;
    const char *at = text.data;
    if (text.length && *at == '[')
        while (at < end && *at != ']')
            at++;
    for (; at < end && *at != ':'; at++)
        if (*at <= ' ' || *at >= 0x7F || strchr("/\\?#@,\"<>", *at))
            return false;
    for (at++; at < end; at++)
        if (*at < '0' || *at > '9')
            return false;
    return true;
}

static struct bytes_at offsets_of(const struct parser *parser, struct bytes text)
{
    return (struct bytes_at){(size_t)(text.data - parser->text.data), text.length};
}

/* Splits "/path?query", "http://host/path?query", or "*" of OPTIONS (RFC 9112, 3.2). False: another form. */
static bool take_target(struct parser *parser, struct bytes method, struct bytes target)
{
    size_t scheme = target.length > 7 && strncasecmp(target.data, "http://", 7) == 0    ? 7
                    : target.length > 8 && strncasecmp(target.data, "https://", 8) == 0 ? 8
                                                                                        : 0;
    if (scheme) {
        target = (struct bytes){target.data + scheme, target.length - scheme};
        struct bytes authority = {target.data, strcspn(target.data, "/?")};
        if (authority.length == 0 || !is_authority(authority))
            return false;
        parser->authority = offsets_of(parser, authority);
        target = (struct bytes){target.data + authority.length, target.length - authority.length};
    } else if (target.data[0] != '/' && !(equal_words(target, "*") && bytes_equal(method, BYTES("OPTIONS")))) {
        return false;
    }
    struct bytes path = {target.data, strcspn(target.data, "?")};
    parser->path = offsets_of(parser, path);
    if (path.length < target.length)
        parser->query =
            offsets_of(parser, (struct bytes){path.data + path.length + 1, target.length - path.length - 1});
    return true;
}

/* Returns true for visible ASCII without a fragment, which no request has. */
static bool is_target(struct bytes text)
{
    for (size_t i = 0; i < text.length; i++)
        if (text.data[i] <= ' ' || text.data[i] >= 0x7F || text.data[i] == '#')
            return false;
    return text.length > 0;
}

/* Reads "GET /path HTTP/1.1": three parts, separated by one space each. */
static enum parser_event read_request_line(struct parser *parser, struct bytes line)
{
    if (line.length == 0) {
        if (parser->skipped_line)
            return malformed(parser, "more than one empty line before the request");
        parser->skipped_line = true;
        return PARSER_CONTINUE;
    }
    const char *first = memchr(line.data, ' ', line.length);
    const char *last = memrchr(line.data, ' ', line.length);
    if (!first || first == last)
        return malformed(parser, "the request line is not a method, a target and HTTP/1.1");
    struct bytes method = {line.data, (size_t)(first - line.data)};
    struct bytes target = {first + 1, (size_t)(last - first - 1)};
    struct bytes version = {last + 1, (size_t)(line.data + line.length - last - 1)};
    if (!is_token(method))
        return malformed(parser, "the method is not a token");
    if (!is_target(target))
        return malformed(parser, "invalid request target");
    if (!bytes_equal(version, BYTES("HTTP/1.1")) && !bytes_equal(version, BYTES("HTTP/1.0")))
        return malformed(parser, "the version must be HTTP/1.1 or HTTP/1.0");
    parser->minor_version = version.data[version.length - 1] == '1';
    parser->text.data[first - line.data] = '\0';
    parser->text.data[last - line.data] = '\0';
    parser->target_at = method.length + 1;
    if (!take_target(parser, method, target))
        return malformed(parser, "the request target must be a path");
    parser->line_at = parser->headers_at = parser->headers_end = parser->text.length + 1; /* after the terminating
                                                                                             zero */
    parser->state = READ_HEADER;
    return PARSER_CONTINUE;
}

/* ---- headers ---- */

/* Reads Content-Length: digits only, below 2^63, once. */
static const char *take_length(struct parser *parser, struct bytes value)
{
    uint64_t length = 0;
    if (parser->has_length)
        return "duplicate Content-Length header";
    for (size_t i = 0; i < value.length; i++) {
        uint64_t digit = (uint64_t)(unsigned char)value.data[i] - '0';
        if (digit > 9)
            return "Content-Length is not a number";
        if (length > ((uint64_t)INT64_MAX - digit) / 10)
            return "Content-Length is too large";
        length = length * 10 + digit;
    }
    if (!value.length)
        return "Content-Length is empty";
    parser->has_length = true;
    parser->length = length;
    return NULL;
}

static const char *take_encoding(struct parser *parser, struct bytes value)
{
    if (parser->chunked)
        return "duplicate Transfer-Encoding header";
    if (!equal_words(value, "chunked"))
        return "Transfer-Encoding must be chunked";
    parser->chunked = true;
    return NULL;
}

static const char *take_host(struct parser *parser, struct bytes value)
{
    if (parser->hosts++)
        return "duplicate Host header";
    return is_authority(value) ? NULL : "invalid Host header";
}

static const char *take_connection(struct parser *parser, struct bytes value)
{
    while (value.length) {
        const char *comma = memchr(value.data, ',', value.length);
        struct bytes word = {value.data, comma ? (size_t)(comma - value.data) : value.length};
        size_t used = word.length + (comma != NULL);
        value = (struct bytes){value.data + used, value.length - used};
        word = trim(word);
        parser->closes |= equal_words(word, "close");
        parser->keeps |= equal_words(word, "keep-alive");
    }
    return NULL;
}

static const char *take_expect(struct parser *parser, struct bytes value)
{
    parser->expects_continue |= equal_words(value, "100-continue");
    return NULL;
}

/* Headers that decide how the request and its connection are read. `take` returns NULL, or the reason of a refusal. */
static const struct {
    const char *name;
    const char *(*take)(struct parser *parser, struct bytes value);
} framing[] = {
    {"Host", take_host},
    {"Content-Length", take_length},
    {"Transfer-Encoding", take_encoding},
    {"Connection", take_connection},
    {"Expect", take_expect},
};

static const char *take_framing(struct parser *parser, struct bytes name, struct bytes value)
{
    for (size_t i = 0; i < ARRAY_LENGTH(framing); i++)
        if (equal_words(name, framing[i].name))
            return framing[i].take(parser, value);
    return NULL;
}

/* Checks combinations of headers. Returns NULL, or the reason of a refusal. */
static const char *check_head(const struct parser *parser)
{
    if (parser->hosts == 0 && parser->minor_version > 0)
        return "missing Host header";
    if (parser->chunked && parser->has_length)
        return "Content-Length and Transfer-Encoding exclude each other";
    if (parser->chunked && parser->minor_version == 0)
        return "Transfer-Encoding is not allowed in HTTP/1.0";
    return NULL;
}

static enum parser_event end_head(struct parser *parser)
{
    const char *wrong = check_head(parser);
    if (wrong)
        return malformed(parser, wrong);
    parser->keep_alive = !parser->closes && (parser->minor_version > 0 || parser->keeps);
    parser->expects_continue = parser->expects_continue && parser->minor_version > 0;
    parser->left = parser->length;
    parser->spent = 0;
    parser->state = AFTER_HEAD;
    return PARSER_HEAD;
}

/* Splits "Name: value". A space before the colon and folded lines are refused. Returns NULL, or the reason. */
static const char *split_header(struct bytes line, struct bytes *ret_name, struct bytes *ret_value)
{
    if (is_blank(line.data[0]))
        return "folded header lines are not allowed";
    const char *colon = memchr(line.data, ':', line.length);
    if (!colon)
        return "a header has no colon";
    struct bytes name = {line.data, (size_t)(colon - line.data)};
    if (!is_token(name))
        return "a header name is not a token";
    *ret_name = name;
    *ret_value = trim((struct bytes){colon + 1, line.length - name.length - 1});
    return NULL;
}

/* Reads a header line and stores it as name, zero, value, zero. */
static enum parser_event read_header(struct parser *parser, struct bytes line)
{
    struct bytes name, value;
    if (line.length == 0)
        return end_head(parser);
    const char *wrong = split_header(line, &name, &value);
    if (!wrong)
        wrong = take_framing(parser, name, value);
    if (wrong)
        return malformed(parser, wrong);
    char *behind_name = parser->text.data + parser->line_at + name.length;
    *behind_name = '\0';
    memmove(behind_name + 1, value.data, value.length);
    behind_name[1 + value.length] = '\0';
    parser->line_at = parser->headers_end = parser->line_at + name.length + value.length + 2;
    return PARSER_CONTINUE;
}

/* Checks a trailer line like a header, and drops it. */
static enum parser_event read_trailer(struct parser *parser, struct bytes line)
{
    struct bytes name, value;
    if (line.length == 0) {
        parser->state = READ_NO_MORE;
        return PARSER_CONTINUE;
    }
    const char *wrong = split_header(line, &name, &value);
    return wrong ? malformed(parser, wrong) : PARSER_CONTINUE;
}

/* ---- the body ---- */

static int hex_digit(char byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    char letter = byte | 0x20;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* Reads a chunk size such as "1a". Extensions such as ";name=value" are ignored. */
static enum parser_event read_chunk_size(struct parser *parser, struct bytes line)
{
    uint64_t size = 0;
    size_t digits = 0;
    for (; digits < line.length && hex_digit(line.data[digits]) >= 0; digits++) {
        if (size > (uint64_t)INT64_MAX >> 4)
            return malformed(parser, "chunk size too large");
        size = size << 4 | (uint64_t)hex_digit(line.data[digits]);
    }
    struct bytes rest = trim((struct bytes){line.data + digits, line.length - digits});
    if (digits == 0 || (digits < line.length && (!rest.length || rest.data[0] != ';')))
        return malformed(parser, "chunk size must be a hexadecimal number");
    if (size > parser->body_max - parser->body.length)
        return refuse(parser, PARSER_TOO_LARGE, NULL);
    parser->left = size;
    parser->state = size ? READ_CHUNK : READ_TRAILER;
    return PARSER_CONTINUE;
}

static enum parser_event begin_body(struct parser *parser)
{
    if (parser->length > parser->body_max)
        return refuse(parser, PARSER_TOO_LARGE, NULL);
    parser->body.max = parser->chunked ? parser->body_max : (size_t)parser->length;
    parser->state = parser->chunked ? READ_CHUNK_SIZE : parser->length ? READ_BODY : READ_NO_MORE;
    return PARSER_CONTINUE;
}

/* Reads bytes of the body, or of a chunk. */
static enum parser_event read_body(struct parser *parser, struct bytes *input)
{
    if (input->length == 0)
        return PARSER_NEEDS_INPUT;
    assert(parser->left > 0);
    size_t taken = parser->left < input->length ? (size_t)parser->left : input->length;
    buf_append(&parser->body, input->data, taken);
    if (parser->body.broken)
        return refuse(parser, PARSER_NO_MEMORY, NULL);
    *input = (struct bytes){input->data + taken, input->length - taken};
    parser->left -= taken;
    if (parser->left == 0)
        parser->state = parser->chunked ? READ_CHUNK_END : READ_NO_MORE;
    return PARSER_CONTINUE;
}

/* ---- lines ---- */

static enum parser_event end_line(struct parser *parser)
{
    struct bytes line = {buf_text(&parser->text) + parser->line_at, parser->text.length - parser->line_at};
    enum parser_event event = PARSER_CONTINUE;
    switch (parser->state) {
    case READ_REQUEST_LINE: event = read_request_line(parser, line); break;
    case READ_HEADER: event = read_header(parser, line); break;
    case READ_CHUNK_SIZE: event = read_chunk_size(parser, line); break;
    case READ_CHUNK_END: parser->state = READ_CHUNK_SIZE; break;
    default: event = read_trailer(parser, line); break;
    }
    parser->text.length = parser->line_at; /* the next line starts here */
    parser->line_bytes = 0;
    return event;
}

static size_t beyond(size_t bytes, size_t free)
{
    return bytes > free ? bytes - free : 0;
}

/* Counts bytes of a line against PARSER_HEAD_MAX, except those that every chunk needs. False: too many. */
static bool count_bytes(struct parser *parser, size_t bytes)
{
    size_t free = parser->state == READ_CHUNK_SIZE || parser->state == READ_CHUNK_END ? CHUNK_LINE : 0;
    parser->spent += beyond(parser->line_bytes + bytes, free) - beyond(parser->line_bytes, free);
    parser->line_bytes += bytes;
    return parser->spent <= PARSER_HEAD_MAX;
}

/* Reads a line up to its CR LF. A lone CR or LF is refused, and so is any other control character in a line. */
static enum parser_event read_line(struct parser *parser, struct bytes *input)
{
    size_t length = 0;
    while (!parser->after_cr && length < input->length && is_text((unsigned char)input->data[length]))
        length++;
    bool ends = length < input->length;
    if (length && parser->state == READ_CHUNK_END)
        return malformed(parser, "chunk data longer than the chunk size");
    if (!count_bytes(parser, length + ends))
        return malformed(parser, "request line and headers, or trailers, exceed 16384 bytes");
    buf_append(&parser->text, input->data, length);
    if (parser->text.broken)
        return refuse(parser, PARSER_NO_MEMORY, NULL);
    char end = ends ? input->data[length] : '\0';
    *input = (struct bytes){input->data + length + ends, input->length - length - ends};
    if (!ends)
        return PARSER_NEEDS_INPUT;
    if (end != (parser->after_cr ? '\n' : '\r'))
        return malformed(parser, "a line does not end with CR LF or contains a control character");
    parser->after_cr = !parser->after_cr;
    return parser->after_cr ? PARSER_CONTINUE : end_line(parser);
}

/* ---- all of it ---- */

void parser_begin(struct parser *parser)
{
    struct buf text = parser->text, body = parser->body;
    *parser = (struct parser){.text = text, .body = body};
    buf_clear(&parser->text);
    buf_clear(&parser->body);
    parser->text.max = 2 * PARSER_HEAD_MAX; /* request line, headers and one trailer */
}

void parser_release(struct parser *parser)
{
    buf_release(&parser->text);
    buf_release(&parser->body);
}

enum parser_event parser_feed(struct parser *parser, struct bytes *input)
{
    enum parser_event event = PARSER_CONTINUE;
    while (event == PARSER_CONTINUE) {
        switch (parser->state) {
        case AFTER_HEAD: event = begin_body(parser); break;
        case READ_BODY:
        case READ_CHUNK: event = read_body(parser, input); break;
        case READ_NO_MORE: event = PARSER_DONE; break;
        case REFUSED: event = parser->refusal; break;
        default: event = read_line(parser, input); break;
        }
    }
    return event;
}

struct bytes parser_method(const struct parser *parser)
{
    assert(parser->target_at > 0);
    return (struct bytes){parser->text.data, parser->target_at - 1};
}

struct bytes parser_path(const struct parser *parser)
{
    if (!parser->path.length) /* "http://host" */
        return BYTES("/");
    return (struct bytes){parser->text.data + parser->path.at, parser->path.length};
}

struct bytes parser_query(const struct parser *parser)
{
    return (struct bytes){parser->text.data + parser->query.at, parser->query.length};
}

struct bytes parser_host(const struct parser *parser)
{
    if (!parser->authority.length)
        return bytes_of(parser_header(parser, "Host", NULL));
    return (struct bytes){parser->text.data + parser->authority.at, parser->authority.length};
}

const char *parser_header(const struct parser *parser, const char *name, unsigned *ret_times)
{
    const char *first = NULL;
    unsigned times = 0;
    for (size_t at = parser->headers_at; at < parser->headers_end;) {
        const char *header = parser->text.data + at;
        const char *value = header + strlen(header) + 1;
        at = (size_t)(value - parser->text.data) + strlen(value) + 1;
        if (strcasecmp(header, name) != 0)
            continue;
        first = first ? first : value;
        times++;
    }
    if (ret_times)
        *ret_times = times;
    return first;
}

bool parser_has_body(const struct parser *parser)
{
    return parser->chunked || parser->length > 0;
}
