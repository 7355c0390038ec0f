/* SPDX-License-Identifier: MIT */
/*
 * Generated scripts: plan_batch() and the model agree on every outcome, and other batches that lead to the same order
 * of decision give the same outcomes. A failure prints its seed, the script and the smallest part of it that still
 * fails; SEED=... SEQUENCES=1 runs it again.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan_model.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DEFAULT_SEQUENCES = 15000 }; /* about ten times slower */
#else
enum { DEFAULT_SEQUENCES = 120000 };
#endif
enum { DEFAULT_SEED = 20261121 };

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* The state of one test; too large for the stack. */
struct bench {
    struct run run;     /* as generated */
    struct run resplit; /* the same order of decision in other batches */
    struct script script;
    struct split split;
    struct script smaller;
    bool was_split; /* and its outcomes were compared */
    uint64_t seed;
};

static struct bench *bench_new(void)
{
    struct bench *bench = calloc(1, sizeof *bench);
    cr_assert(bench);
    run_init(&bench->run);
    run_init(&bench->resplit);
    return bench;
}

static void bench_free(struct bench *bench)
{
    run_release(&bench->run);
    run_release(&bench->resplit);
    free(bench);
}

/* Returns true if the script passes; else one of the runs has the problem. */
static bool script_holds(struct bench *bench, const struct script *script)
{
    struct buf *problem = &bench->resplit.rows.problem;
    buf_clear(problem);
    bench->was_split = false;
    if (!script_run(&bench->run, script))
        return false;
    if (!split_run(&bench->run, bench->seed, &bench->split))
        return true;
    if (!script_run(&bench->resplit, &bench->split.script))
        return false;
    bench->was_split = !bench->run.cut_short && !bench->resplit.cut_short;
    return !bench->was_split || split_equal(&bench->run, &bench->resplit, &bench->split, problem);
}

static void drop_step(const struct script *script, unsigned at, struct script *ret_script)
{
    *ret_script = *script;
    ret_script->count--;
    memmove(&ret_script->steps[at], &ret_script->steps[at + 1], (ret_script->count - at) * sizeof ret_script->steps[0]);
    if (at < ret_script->count && script->steps[at].new_batch)
        ret_script->steps[at].new_batch = true;
}

/* Returns the problem of a script; "": it passes. Valid until the next run. */
static const char *problem_of(struct bench *bench, const struct script *script)
{
    return script_run(&bench->run, script) ? "" : buf_text(&bench->run.rows.problem);
}

/* Reduces the script to the shortest failing prefix, and drops every step that is not needed for the failure. */
static void minimise(struct bench *bench)
{
    struct script *script = &bench->script;
    for (unsigned count = 1, all = script->count; count <= all; count++) {
        script->count = count;
        if (!script_run(&bench->run, script))
            break;
    }
    for (unsigned at = script->count; at-- > 0;) {
        drop_step(script, at, &bench->smaller);
        if (!script_run(&bench->run, &bench->smaller)) {
            *script = bench->smaller;
            at = script->count; /* start again */
        }
    }
}

/* Prints the script that failed: the generated one, or the same operations in other batches. */
static void report(struct bench *bench)
{
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_printf(&text, "SEED=%llu SEQUENCES=1: %s\n", (unsigned long long)bench->seed,
               problem_of(bench, &bench->script));
    script_print(&bench->script, &text);
    if (script_run(&bench->run, &bench->script)) {
        buf_printf(&text, "in other batches: %s\n", buf_text(&bench->resplit.rows.problem));
        bench->script = bench->split.script;
        script_print(&bench->script, &text);
    }
    minimise(bench);
    buf_printf(&text, "minimised: %s\n", problem_of(bench, &bench->script));
    script_print(&bench->script, &text);
    fprintf(stderr, "%s", buf_text(&text));
    buf_release(&text);
}

struct totals {
    unsigned long long operations, batches, put_backs, created, reclaims, split;
    unsigned long long waits, asked, served, here, elsewhere, called, told, behind; /* acquires that wait */
    unsigned long long specific, had, neighbours, taken;                            /* acquires of specific slots */
    unsigned long long statuses[PERMIT_STATUS_COUNT], ended[END_REASON_COUNT], kinds[OP_KIND_COUNT];
};

static void count_waiting(const struct run *run, const struct decided *decided, struct totals *totals)
{
    if (decided->step == MODEL_STEPS) {
        totals->here++;
        return;
    }
    totals->waits += decided->verdict.waits;
    totals->asked += decided->rank == 4 && run->script.steps[decided->step].kind == OP_ACQUIRE;
    totals->served += decided->rank == 4 && decided->verdict.created;
    for (unsigned i = 0; i < decided->verdict.shortage_count; i++)
        if (decided->verdict.shortages[i].behind)
            totals->behind++;
}

