#include "wire/filter.h"

#include "base/utf8.h"
#include "wire/json_scalars.h"

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_CHARS = 40, SHOWN_SIZE = 48 };

enum compare { EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, COMPARE_COUNT };
static const char *const compares[] = {
    [EQUAL] = "=",       [NOT_EQUAL] = "!=", [LESS] = "<",
    [LESS_EQUAL] = "<=", [GREATER] = ">",    [GREATER_EQUAL] = ">=",
};
_Static_assert(ARRAY_LEN(compares) == COMPARE_COUNT, "a sign for each comparison");

enum kind {
    KIND_TEXT,
    KIND_ID,
    KIND_NUMBER,
    KIND_TIME,
    KIND_BOOL,
    KIND_STATE,
    KIND_REASON,
    KIND_OPERATION,
    KIND_LABEL,
    KIND_COUNT
};

/* What may be said of a value of each kind; the first sign is always "=". */
static const struct {
    bool has_order, has_not_equal;
    const char *values; /* NULL: any text */
} kinds[] = {
    [KIND_TEXT] = { false, false, NULL },
    [KIND_ID] = { false, false, NULL },
    [KIND_NUMBER] = { true, false, "a whole number from 0 on" },
    [KIND_TIME] = { true, false, "an RFC 3339 time such as \"2026-11-30T22:00:00Z\"" },
    [KIND_BOOL] = { false, false, "true or false" },
    [KIND_STATE] = { false, true,
                     "RUNNING, COMPENSATING, PARKED, SUCCEEDED, COMPENSATED or ABANDONED" },
    [KIND_REASON] = { false, true,
                      "OUTCOME_UNKNOWN, IDEMPOTENCY_WINDOW_OVER, RETRIES_EXHAUSTED,"
                      " COMPENSATION_FAILED, REJECTED_AFTER_PIVOT, DEADLINE_EXCEEDED,"
                      " FOREIGN_EFFECT, LATE_EFFECT, WORKER_KILLER, LIMIT_REACHED or SUSPENDED" },
    [KIND_OPERATION] = { false, false, "ACTION or COMPENSATION" },
    [KIND_LABEL] = { false, false, NULL },
};
_Static_assert(ARRAY_LEN(kinds) == KIND_COUNT, "a row for each kind");

#define AT(member) offsetof(struct saga_filter, member)
static const struct field {
    const char *name;
    enum kind kind;
    bool of_effects;
    size_t at;    /* in struct saga_filter; TEXT, NUMBER, TIME */
    size_t bytes; /* TEXT, ID: at most */
} fields[] = {
    { "namespace", KIND_TEXT, false, AT(namespace_), LIMIT_NAMESPACE_BYTES },
    { "definition", KIND_TEXT, false, AT(definition), LIMIT_DEFINITION_NAME_BYTES },
    { "revision", KIND_NUMBER, false, AT(revision), 0 },
    { "saga_id", KIND_ID, false, 0, LIMIT_SAGA_ID_BYTES },
    { "state", KIND_STATE, false, 0, 0 },
    { "park.reason", KIND_REASON, false, 0, 0 },
    { "park.step", KIND_TEXT, false, AT(park_step), LIMIT_STEP_NAME_BYTES },
    { "park.error.code", KIND_TEXT, false, AT(park_code), LIMIT_ERROR_CODE_BYTES },
    { "labels.KEY", KIND_LABEL, false, 0, 0 },
    { "doubt", KIND_BOOL, false, 0, 0 },
    { "start_time", KIND_TIME, false, AT(started_us), 0 },
    { "update_time", KIND_TIME, false, AT(updated_us), 0 },
    { "end_time", KIND_TIME, false, AT(ended_us), 0 },
    { "step", KIND_TEXT, true, AT(step), LIMIT_STEP_NAME_BYTES },
    { "operation", KIND_OPERATION, true, 0, 0 },
    { "dispatched", KIND_NUMBER, true, AT(dispatched), 0 },
    { "sure", KIND_NUMBER, true, AT(sure), 0 },
    { "possible", KIND_NUMBER, true, AT(possible), 0 },
    { "first_time", KIND_TIME, true, AT(first_us), 0 },
    { "last_time", KIND_TIME, true, AT(last_us), 0 },
};
static const char labels_dot[] = "labels.";

struct parser {
    const char *text, *at;
    const char *term; /* where the comparison begins */
    enum filter_scope scope;
    struct arena *arena;
    struct saga_filter *filter;
    struct err *err;
};

