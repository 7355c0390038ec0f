/* SPDX-License-Identifier: MIT */
/*
 * Reads one request of HTTP/1.1 or HTTP/1.0 as RFC 9112 writes it: bytes in, events out. It does no I/O, knows no
 * socket and no clock, and takes the bytes in any pieces: the events do not depend on where they are cut.
 *
 *     parser_begin(&parser);
 *     PARSER_HUNGRY ...          more bytes are needed
 *     PARSER_HEAD                the headers are complete: the caller looks at them and sets parser.body_max
 *     PARSER_HUNGRY ...
 *     PARSER_DONE                the body is complete; what stands behind it in the input is the next request
 *
 * What a proxy in front could read in another way is refused, also where the RFC lets a server guess: the rules stand
 * in docs/protocol.md, "Reading HTTP". After a refusal the length of the request is not known: the connection must be
 * closed.
 */
#ifndef HTTP_PARSER_H
#define HTTP_PARSER_H

#include "base/buf.h"

enum {
    PARSER_HEAD_MAX =
        16 * 1024, /* the request line and all header lines; and once more chunk extensions and trailers */
};

enum parser_event {
    PARSER_HUNGRY,
    PARSER_HEAD,
    PARSER_DONE,
    PARSER_MALFORMED, /* `why` says what is wrong */
    PARSER_TOO_LARGE, /* the body has more than body_max bytes */
    PARSER_NO_MEMORY,
    PARSER_GO_ON, /* no event yet; only inside of the parser */
};

enum parser_state {
    READ_REQUEST_LINE,
    READ_HEADER,
    AFTER_HEAD,
    READ_BODY, /* of a known length */
    READ_CHUNK_SIZE,
    READ_CHUNK,
    READ_CHUNK_END,
    READ_TRAILER,
    READ_NO_MORE, /* it is complete */
    REFUSED,
};

struct parser {
    enum parser_state state;
    enum parser_event refusal; /* in REFUSED */
    const char *why;           /* of PARSER_MALFORMED; constant text */

    /* The head, each part zero-terminated: method, target, version, then name and value of each header in turn. */
    struct buf text;
    struct buf body;
    size_t body_max; /* set by the caller at PARSER_HEAD */

    unsigned minor_version; /* 0 or 1 */
    bool keep_alive;        /* the client does not ask to close the connection behind this request */
    bool expects_continue;  /* it waits for "100 Continue" before it sends the body */
    bool chunked;
    bool has_length;
    uint64_t length; /* of the body, by Content-Length; 0 without one */

    /* Offsets in `text`. */
    size_t target_at;
    size_t headers_at;
    size_t headers_end;
    size_t line_at; /* of the line that is being read */
    /* Of the target. */
    struct bytes_at {
        size_t at;
        size_t length;
    } path, query, authority;

    bool after_cr;     /* CR was read, LF must follow */
    bool skipped_line; /* an empty line before the request line was skipped */
    bool closes;       /* Connection: close */
    bool keeps;        /* Connection: keep-alive */
    unsigned hosts;
    size_t line_bytes; /* of the line that is being read, so far */
    size_t spent;      /* bytes of lines, for PARSER_HEAD_MAX */
    uint64_t left;     /* of the body, or of the chunk */
};

/* For a new request; keeps the memory of the last one. A zeroed parser is a released one. */
void parser_begin(struct parser *parser);
/* Gives the memory of the text and the body back; headers and body cannot be read any more. Accepts a zeroed one. */
void parser_release(struct parser *parser);

/*
 * Reads from the beginning of `input` and moves it behind what was read: behind all of it if more is needed, behind the
 * head at PARSER_HEAD, behind the request at PARSER_DONE. The memory of `input` is not needed afterwards.
 */
enum parser_event parser_feed(struct parser *parser, struct bytes *input);

/* From PARSER_HEAD on, until the next parser_feed, parser_begin or parser_release. */
struct bytes parser_method(const struct parser *parser);
/* Of the target, still percent-encoded: "/v1/requests", also behind "http://host"; "*". */
struct bytes parser_path(const struct parser *parser);
/* Behind the '?' of the target; empty if there is none. */
struct bytes parser_query(const struct parser *parser);
/* The first value of a header, NULL if it is absent; *ret_times (may be NULL) says how often it is there. */
const char *parser_header(const struct parser *parser, const char *name, unsigned *ret_times);
/* There is a Content-Length above 0, or the body is chunked. */
bool parser_has_body(const struct parser *parser);
#endif
