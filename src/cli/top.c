/* SPDX-License-Identifier: MIT */
/*
 * The verb top: a table of semaphores that is refreshed periodically. Semaphores with waiters come first, then the
 * fullest.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/duration.h"
#include "base/escape.h"
#include "cli/columns.h"
#include "cli/list_pages.h"
#include "cli/screen.h"
#include "cli/time_parse.h"

enum {
    ROWS_MAX = 10000,       /* semaphores that are fetched */
    HOLDERS_MAX = 1000,     /* longest holders that are fetched without a terminal */
    LINES_ABOVE = 3,        /* summary, failure, heading */
    NAME_MIN_WIDTH = 8,     /* columns */
    LIVE_TIMEOUT_MS = 5000, /* after it, a line says that the server does not answer */
    TABLE_MAX_BYTES = 16 * 1024 * 1024,
};

struct row {
    char *name;
    char *paused; /* reason; NULL: not paused */
    int64_t capacity, in_use, waiting, oldest_wait_ms;
    int64_t version;   /* rises with each grant and end of a permit of it */
    utc_us held_since; /* start of the longest hold, by the database's clock; NEVER: unknown, or no holder */
};

struct semaphore_table {
    struct row *rows;   /* ordered by name */
    struct row **order; /* ordered by need of attention */
    size_t count;
};

struct top {
    struct cli *cli;
    struct semaphore_table table;
    char path[CLI_PATH_MAX]; /* path of the list */
    utc_us clock_offset;     /* database's clock minus the local clock */
    char failure[256];       /* why the last refresh failed; "": it did not */
    size_t shown;            /* rows that fit on the screen */
};

/* ---- Rows ---- */

static void table_free(struct semaphore_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        free(table->rows[i].name);
        free(table->rows[i].paused);
    }
    free(table->rows);
    free(table->order);
    *table = (struct semaphore_table){.count = 0};
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(((const struct row *)left)->name, ((const struct row *)right)->name);
}

static double fullness(const struct row *row)
{
    return row->in_use == 0 ? 0 : row->capacity == 0 ? 1 : (double)row->in_use / (double)row->capacity;
}

static int compare_attention(const void *left, const void *right)
{
    const struct row *a = *(struct row *const *)left, *b = *(struct row *const *)right;
    if (a->waiting != b->waiting)
        return a->waiting > b->waiting ? -1 : 1;
    if (fullness(a) != fullness(b))
        return fullness(a) > fullness(b) ? -1 : 1;
    return strcmp(a->name, b->name);
}

/*
 * Reads the list. Keeps the start of the longest hold of a semaphore that has not changed since. Returns false if out
 * of memory.
 */
static bool table_read(struct semaphore_table *table, struct json_object *list, const struct semaphore_table *before)
{
    size_t count = json_length_of(list, "semaphores");
    table->rows = calloc(count + 1, sizeof(*table->rows));
    table->order = calloc(count + 1, sizeof(struct row *));
    for (size_t i = 0; table->rows && table->order && i < count; i++) {
        struct json_object *object = json_item_of(list, "semaphores", i);
        const char *name = json_text_of(object, "name");
        const char *paused = json_text_of(object, "paused_reason");
        struct row *row = &table->rows[table->count++];
        *row = (struct row){
            .name = strdup(name ? name : "?"),
            .paused = paused ? strdup(paused) : NULL,
            .capacity = json_number_of(object, "capacity"),
            .in_use = json_number_of(object, "in_use"),
            .waiting = json_number_of(object, "waiting"),
            .oldest_wait_ms = json_number_of(object, "oldest_wait_ms"),
            .version = json_number_of(object, "version"),
            .held_since = NEVER,
        };
        if (!row->name || (paused && !row->paused))
            return false;
        const struct row *known =
            before->count ? bsearch(row, before->rows, before->count, sizeof(*row), compare_names) : NULL;
        if (known && known->version == row->version)
            row->held_since = known->held_since;
        table->order[i] = row;
    }
    if (table->order)
        qsort(table->order, table->count, sizeof(struct row *), compare_attention);
    return table->count == count && table->order;
}

/* ---- Looking ---- */

static bool time_of(struct json_object *object, const char *member, utc_us *ret_time)
{
    const char *text = json_text_of(object, member);
    return text && clock_parse_rfc3339(bytes_of(text), ret_time);
}