/* --- words ------------------------------------------------------------------------------------ */

static size_t column_of(const struct parser *parser, const char *place)
{
    size_t column = 1;
    for (const char *c = parser->text; c < place; c++)
        column += ((unsigned char)*c & 0xc0) != 0x80;
    return column;
}

/* "filter: column 12: ..." */
FMT(3, 4)
static int refuse(const struct parser *parser, const char *place, const char *fmt, ...)
{
    char what[sizeof parser->err->msg];
    va_list arguments;
    va_start(arguments, fmt);
    (void)vsnprintf(what, sizeof what, fmt, arguments); /* cut if need be */
    va_end(arguments);
    return err_field(parser->err, "filter", "filter: column %zu: %s", column_of(parser, place),
                     what);
}

static void skip_spaces(struct parser *parser)
{
    while (*parser->at == ' ' || *parser->at == '\t' || *parser->at == '\n')
        parser->at++;
}

static bool is_word(char c)
{
    return c != '\0' && !strchr(" \t\n\"'()=!<>,", c);
}

/* What stands there, for messages: cut after a few characters. */
static void show(const char *place, char ret[SHOWN_SIZE])
{
    size_t size = 0;
    while (place[size] && place[size] != ' ' && size < SHOWN_CHARS)
        size++;
    while (size > 0 && ((unsigned char)place[size] & 0xc0) == 0x80)
        size--;
    (void)snprintf(ret, SHOWN_SIZE, "%.*s%s", (int)size, place,
                   place[size] && place[size] != ' ' ? "..." : "");
    if (!*ret)
        (void)snprintf(ret, SHOWN_SIZE, "the end");
}

/* How long the word, or the text in quotes with its first quote, is. */
static size_t value_length(const char *begin, char quote)
{
    size_t size = quote ? 1 : 0;
    while (quote ? begin[size] && begin[size] != quote : is_word(begin[size]))
        size += quote && begin[size] == '\\' && begin[size + 1] ? 2 : 1;
    return size;
}

/* A word, or text in quotes. *ret_prefix: it ends in a * that stands for anything. */
static int read_value(struct parser *parser, char **ret, bool *ret_prefix)
{
    const char *begin = parser->at;
    char quote = *begin == '"' || *begin == '\'' ? *begin : '\0';
    const char *end = begin + value_length(begin, quote);
    if (quote && !*end)
        return refuse(parser, begin, "the quote is not closed");
    if (end == begin) {
        char shown[SHOWN_SIZE];
        show(begin, shown);
        return refuse(parser, begin, "%s: a value is missing here", shown);
    }
    char *value = arena_alloc(parser->arena, (size_t)(end - begin) + 1);
    if (!value)
        return err_set(parser->err, ERR_NOMEM, "filter");
    size_t size = 0;
    bool star = false;
    for (const char *at = quote ? begin + 1 : begin; at < end; at++) {
        bool taken = quote && *at == '\\';
        at += taken;
        star = *at == '*' && !taken;
        value[size++] = *at;
    }
    parser->at = quote ? end + 1 : end;
    *ret = value;
    *ret_prefix = star;
    return 0;
}

static int read_compare(struct parser *parser, const struct field *field, enum compare *ret)
{
    static const char order[] = "=, <, <=, > or >=", equal[] = "=", both[] = "= or !=";
    skip_spaces(parser);
    enum compare found = COMPARE_COUNT;
    size_t length = 0;
    for (int i = 0; i < COMPARE_COUNT; i++) {
        size_t size = strlen(compares[i]);
        if (size > length && strncmp(parser->at, compares[i], size) == 0) {
            found = (enum compare)i;
            length = size;
        }
    }
    bool fits = found == EQUAL || (found == NOT_EQUAL && kinds[field->kind].has_not_equal) ||
                (found >= LESS && found < COMPARE_COUNT && kinds[field->kind].has_order);
    if (!fits) {
        char shown[SHOWN_SIZE];
        show(parser->at, shown);
        return refuse(parser, parser->at, "%s: %s is compared with %s", shown, field->name,
                      kinds[field->kind].has_order       ? order
                      : kinds[field->kind].has_not_equal ? both
                                                         : equal);
    }
    parser->at += length;
    skip_spaces(parser);
    *ret = found;
    return 0;
}

/* --- values ----------------------------------------------------------------------------------- */

static int refuse_twice(const struct parser *parser, const char *name)
{
    return refuse(parser, parser->term, "%s has a value already", name);
}

