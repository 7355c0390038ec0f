/* SPDX-License-Identifier: MIT */
#include "api/problem.h"

#include "api/json_out.h"

enum { USUAL_RETRY_MS = 1000 };

int64_t problem_retry_ms(enum permit_status status, int64_t asked)
{
    if (permit_status_retry(status) == PERMIT_RETRY_NEVER || status == PERMIT_INTERNAL)
        return 0;
    return asked > 0 ? asked : USUAL_RETRY_MS;
}

/* Returns the detail of a problem whose cause has none. */
static const char *usual_detail(enum permit_status status)
{
    if (status == PERMIT_SHUTTING_DOWN)
        return "this permitd is stopping: repeat the request with the same key, at another permitd or later";
    return permit_status_title(status);
}

void problem_begin(struct buf *out, enum permit_status status, const char *detail)
{
    buf_append_text(out, "{\"type\":\"/problems/");
    buf_append_text(out, permit_status_word(status));
    buf_append_text(out, "\",\"title\":\"");
    buf_append_text(out, permit_status_title(status));
    buf_append_text(out, "\",\"status\":");
    buf_append_i64(out, permit_status_http(status));
    buf_append_text(out, ",\"detail\":");
    write_text(out, bytes_of(detail ? detail : usual_detail(status)));
}

void problem_retry_after(struct buf *out, int64_t retry_after_ms)
{
    if (retry_after_ms <= 0)
        return;
    buf_append_text(out, ",\"retry_after_ms\":");
    buf_append_i64(out, retry_after_ms);
}

void problem_end(struct buf *out)
{
    buf_append_char(out, '}');
}

void problem_head(struct answer *answer, enum permit_status status, int64_t retry_after_ms)
{
    answer->http_status = permit_status_http(status);
    answer->content_type = PROBLEM_CONTENT_TYPE;
    answer->retry_after_ms = problem_retry_ms(status, retry_after_ms);
    answer->authenticate = status == PERMIT_UNAUTHENTICATED ? "Bearer" : NULL;
    answer->etag[0] = '\0';
    answer->cache_control = NULL;
    answer->constant = (struct bytes){0};
}

void problem_write(struct answer *answer, const char *request_id, enum permit_status status, const char *detail)
{
    buf_clear(&answer->body);
    problem_head(answer, status, 0);
    problem_begin(&answer->body, status, detail);
    if (status == PERMIT_INTERNAL) {
        buf_append_text(&answer->body, ",\"request_id\":");
        write_text(&answer->body, bytes_of(request_id));
    }
    problem_retry_after(&answer->body, answer->retry_after_ms);
    problem_end(&answer->body);
}

bool problem_answer_after(struct exchange *exchange, enum permit_status status, const char *detail,
                          int64_t retry_after_ms)
{
    struct answer *answer = &exchange->answer;
    buf_clear(&answer->body);
    problem_head(answer, status, retry_after_ms);
    problem_begin(&answer->body, status, detail);
    problem_retry_after(&answer->body, answer->retry_after_ms);
    problem_end(&answer->body);
    return true;
}

bool problem_answer(struct exchange *exchange, enum permit_status status, const char *detail)
{
    if (status == PERMIT_BUSY && exchange->arena.share_full) {
        status = PERMIT_TOO_MANY;
        detail = "too much memory for requests and answers of this client";
    }
    problem_write(&exchange->answer, exchange->id, status, detail);
    return true;
}