/* Fetches the longest holder, which is the first in the list of holders. */
static enum permit_status fetch_oldest_holder(struct top *top, struct row *row)
{
    char path[CLI_PATH_MAX];
    utc_us expires_at;
    int64_t left_ms;
    if (!path_write("/v1/semaphores/", row->name, "/holders?limit=1", path))
        return PERMIT_OK;
    enum permit_status status = permit_call(top->cli->client, "GET", path, NULL);
    if (status)
        return status;
    struct json_object *answer = json_read(permit_client_answer(top->cli->client));
    struct json_object *holder = json_item_of(answer, "holders", 0);
    if (!time_of(holder, "acquired_at", &row->held_since))
        row->held_since = NEVER;
    left_ms = min_i64(json_number_of(holder, "expires_in_ms"), DURATION_MAX_MS);
    if (time_of(holder, "expires_at", &expires_at) && left_ms > 0)
        top->clock_offset = expires_at - left_ms * US_PER_MS - clock_wall();
    json_free(answer);
    return PERMIT_OK;
}

static enum permit_status fetch_table(struct top *top)
{
    struct json_writer *pages = NULL;
    struct semaphore_table table = {.count = 0};
    enum permit_status status = list_fetch(top->cli, top->path, "semaphores", &pages);
    if (!status && !table_read(&table, json_written(pages), &top->table))
        status = PERMIT_NO_MEMORY;
    json_writer_free(pages);
    if (status) {
        table_free(&table);
        return status;
    }
    table_free(&top->table);
    top->table = table;
    for (size_t i = 0; i < table.count && i < top->shown && !status; i++)
        if (table.order[i]->in_use > 0 && table.order[i]->held_since == NEVER)
            status = fetch_oldest_holder(top, table.order[i]);
    /* The semaphore was retired just now. */
    return status == PERMIT_UNKNOWN_SEMAPHORE ? PERMIT_OK : status;
}

static int64_t held_ms(const struct top *top, const struct row *row)
{
    return max_i64(0, (clock_wall() + top->clock_offset - row->held_since) / US_PER_MS);
}

/* ---- The table ---- */

enum column { NAME, CAPACITY, USED, FREE, WAITING, OLDEST_WAIT, OLDEST_HOLD, NOTE, COLUMN_COUNT };
enum { CELL_SIZE = 320 };
/* Those of a terminal that is too narrow for the others come second. */
static const char *const headings[][COLUMN_COUNT] = {
    {"NAME", "CAPACITY", "USED", "FREE", "WAITING", "OLDEST WAIT", "OLDEST HOLD", ""},
    {"NAME", "CAPACITY", "USED", "FREE", "WAITING", "WAIT", "HOLD", ""}};

struct cells {
    char text[COLUMN_COUNT][CELL_SIZE];
};

struct layout {
    bool narrow;
    int64_t widths[COLUMN_COUNT];
};

/* Writes a cell. Replaces bytes that would control the terminal, before the text is measured. */
static void set_cell(struct cells *cells, enum column column, const char *format, ...) PRINTF_LIKE(3, 4);
static void set_cell(struct cells *cells, enum column column, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(cells->text[column], CELL_SIZE, format, arguments);
    va_end(arguments);
    escape_control_chars(cells->text[column], strlen(cells->text[column]));
}

static void cells_of(const struct top *top, const struct row *row, struct cells *cells)
{
    *cells = (struct cells){.text = {""}};
    set_cell(cells, NAME, "%s", row->name);
    set_cell(cells, CAPACITY, "%" PRId64, row->capacity);
    set_cell(cells, USED, "%" PRId64, row->in_use);
    set_cell(cells, FREE, "%" PRId64, max_i64(0, row->capacity - row->in_use));
    set_cell(cells, WAITING, "%" PRId64, row->waiting);
    set_cell(cells, OLDEST_WAIT, "-");
    if (row->waiting > 0)
        span_format(row->oldest_wait_ms, cells->text[OLDEST_WAIT]);
    set_cell(cells, OLDEST_HOLD, "-");
    if (row->in_use > 0 && row->held_since != NEVER)
        span_format(held_ms(top, row), cells->text[OLDEST_HOLD]);
    if (row->paused)
        set_cell(cells, NOTE, "paused: %s", row->paused);
}

static void headings_of(struct cells *cells, bool narrow)
{
    for (int column = 0; column < COLUMN_COUNT; column++)
        set_cell(cells, (enum column)column, "%s", headings[narrow][column]);
}