static int refuse_value(const struct parser *parser, const struct field *field, const char *place)
{
    char shown[SHOWN_SIZE];
    show(place, shown);
    return refuse(parser, place, "%s: %s must be %s", shown, field->name,
                  kinds[field->kind].values);
}

static int check_size(const struct parser *parser, const char *place, const char *name,
                      const char *value, size_t most)
{
    size_t size = strlen(value);
    if (size == 0 || size > most)
        return refuse(parser, place, "%s: 1 to %zu bytes, not %zu", name, most, size);
    if (!utf8_is_text(value, size))
        return refuse(parser, place, "%s: has no control characters", name);
    return 0;
}

static int set_text(const struct parser *parser, const struct field *field, const char *place,
                    const char *value, const char **ret)
{
    if (*ret)
        return refuse_twice(parser, field->name);
    int rc = check_size(parser, place, field->name, value, field->bytes);
    if (!rc)
        *ret = value;
    return rc;
}

static int set_id(const struct parser *parser, const struct field *field, const char *place,
                  char *value, bool is_prefix)
{
    struct saga_filter *filter = parser->filter;
    if (filter->saga_id || filter->saga_id_prefix)
        return refuse_twice(parser, field->name);
    if (!is_prefix)
        return set_text(parser, field, place, value, &filter->saga_id);
    value[strlen(value) - 1] = '\0';
    return set_text(parser, field, place, value, &filter->saga_id_prefix);
}

/* What is asked twice must hold twice. */
static void narrow(struct span *span, enum compare compare, int64_t value)
{
    struct span add = { 0 };
    if (compare == EQUAL || compare == GREATER_EQUAL || compare == GREATER) {
        add.has_from = true;
        add.from = compare == GREATER ? value + 1 : value;
    }
    if (compare == EQUAL || compare == LESS_EQUAL || compare == LESS) {
        add.has_to = true;
        add.to = compare == LESS ? value : value + 1;
    }
    if (add.has_from && (!span->has_from || span->from < add.from))
        span->from = add.from;
    if (add.has_to && (!span->has_to || span->to > add.to))
        span->to = add.to;
    span->has_from = span->has_from || add.has_from;
    span->has_to = span->has_to || add.has_to;
}

static bool read_number(const char *text, int64_t *ret)
{
    int64_t value = 0;
    size_t size = strlen(text);
    if (size == 0 || size > 10)
        return false;
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '9')
            return false;
        value = value * 10 + (*c - '0');
    }
    *ret = value;
    return true;
}

static bool read_time(const char *text, int64_t *ret_us)
{
    int64_t seconds;
    int32_t nanos;
    if (!json_timestamp_read(text, &seconds, &nanos))
        return false;
    *ret_us = seconds * 1000000 + nanos / 1000;
    return true;
}

static int set_word(const struct parser *parser, const struct field *field, const char *place,
                    enum compare compare, const char *value)
{
    struct saga_filter *filter = parser->filter;
    enum saga_state state;
    enum park_reason reason;
    switch (field->kind) {
    case KIND_STATE:
        if (!saga_state_parse(value, &state))
            return refuse_value(parser, field, place);
        for (int i = 0; i < SAGA_STATE_COUNT; i++)
            if ((i == (int)state) == (compare == NOT_EQUAL))
                filter->not_states[i] = true;
        return 0;
    case KIND_REASON:
        if (!park_reason_parse(value, &reason))
            return refuse_value(parser, field, place);
        for (int i = 0; i < PARK_REASON_COUNT; i++)
            if (i == PARK_NONE || (i == (int)reason) == (compare == NOT_EQUAL))
                filter->not_reasons[i] = true;
        return 0;
    case KIND_OPERATION:
        if (filter->has_operation)
            return refuse_twice(parser, field->name);
        if (!operation_parse(value, &filter->operation) || filter->operation == OPERATION_PROBE)
            return refuse_value(parser, field, place);
        filter->has_operation = true;
        return 0;
    default:
        if (filter->has_doubt)
            return refuse_twice(parser, field->name);
        filter->doubt = strcmp(value, "true") == 0;
        filter->has_doubt = filter->doubt || strcmp(value, "false") == 0;
        return filter->has_doubt ? 0 : refuse_value(parser, field, place);
    }
}

