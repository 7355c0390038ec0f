/* SPDX-License-Identifier: MIT */
/* Reads transcripts, runs them and prints the results. */
#include "plan_model_transcript.h"

#include <criterion/criterion.h>
#include <stdlib.h>

struct transcript transcript;

void transcript_init(void)
{
    run_init(&transcript.run);
    transcript.run.notes = transcript.notes;
    for (unsigned i = 0; i < MODEL_STEPS; i++)
        buf_init(&transcript.notes[i], 1 << 12);
    transcript.script.count = 0;
    transcript.shows_record = false;
}

void transcript_release(void)
{
    run_release(&transcript.run);
    for (unsigned i = 0; i < MODEL_STEPS; i++)
        buf_release(&transcript.notes[i]);
}

/* Returns true if the text sets a circumstance, and is not an operation. */
static bool read_circumstance(const char *text, struct moment *moment)
{
    static const struct {
        const char *name;
        size_t offset;
    } numbers[] = {{"alive=", offsetof(struct moment, owners_alive)},
                   {"server=", offsetof(struct moment, server)},
                   {"was=", offsetof(struct moment, was)},
                   {"dead=", offsetof(struct moment, servers_dead)}};
    static const char grants_from[] = "grants_from=";
    text += strspn(text, " ");
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++) {
        size_t length = strlen(numbers[i].name);
        if (strncmp(text, numbers[i].name, length) != 0)
            continue;
        *(unsigned *)((char *)moment + numbers[i].offset) = (unsigned)strtoul(text + length, NULL, 10);
        moment->owners_known |= moment->owners_alive;
        return true;
    }
    if (strncmp(text, grants_from, sizeof grants_from - 1) == 0)
        moment->grants_from = MODEL_START + strtoll(text + sizeof grants_from - 1, NULL, 10) * US_PER_SECOND;
    else
        return false;
    return true;
}

static void add_line(const struct line *line, struct moment *moment)
{
    const char *at = line->operations;
    if (line->at_s)
        moment->now = moment->clock.tick_at = MODEL_START + line->at_s * US_PER_SECOND;
    if (line->epoch)
        moment->epoch = line->epoch;
    for (bool first = true; *at;) {
        char text[200];
        size_t length = strcspn(at, ";");
        cr_assert(length < sizeof text && transcript.script.count < MODEL_STEPS);
        memcpy(text, at, length);
        text[length] = '\0';
        at += length + (at[length] == ';');
        if (read_circumstance(text, moment))
            continue;
        struct step *step = &transcript.script.steps[transcript.script.count++];
        cr_assert(step_parse(text, step), "not understood: %s", text);
        step->new_batch = first;
        step->moment = *moment;
        first = false;
    }
}

static void print_line(unsigned from, unsigned to, struct buf *out)
{
    buf_clear(out);
    for (unsigned i = from; i < to; i++) {
        buf_append_text(out, i > from ? "; " : "");
        buf_append_text(out, transcript.run.put_backs[i] ? "put_back " : "");
        verdict_print(&transcript.run.verdicts[i], out);
        if (transcript.shows_record)
            events_print(&transcript.run.verdicts[i], out);
    }
    for (unsigned i = from; i < to; i++)
        buf_append_text(out, buf_text(&transcript.notes[i]));
    buf_append_text(out, transcript.run.wrote[to - 1] ? "" : " -");
}

void transcript_expect(const struct line *lines, size_t count)
{
    struct moment moment = {.now = MODEL_START, .clock = {.tick_at = MODEL_START}, .server = 1};
    unsigned ends[MODEL_STEPS];
    struct buf got;
    buf_init(&got, 1 << 16);
    for (size_t i = 0; i < count; i++) {
        add_line(&lines[i], &moment);
        ends[i] = transcript.script.count;
    }
    cr_expect(script_run(&transcript.run, &transcript.script), "%s", buf_text(&transcript.run.rows.problem));
    for (size_t i = 0; i < count; i++) {
        print_line(i ? ends[i - 1] : 0, ends[i], &got);
        cr_expect_str_eq(buf_text(&got), lines[i].expected, "%s\n   expected %s\n   got      %s", lines[i].operations,
                         lines[i].expected, buf_text(&got));
    }
    buf_release(&got);
}