static void count_specific(const struct run *run, const struct decided *decided, struct totals *totals)
{
    if (decided->step == MODEL_STEPS)
        return;
    const struct step *step = &run->script.steps[decided->step];
    bool specific = step_is_specific(step);
    totals->specific += specific;
    totals->had += specific && decided->verdict.created;
    for (unsigned i = 0; i < step->want_count; i++)
        totals->neighbours += decided->verdict.created && step->wants[i].adjacent && step->wants[i].count > 1;
    for (unsigned i = 0; i < decided->verdict.shortage_count; i++)
        totals->taken += decided->verdict.shortages[i].taken_count;
}

static void count_run(const struct run *run, struct totals *totals)
{
    totals->operations += run->decided_count;
    totals->batches += run->batches;
    totals->reclaims += run->reclaims;
    totals->elsewhere += run->granted_elsewhere;
    totals->called += run->called;
    totals->told += run->told;
    for (unsigned i = 0; i < END_REASON_COUNT; i++)
        totals->ended[i] += run->ended[i];
    for (unsigned i = 0; i < run->decided_count; i++) {
        const struct verdict *verdict = &run->decided[i].verdict;
        totals->created += verdict->created && verdict->has_request;
        totals->statuses[verdict->status]++;
        if (run->decided[i].step < MODEL_STEPS)
            totals->kinds[run->script.steps[run->decided[i].step].kind]++;
        count_waiting(run, &run->decided[i], totals);
        count_specific(run, &run->decided[i], totals);
    }
    for (unsigned i = 0; i < run->script.count; i++)
        totals->put_backs += run->put_backs[i];
}

static void print_totals(const struct totals *totals)
{
    fprintf(stderr,
            "plan_model: %llu operations in %llu batches, %llu put back, %llu granted (%llu in place of others); "
            "answers that go on waiting %llu, asks %llu, served %llu; waiters granted without an ask: here %llu, "
            "unclaimed %llu; called %llu, told %llu, units kept for others %llu; certain slots asked %llu, "
            "had %llu (%llu neighbours), %llu named and taken; %llu sequences split;",
            totals->operations, totals->batches, totals->put_backs, totals->created, totals->reclaims, totals->waits,
            totals->asked, totals->served, totals->here, totals->elsewhere, totals->called, totals->told,
            totals->behind, totals->specific, totals->had, totals->neighbours, totals->taken, totals->split);
    for (unsigned i = 0; i < OP_KIND_COUNT; i++)
        fprintf(stderr, " %s %llu", operation_kind_word((enum operation_kind)i), totals->kinds[i]);
    fprintf(stderr, "; ended");
    for (unsigned i = 1; i < END_REASON_COUNT; i++)
        fprintf(stderr, " %s %llu", end_reason_word((enum end_reason)i), totals->ended[i]);
    fprintf(stderr, ";");
    for (unsigned i = 0; i < PERMIT_STATUS_COUNT; i++)
        if (totals->statuses[i])
            fprintf(stderr, " %s %llu", permit_status_word((enum permit_status)i), totals->statuses[i]);
    fprintf(stderr, "\n");
}

/* Prints how often each rule of the queue decided something, in any round of a batch; returns how many never did. */
static unsigned print_rules(const struct run *run)
{
    unsigned never = 0;
#define PRINT_RULE(name, text)                                                                                         \
    fprintf(stderr, "plan_model: %10llu %s\n", run->model.rules.name, text);                                           \
    never += run->model.rules.name == 0;
    MODEL_RULES(PRINT_RULE)
    fprintf(
        stderr,
        "plan_model: by the rows alone: %llu grants, %llu refusals, %llu calls; %llu times looks granted, %llu waiters "
        "left\n",
        run->judged_grants, run->judged_refusals, run->judged_calls, run->settled, run->judged_waiters);
    return never;
}

Test(plan_model, every_split_into_batches_gives_the_outcomes_of_the_model)
{
    uint64_t seed = number_from("SEED", DEFAULT_SEED);
    uint64_t sequences = number_from("SEQUENCES", DEFAULT_SEQUENCES);
    struct bench *bench = bench_new();
    struct totals totals = {0};
    bool holds = true;
    fprintf(stderr, "plan_model: SEED=%llu SEQUENCES=%llu\n", (unsigned long long)seed, (unsigned long long)sequences);
    for (uint64_t i = 0; i < sequences && holds; i++) {
        bench->seed = seed + i;
        script_generate(bench->seed, &bench->script);
        holds = script_holds(bench, &bench->script);
        count_run(&bench->run, &totals);
        totals.split += bench->was_split;
    }
    if (holds) {
        print_totals(&totals);
        unsigned never = print_rules(&bench->run);
        cr_expect(never == 0 || sequences < 100000, "%u rules are not reached", never);
    } else {
        report(bench);
    }
    cr_expect(holds, "plan_batch and the model part at SEED=%llu", (unsigned long long)bench->seed);
    bench_free(bench);
}