static int set_label(const struct parser *parser, const char *key, const char *place,
                     const char *value)
{
    struct saga_filter *filter = parser->filter;
    for (size_t i = 0; i < filter->label_count; i++)
        if (strcmp(filter->labels[i].key, key) == 0)
            return refuse(parser, parser->term, "labels.%s has a value already", key);
    if (filter->label_count == LIMIT_LABELS)
        return refuse(parser, parser->term, "labels: a saga has at most %d", LIMIT_LABELS);
    int rc = check_size(parser, place, "a label", value, LIMIT_LABEL_BYTES);
    if (!rc)
        filter->labels[filter->label_count++] = (struct label_filter){ key, value };
    return rc;
}

/* --- terms ------------------------------------------------------------------------------------ */

static int refuse_field(const struct parser *parser)
{
    char names[256] = "", shown[SHOWN_SIZE];
    size_t size = 0;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (!fields[i].of_effects || parser->scope == FILTER_EFFECTS) {
            int wrote = snprintf(names + size, sizeof names - size, "%s%s", size ? ", " : "",
                                 fields[i].name);
            size += wrote > 0 ? (size_t)wrote : 0;
        }
    show(parser->at, shown);
    return refuse(parser, parser->at, "%s: must be one of %s", shown, names);
}

/* *ret_key: of a label. */
static int read_field(struct parser *parser, const struct field **ret, char **ret_key)
{
    size_t size = 0;
    while (is_word(parser->at[size]))
        size++;
    size_t dot = sizeof labels_dot - 1;
    bool is_label = strncmp(parser->at, labels_dot, dot) == 0;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const struct field *field = &fields[i];
        if (field->of_effects && parser->scope != FILTER_EFFECTS)
            continue;
        bool is_it = field->kind == KIND_LABEL ? is_label
                                               : strlen(field->name) == size &&
                                                     strncmp(field->name, parser->at, size) == 0;
        if (!is_it)
            continue;
        *ret = field;
        parser->at += is_label ? dot : size;
        if (!is_label)
            return 0;
        bool is_prefix;
        const char *place = parser->at;
        int rc = read_value(parser, ret_key, &is_prefix);
        assert(rc || *ret_key);
        return rc ? rc : check_size(parser, place, "a label's key", *ret_key, LIMIT_LABEL_BYTES);
    }
    return refuse_field(parser);
}

static int read_term(struct parser *parser)
{
    const struct field *field = NULL;
    char *key = NULL, *value = NULL;
    enum compare compare = EQUAL;
    bool is_prefix = false;
    parser->term = parser->at;
    int rc = read_field(parser, &field, &key);
    if (!rc)
        rc = read_compare(parser, field, &compare);
    const char *place = parser->at;
    if (!rc)
        rc = read_value(parser, &value, &is_prefix);
    if (rc)
        return rc;
    assert(field && value && (key || field->kind != KIND_LABEL));
    char *member = (char *)parser->filter + field->at;
    int64_t number = 0;
    switch (field->kind) {
    case KIND_TEXT:
        return set_text(parser, field, place, value, (const char **)(void *)member);
    case KIND_ID:
        return set_id(parser, field, place, value, is_prefix);
    case KIND_NUMBER:
    case KIND_TIME:
        if (field->kind == KIND_NUMBER ? !read_number(value, &number) : !read_time(value, &number))
            return refuse_value(parser, field, place);
        narrow((struct span *)(void *)member, compare, number);
        return 0;
    case KIND_LABEL:
        return set_label(parser, key, place, value);
    default:
        return set_word(parser, field, place, compare, value);
    }
}

static bool is_joined(struct parser *parser)
{
    if (strncmp(parser->at, "AND", 3) != 0 || is_word(parser->at[3]))
        return false;
    parser->at += 3;
    return true;
}

int filter_parse(const char *text, enum filter_scope scope, struct arena *arena,
                 struct saga_filter *filter, struct err *err)
{
    struct parser parser = { text, text, text, scope, arena, filter, err };
    size_t size = strlen(text);
    if (size > FILTER_BYTES_MAX)
        return err_field(err, "filter", "filter: has %zu bytes, the limit is %d", size,
                         FILTER_BYTES_MAX);
    skip_spaces(&parser);
    while (*parser.at) {
        int rc = read_term(&parser);
        if (rc)
            return rc;
        skip_spaces(&parser);
        if (!*parser.at)
            break;
        const char *place = parser.at;
        char shown[SHOWN_SIZE];
        show(place, shown);
        if (!is_joined(&parser))
            return refuse(&parser, place,
                          "%s: comparisons are joined by AND; there is no OR, NOT or bracket",
                          shown);
        skip_spaces(&parser);
        if (!*parser.at)
            return refuse(&parser, parser.at, "a comparison is missing behind AND");
    }
    return 0;
}