/* Computes the width that each column needs. Returns that of a line. */
static int64_t measure(const struct top *top, size_t rows, struct layout *layout)
{
    struct cells cells;
    int64_t whole = 0;
    headings_of(&cells, layout->narrow);
    memset(layout->widths, 0, sizeof(layout->widths));
    for (size_t i = 0; i <= rows; i++) {
        for (int column = 0; column < COLUMN_COUNT; column++)
            layout->widths[column] = max_i64(layout->widths[column], (int64_t)columns_of(cells.text[column]));
        if (i < rows)
            cells_of(top, top->table.order[i], &cells);
    }
    for (int column = 0; column < COLUMN_COUNT; column++)
        whole += layout->widths[column] ? layout->widths[column] + (column ? 2 : 0) : 0;
    return whole;
}

/*
 * Fits the table to a terminal: with shorter headings if the others are too wide, and then by cutting the names and the
 * notes. The notes get half of what is left for both, or more if the names need less.
 */
static void fit(const struct top *top, size_t rows, int64_t columns, struct layout *layout)
{
    int64_t *name = &layout->widths[NAME], *note = &layout->widths[NOTE];
    layout->narrow = false;
    if (measure(top, rows, layout) <= columns)
        return;
    layout->narrow = true;
    int64_t whole = measure(top, rows, layout);
    int64_t left = max_i64(NAME_MIN_WIDTH, columns - (whole - *name - *note));
    *note = min_i64(*note, left - min_i64(*name, left / 2));
    *name = min_i64(*name, max_i64(NAME_MIN_WIDTH, left - *note));
}

/* Ends the line that began at `start`: replaces control characters, and cuts it. */
static void end_line(struct buf *out, size_t start, int64_t columns)
{
    escape_control_chars(out->data + start, out->length - start);
    out->length = start + columns_fit(buf_text(out) + start, (size_t)columns);
    buf_append_char(out, '\n');
}

/* Writes the text; if it is wider than that, cuts it, with ~ at its end. Returns the columns that it does not use. */
static int64_t write_cut(const char *text, int64_t width, struct buf *out)
{
    int64_t unused = width - (int64_t)columns_of(text);
    if (unused >= 0) {
        buf_append_text(out, text);
        return unused;
    }
    buf_append(out, text, columns_fit(text, (size_t)max_i64(0, width - 1)));
    buf_append_char(out, '~');
    return 0;
}

static void write_row(const struct cells *cells, const struct layout *layout, int64_t columns, struct buf *out)
{
    size_t start = out->length;
    int64_t unused = write_cut(cells->text[NAME], layout->widths[NAME], out);
    buf_printf(out, "%*s", (int)unused, "");
    for (int column = CAPACITY; column < NOTE; column++)
        buf_printf(out, "  %*s", (int)layout->widths[column], cells->text[column]);
    if (*cells->text[NOTE]) {
        buf_append_text(out, "  ");
        (void)write_cut(cells->text[NOTE], layout->widths[NOTE], out);
    }
    end_line(out, start, columns);
}

static void write_table(const struct top *top, size_t rows, int64_t columns, struct buf *out)
{
    struct cells cells;
    struct layout layout;
    fit(top, rows, columns, &layout);
    headings_of(&cells, layout.narrow);
    write_row(&cells, &layout, columns, out);
    for (size_t i = 0; i < rows; i++) {
        cells_of(top, top->table.order[i], &cells);
        write_row(&cells, &layout, columns, out);
    }
}

/* ---- Once ---- */

static int print_once(struct top *top)
{
    struct buf text;
    top->shown = HOLDERS_MAX;
    enum permit_status status = fetch_table(top);
    if (status)
        return cli_fail(top->cli, status);
    if (top->cli->options.flags[FLAG_JSON]) {
        struct json_writer *writer = json_writer_new();
        json_add_items(writer, "semaphores");
        for (size_t i = 0; i < top->table.count; i++) {
            const struct row *row = top->table.order[i];
            struct json_writer *item = json_writer_new();
            json_add_text(item, "name", row->name);
            json_add_number(item, "capacity", row->capacity);
            json_add_number(item, "in_use", row->in_use);
            json_add_number(item, "available", max_i64(0, row->capacity - row->in_use));
            json_add_number(item, "waiting", row->waiting);
            json_add_number(item, "oldest_wait_ms", row->oldest_wait_ms);
            json_add_number(item, "oldest_hold_ms", row->held_since == NEVER ? CLI_UNSET : held_ms(top, row));
            json_add_text(item, "paused_reason", row->paused);
            json_add_item(writer, "semaphores", item);
            json_writer_free(item);
        }
        json_print_text(json_text(writer) ? json_text(writer) : "");
        json_writer_free(writer);
        return CLI_OK;
    }
    buf_init(&text, TABLE_MAX_BYTES);
    write_table(top, top->table.count, INT32_MAX, &text);
    (void)fputs(buf_text(&text), stdout);
    buf_release(&text);
    return CLI_OK;
}

