#include "history.h"

#include "base/buf.h"
#include "base/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE_BYTES_MAX = 64 * 1024, FILE_BYTES_MAX = 1 << 30 };

const char *const history_what_names[HISTORY_WHAT_COUNT] = {
    [HISTORY_START] = "START",     [HISTORY_CANCEL] = "CANCEL", [HISTORY_GET] = "GET",
    [HISTORY_JOURNAL] = "JOURNAL", [HISTORY_TASK] = "TASK",     [HISTORY_REPORT] = "REPORT",
    [HISTORY_SAGA] = "SAGA",       [HISTORY_ENTRY] = "ENTRY",
};

const char *const history_end_names[HISTORY_END_COUNT] = {
    [HISTORY_OPEN] = "invoke",
    [HISTORY_OK] = "ok",
    [HISTORY_FAIL] = "fail",
    [HISTORY_UNKNOWN] = "unknown",
};

/* Every field that a line can have; `text`: of HISTORY_TEXT_SIZE bytes, else a number. */
static const struct field {
    const char *name;
    size_t offset;
    bool text;
} fields[] = {
#define NUMBER(name)                                                                               \
    {                                                                                              \
#name, offsetof(struct history_call, name), false                                          \
    }
#define TEXT(name)                                                                                 \
    {                                                                                              \
#name, offsetof(struct history_call, name), true                                           \
    }
    NUMBER(client), NUMBER(node), NUMBER(seq), NUMBER(run),  NUMBER(existed), NUMBER(about),
    NUMBER(rank),   TEXT(key),    TEXT(uid),   TEXT(input),  TEXT(step),      TEXT(outcome),
    TEXT(state),    TEXT(phase),  TEXT(kind),  TEXT(answer),
#undef NUMBER
#undef TEXT
};

void history_call_init(struct history_call *call, enum history_what what)
{
    *call = (struct history_call){ .what = what, .ended_us = INT64_MAX };
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (!fields[i].text)
            *(int64_t *)((char *)call + fields[i].offset) = -1;
}

/* --- writing ---------------------------------------------------------------------------------- */

struct history_log {
    FILE *file;
    pthread_mutex_t lock;
    _Atomic int64_t next_id;
};

int history_log_open(const char *path, struct history_log **ret, struct err *err)
{
    struct history_log *log = mem_calloc(1, sizeof *log);
    if (!log)
        return err_set(err, ERR_NOMEM, "history");
    log->file = fopen(path, "we");
    if (!log->file) {
        mem_free(log);
        return err_set(err, ERR_UNAVAILABLE, "cannot write %s", path);
    }
    (void)pthread_mutex_init(&log->lock, NULL); /* cannot fail with default attributes */
    atomic_store(&log->next_id, 1);
    *ret = log;
    return 0;
}

struct history_log *history_log_close(struct history_log *log)
{
    if (!log)
        return NULL;
    if (fclose(log->file) != 0)
        abort();                             /* a history with holes must not be judged */
    (void)pthread_mutex_destroy(&log->lock); /* nobody holds it */
    mem_free(log);
    return NULL;
}

static int64_t now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void write_fields(struct buf *line, const struct history_call *call)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const char *at = (const char *)call + fields[i].offset;
        if (fields[i].text && *at)
            buf_printf(line, " %s=%s", fields[i].name, at);
        else if (!fields[i].text && *(const int64_t *)(const void *)at != -1)
            buf_printf(line, " %s=%" PRId64, fields[i].name, *(const int64_t *)(const void *)at);
    }
    if (call->entries)
        buf_printf(line, " entries=%s", call->entries);
    buf_text(line, "\n");
}

static void write_line(struct history_log *log, struct buf *line)
{
    pthread_mutex_lock(&log->lock);
    bool written = !line->failed && fwrite(line->data, 1, line->size, log->file) == line->size;
    pthread_mutex_unlock(&log->lock);
    if (!written)
        abort(); /* as above */
}

int64_t history_invoke(struct history_log *log, const struct history_call *call)
{
    CLEANUP(buf_done) struct buf line = { .limit = LINE_BYTES_MAX };
    int64_t id = atomic_fetch_add(&log->next_id, 1);
    buf_printf(&line, "%" PRId64 " %" PRId64 " invoke %s", now_us(), id,
               history_what_names[call->what]);
    write_fields(&line, call);
    write_line(log, &line);
    return id;
}

void history_end(struct history_log *log, int64_t id, const struct history_call *call)
{
    CLEANUP(buf_done) struct buf line = { .limit = LINE_BYTES_MAX };
    buf_printf(&line, "%" PRId64 " %" PRId64 " %s", now_us(), id, history_end_names[call->end]);
    write_fields(&line, call);
    write_line(log, &line);
}

