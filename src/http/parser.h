/* SPDX-License-Identifier: MIT */
/*
 * Parser for one HTTP/1.1 or HTTP/1.0 request (RFC 9112): bytes in, events out. The parser does no I/O and uses neither
 * a socket nor a clock. It accepts the bytes in pieces of any size; the events do not depend on where the input is cut.
 *
 *    parser_begin(&parser);
 *    PARSER_NEEDS_INPUT ...          more input is needed
 *    PARSER_HEAD                the headers are complete: the caller checks them and sets parser.body_max
 *    PARSER_NEEDS_INPUT ...
 *    PARSER_DONE                the body is complete; the rest of the input is the next request
 *
 * Input that a proxy in front could interpret differently is refused, even where the RFC lets a server guess;
 * docs/protocol.md has the rules. After a refusal the length of the request is unknown, so the connection must be
 * closed.
 */
#ifndef HTTP_PARSER_H
#define HTTP_PARSER_H

#include "base/buf.h"

/* Bytes of the request line and headers together, and again of chunk extensions and trailers together. */
enum { PARSER_HEAD_MAX = 16 * 1024 };

enum parser_event {
    PARSER_NEEDS_INPUT,
    PARSER_HEAD,
    PARSER_DONE,
    PARSER_MALFORMED, /* `why` has the reason */
    PARSER_TOO_LARGE, /* the body has more than body_max bytes */
    PARSER_NO_MEMORY,
    PARSER_CONTINUE, /* no event yet; internal */
};

enum parser_state {
    READ_REQUEST_LINE,
    READ_HEADER,
    AFTER_HEAD,
    READ_BODY, /* with a Content-Length */
    READ_CHUNK_SIZE,
    READ_CHUNK,
    READ_CHUNK_END,
    READ_TRAILER,
    READ_NO_MORE, /* the request is complete */
    REFUSED,
};

struct parser {
    enum parser_state state;
    enum parser_event refusal; /* event of REFUSED */
    const char *why;           /* reason of PARSER_MALFORMED; constant text */

    /*
     * Request line and headers as zero-terminated strings: method, target, version, then name and value of each header.
     */
    struct buf text;
    struct buf body;
    size_t body_max; /* set by the caller at PARSER_HEAD */

    unsigned minor_version; /* 0 or 1 */
    bool keep_alive;        /* the client keeps the connection open after this request */
    bool expects_continue;  /* the client waits for "100 Continue" before it sends the body */
    bool chunked;
    bool has_length;
    uint64_t length; /* Content-Length; 0 if absent */

    /* Offsets in `text`. */
    size_t target_at;
    size_t headers_at;
    size_t headers_end;
    size_t line_at; /* start of the current line */
    /* Parts of the target. */
    struct bytes_at {
        size_t at;
        size_t length;
    } path, query, authority;

    bool after_cr;     /* CR was read; LF must follow */
    bool skipped_line; /* an empty line before the request line was skipped */
    bool closes;       /* Connection: close */
    bool keeps;        /* Connection: keep-alive */
    unsigned hosts;
    size_t line_bytes; /* length of the current line so far */
    size_t spent;      /* line bytes counted against PARSER_HEAD_MAX */
    uint64_t left;     /* unread bytes of the body or of the chunk */
};

/* Starts a new request. Keeps the memory of the last one. A zeroed parser is valid. */
void parser_begin(struct parser *parser);
/* Frees the memory of headers and body, which cannot be read any more. Accepts a zeroed parser. */
void parser_release(struct parser *parser);

/*
 * Reads from the start of `input` and moves `input` past the bytes read: all of it at PARSER_NEEDS_INPUT, the headers
 * at PARSER_HEAD, the request at PARSER_DONE. The parser keeps no reference to `input`.
 */
enum parser_event parser_feed(struct parser *parser, struct bytes *input);

/* The following are valid from PARSER_HEAD until the next parser_feed, parser_begin or parser_release. */
struct bytes parser_method(const struct parser *parser);
/* The path of the target, percent-encoded: "/v1/requests", also of "http://host/v1/requests"; or "*". */
struct bytes parser_path(const struct parser *parser);
/* The part of the target after the '?'; empty if there is none. */
struct bytes parser_query(const struct parser *parser);
/* "host:7070" of the target "http://host:7070/v1/requests", else the value of Host; data NULL: neither is there. */
struct bytes parser_host(const struct parser *parser);
/* The first value of a header; NULL: absent. *ret_times (may be NULL) is set to the number of such headers. */
const char *parser_header(const struct parser *parser, const char *name, unsigned *ret_times);
/* Returns true if Content-Length is above 0 or the body is chunked. */
bool parser_has_body(const struct parser *parser);
#endif