/* ---- Live ---- */

/* Writes the summary, "09:14:31  12 semaphores, 3 waited for, 2 full  http://...", and the failure line. */
static void write_summary(const struct top *top, int columns, struct buf *out)
{
    size_t start = out->length, waited_for = 0, full = 0;
    char clock[16] = "";
    time_t now = time(NULL);
    struct tm parts;
    (void)strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&now, &parts));
    for (size_t i = 0; i < top->table.count; i++) {
        waited_for += top->table.rows[i].waiting > 0;
        full += top->table.rows[i].in_use > 0 && top->table.rows[i].in_use >= top->table.rows[i].capacity;
    }
    buf_printf(out, "%s  %zu semaphore%s%s, %zu waited for, %zu full", clock, top->table.count,
               top->table.count == 1 ? "" : "s", top->table.count == ROWS_MAX ? " (the first by name)" : "", waited_for,
               full);
    if (top->table.count > top->shown)
        buf_printf(out, ", the first %zu shown", top->shown);
    buf_printf(out, "  %s", top->cli->client ? permit_client_url(top->cli->client) : "");
    end_line(out, start, columns);
    start = out->length;
    buf_append_text(out, top->failure);
    end_line(out, start, columns);
}

/* Draws a frame. Returns false if the terminal is gone. */
static bool draw(struct top *top, struct screen *screen)
{
    int rows, columns;
    struct buf text;
    screen_size(&rows, &columns);
    top->shown = rows > LINES_ABOVE ? (size_t)(rows - LINES_ABOVE) : 0;
    buf_init(&text, TABLE_MAX_BYTES);
    write_summary(top, columns, &text);
    if (rows >= LINES_ABOVE)
        write_table(top, (size_t)min_i64((int64_t)top->shown, (int64_t)top->table.count), columns, &text);
    bool shown = screen_show(screen, buf_text(&text), LINES_ABOVE - 1);
    buf_release(&text);
    return shown;
}

static int refresh_until_end(struct top *top, struct screen *screen)
{
    int code = CLI_OK;
    for (;;) {
        mono_us next = clock_mono() + top->cli->options.interval_ms * US_PER_MS;
        enum screen_event event;
        enum permit_status status = fetch_table(top);
        if (status != PERMIT_OUTCOME_UNKNOWN) /* cancelled for a key or a signal: no failure */
            (void)snprintf(top->failure, sizeof(top->failure), "%s%s%s%s", status ? permit_status_word(status) : "",
                           status ? ": " : "", status ? permit_client_message(top->cli->client) : "",
                           status ? " (retrying)" : "");
        do {
            if (!draw(top, screen))
                return CLI_NO_START;
            event = screen_wait(screen, next, &code);
        } while (event == SCREEN_REDRAW);
        if (event == SCREEN_END)
            return code;
    }
}

/*
 * Shows the live table with its own client: a key or a signal cancels its calls, and they are not retried, because the
 * next refresh follows anyway.
 */
static int show_live(struct top *top)
{
    struct cli *cli = top->cli;
    struct screen screen;
    if (!screen_open(&screen))
        return cli_error(CLI_NO_START, "no file descriptors left: raise the limit (ulimit -n)");
    permit_client_free(cli->client);
    cli->client = NULL;
    cli->found.client.cancel_fd = screen.events;
    cli->found.client.timeout_ms = LIVE_TIMEOUT_MS;
    cli->found.client.retry_ms = -1;
    int code = CLI_NO_START;
    if (permit_client_new(&cli->found.client, &cli->client) == PERMIT_OK)
        code = draw(top, &screen) ? refresh_until_end(top, &screen) : CLI_NO_START;
    screen_close(&screen);
    return code;
}

int verb_top(struct cli *cli)
{
    struct top top = {.cli = cli, .failure = "loading ..."};
    if (!list_path("/v1/semaphores", &cli->options, top.path))
        return CLI_USAGE;
    cli->options.limit = ROWS_MAX;
    bool live = !cli->options.flags[FLAG_ONCE] && !cli->options.flags[FLAG_JSON] && screen_is_usable();
    int code = live ? show_live(&top) : print_once(&top);
    table_free(&top.table);
    return code;
}