void history_note(struct history_log *log, const struct history_call *call)
{
    struct history_call answer;
    history_call_init(&answer, call->what);
    answer.end = HISTORY_OK;
    history_end(log, history_invoke(log, call), &answer);
}

/* --- reading ---------------------------------------------------------------------------------- */

static int find_name(const char *const *names, int count, const char *name)
{
    for (int i = 0; name && i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

/* "name=value" */
static bool read_field(struct history_call *call, char *word)
{
    char *value = strchr(word, '='), *end;
    if (!value)
        return false;
    *value++ = '\0';
    if (strcmp(word, "entries") == 0) {
        mem_free(call->entries);
        call->entries = mem_strdup(value);
        return call->entries != NULL;
    }
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        if (strcmp(fields[i].name, word) != 0)
            continue;
        char *at = (char *)call + fields[i].offset;
        if (fields[i].text) {
            (void)snprintf(at, HISTORY_TEXT_SIZE, "%s", value); /* checked below */
            return strlen(value) < HISTORY_TEXT_SIZE;
        }
        *(int64_t *)(void *)at = strtoll(value, &end, 10);
        return *value && !*end;
    }
    return false;
}

/* The call with this id, which is the next one or one of those that are there; NULL: neither. */
static struct history_call *call_of(struct history *history, size_t *capacity, int64_t id,
                                    enum history_end end, enum history_what what)
{
    if (id < 1 || id > (int64_t)1 << 30)
        return NULL;
    /* Threads write in another order than they took their ids: what is between comes later. */
    while (history->count < (size_t)id) {
        if (mem_grow((void **)&history->calls, capacity, history->count, sizeof *history->calls))
            return NULL;
        history_call_init(&history->calls[history->count], HISTORY_START);
        history->calls[history->count].invoked_us = -1;
        history->calls[history->count++].id = 0;
    }
    struct history_call *call = &history->calls[id - 1];
    bool begins = end == HISTORY_OPEN;
    if (begins != (call->id == 0) || (!begins && call->end != HISTORY_OPEN))
        return NULL;
    if (begins) {
        history_call_init(call, what);
        call->id = id;
    }
    return call;
}

static bool read_line(struct history *history, size_t *capacity, char *line)
{
    char *rest = line, *stop = line;
    const char *time = strsep(&rest, " "), *id = strsep(&rest, " "), *word = strsep(&rest, " ");
    int end = find_name(history_end_names, HISTORY_END_COUNT, word), what = 0;
    if (end < 0)
        return false;
    if (end == HISTORY_OPEN &&
        (what = find_name(history_what_names, HISTORY_WHAT_COUNT, strsep(&rest, " "))) < 0)
        return false;
    int64_t at = strtoll(time, &stop, 10);
    struct history_call *call = call_of(history, capacity, strtoll(id, NULL, 10),
                                        (enum history_end)end, (enum history_what)what);
    if (!call || *stop)
        return false;
    call->end = (enum history_end)end;
    *(end == HISTORY_OPEN ? &call->invoked_us : &call->ended_us) = at;
    for (char *field; (field = strsep(&rest, " "));)
        if (*field && !read_field(call, field))
            return false;
    return true;
}

int history_parse(const char *text, struct history *ret, struct err *err)
{
    struct history history = { NULL, 0 };
    size_t capacity = 0;
    for (int number = 1; *text; number++) {
        size_t size = strcspn(text, "\n");
        char *line = mem_strndup(text, size);
        bool good = line && (size == 0 || read_line(&history, &capacity, line));
        mem_free(line);
        if (!good) {
            history_done(&history);
            return err_set(err, ERR_INVALID, "line %d: %.*s", number, (int)size, text);
        }
        text += size + (text[size] == '\n');
    }
    for (size_t i = 0; i < history.count; i++) {
        if (history.calls[i].id != 0)
            continue;
        history_done(&history);
        return err_set(err, ERR_INVALID, "call %zu never began", i + 1);
    }
    *ret = history;
    return 0;
}

int history_read(const char *path, struct history *ret, struct err *err)
{
    CLEANUP(buf_done) struct buf text = { .limit = FILE_BYTES_MAX };
    FILE *file = fopen(path, "re");
    if (!file)
        return err_set(err, ERR_NOT_FOUND, "%s", path);
    for (size_t got = 1; got > 0;) {
        uint8_t *room = buf_room(&text, LINE_BYTES_MAX);
        got = room ? fread(room, 1, LINE_BYTES_MAX, file) : 0;
        buf_added(&text, got);
    }
    (void)fclose(file); /* was only read */
    buf_text(&text, "");
    if (text.failed)
        return err_set(err, ERR_NOMEM, "%s", path);
    return history_parse(buf_cstr(&text), ret, err);
}

void history_done(struct history *history)
{
    for (size_t i = 0; i < history->count; i++)
        mem_free(history->calls[i].entries);
    mem_free(history->calls);
    *history = (struct history){ NULL, 0 };
}
