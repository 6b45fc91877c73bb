/* sagactl export: what was sent to the other side, as a file to compare with its books. */
#include "base/sha256.h"
#include "ctl/ctl.h"
#include "ctl/ctl_payload.h"
#include "ctl/export_rows.h"
#include "ctl/names.h"
#include "ctl/verbs.h"
#include "ctl/zone.h"
#include "wire/json_scalars.h"
#include "wire/times.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <saga/v1/operator.pb-c.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { REVISIONS_MAX = 64, PROGRESS_EVERY_MS = 2000 };

static const struct ctl_option options[] = {
    { "definition", "NAME", false, "required: which definition" },
    { "step", "NAME", false, "required: which step" },
    { "operation", "WHAT", false, "action (default) or compensation" },
    { "from", "TIME", false, "required: from then on: \"2026-03-02 00:00\", 22:00, -2h, ...Z" },
    { "to", "TIME", false, "required: before then" },
    { "tz", "ZONE", false, "of --from and --to without an offset (default: this machine's)" },
    { "by", "WHAT", false, "dispatched (default): an attempt was sent out then; ended: it ended" },
    { "format", "FORMAT", false, "csv (default) or jsonl" },
    { "field", "FIELD", true, "of the payloads: input.order_id, output.receipt, input, output" },
    { "file", "FILE", false, "required: what to write; its manifest goes to FILE.manifest.json" },
    { NULL, NULL, false, NULL },
};

struct known_types {
    int32_t revision;
    struct revision_types *types;
};

struct export
{
    struct ctl *ctl;
    Saga__V1__ExportAttemptsRequest request;
    Google__Protobuf__Timestamp from, to;
    struct export_fields fields;
    bool jsonl;
    const char *path, *zone;
    char part[PATH_MAX]; /* what is written until it is whole */
    FILE *file;
    struct sha256_sum *sum;
    int64_t rows, bytes, told_ms;
    struct known_types known[REVISIONS_MAX];
    size_t known_count;
};

static void export_done(struct export *export)
{
    if (export->file) {
        (void)fclose(export->file); /* it failed before */
        (void)unlink(export->part); /* or is left behind, which its name tells */
    }
    export->sum = sha256_sum_free(export->sum);
    for (size_t i = 0; i < export->known_count; i++)
        (void)revision_types_free(export->known[i].types); /* always NULL */
}

/* --- the command line ------------------------------------------------------------------------- */

static int required(const struct ctl_arguments *arguments, const char *option, char **ret,
                    struct err *err)
{
    return ctl_take_text(arguments, option, ret)
               ? 0
               : err_set(err, ERR_INVALID, "export needs --%s", option);
}

static int read_time(const struct ctl_arguments *arguments, const char *option,
                     Google__Protobuf__Timestamp *time, Google__Protobuf__Timestamp **ret,
                     struct err *err)
{
    const char *text = ctl_option(arguments, option);
    int64_t ms;
    if (!text)
        return err_set(err, ERR_INVALID, "export needs --%s", option);
    if (ctl_zone_time(option, text, ctl_now_ms(), &ms, err) != 0)
        return (int)err->code;
    google__protobuf__timestamp__init(time);
    timestamp_from_ms(ms, time);
    *ret = time;
    return 0;
}

/* Which of two words; false for any other. */
static bool read_choice(const char *text, const char *first, const char *second, bool *ret_second)
{
    *ret_second = text && strcmp(text, second) == 0;
    return !text || *ret_second || strcmp(text, first) == 0;
}

static int read_choices(const struct ctl_arguments *arguments, struct export *export,
                        struct err *err)
{
    bool compensation, ended;
    if (!read_choice(ctl_option(arguments, "operation"), "action", "compensation", &compensation))
        return err_set(err, ERR_INVALID, "--operation must be action or compensation");
    if (!read_choice(ctl_option(arguments, "by"), "dispatched", "ended", &ended))
        return err_set(err, ERR_INVALID, "--by must be dispatched or ended");
    if (!read_choice(ctl_option(arguments, "format"), "csv", "jsonl", &export->jsonl))
        return err_set(err, ERR_INVALID, "--format must be csv or jsonl");
    export->request.operation = compensation ? SAGA__V1__OPERATION_KIND__OPERATION_KIND_COMPENSATION
                                             : SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION;
    export->request.by = ended ? SAGA__V1__EXPORT_ATTEMPTS_REQUEST__BY__BY_ENDED
                               : SAGA__V1__EXPORT_ATTEMPTS_REQUEST__BY__BY_DISPATCHED;
    return 0;
}

static int read_line(const struct ctl_arguments *arguments, struct export *export, struct err *err)
{
    Saga__V1__ExportAttemptsRequest *request = &export->request;
    const char *const *fields;
    size_t field_count = ctl_option_all(arguments, "field", &fields);
    char *path = NULL;
    export->zone = ctl_option(arguments, "tz");
    int rc = export->zone ? ctl_zone_set(export->zone, err) : 0;
    if (!rc)
        rc = required(arguments, "definition", &request->definition, err);
    if (!rc)
        rc = required(arguments, "step", &request->step, err);
    if (!rc)
        rc = read_time(arguments, "from", &export->from, &request->from, err);
    if (!rc)
        rc = read_time(arguments, "to", &export->to, &request->to, err);
    if (!rc)
        rc = required(arguments, "file", &path, err);
    if (!rc)
        rc = read_choices(arguments, export, err);
    if (!rc)
        rc = export_fields_read(fields, field_count, &export->fields, err);
    if (!rc && snprintf(export->part, sizeof export->part, "%s.part", path) >= PATH_MAX)
        rc = err_set(err, ERR_INVALID, "--file: the name is too long");
    export->path = path;
    if (export->ctl->namespace_)
        request->namespace_ = (char *)export->ctl->namespace_;
    request->with_payloads = field_count > 0;
    request->page_size = CTL_PAGE_SIZE;
    return rc;
}

/* --- the file --------------------------------------------------------------------------------- */

static int file_error(const struct export *export, const char *what)
{
    (void)fprintf(stderr, "sagactl: %s: %s: %s\n", export->part, what, strerror(errno));
    return CTL_EXIT_FAILED;
}

/* 0, or the exit code; it has been printed why. */
static int write_text(struct export *export, const struct buf *text)
{
    struct err err;
    if (text->failed || sha256_sum_add(export->sum, text->data, text->size) != 0) {
        (void)err_set(&err, ERR_NOMEM, "out of memory");
        return ctl_print_error(&err);
    }
    if (text->size && fwrite(text->data, text->size, 1, export->file) != 1)
        return file_error(export, "cannot be written");
    export->bytes += (int64_t)text->size;
    return 0;
}

static int open_file(struct export *export)
{
    CLEANUP(buf_done) struct buf header = { 0 };
    struct err err;
    export->file = fopen(export->part, "we");
    if (!export->file)
        return file_error(export, "cannot be written");
    export->sum = sha256_sum_new();
    if (!export->sum) {
        (void)err_set(&err, ERR_NOMEM, "out of memory");
        return ctl_print_error(&err);
    }
    if (!export->jsonl)
        export_write_header(&export->fields, &header);
    return write_text(export, &header);
}

/* On the disk under its own name: from here on it is whole. */
static int close_file(struct export *export)
{
    bool written = fflush(export->file) == 0 && fsync(fileno(export->file)) == 0;
    if (!written || rename(export->part, export->path) != 0)
        return file_error(export, "cannot be written");
    FILE *file = TAKE(export->file);
    return fclose(file) == 0 ? 0 : file_error(export, "cannot be closed");
}

/* --- rows ------------------------------------------------------------------------------------- */

/* Of the revision, kept for the next row. Nothing where no field is asked for. */
static int types_of(struct export *export, int32_t revision, const struct revision_types **ret)
{
    *ret = NULL;
    if (!export->fields.count)
        return 0;
    for (size_t i = 0; i < export->known_count; i++)
        if (export->known[i].revision == revision) {
            *ret = export->known[i].types;
            return 0;
        }
    if (export->known_count == REVISIONS_MAX)
        (void)revision_types_free(export->known[--export->known_count].types); /* always NULL */
    struct known_types known = { .revision = revision };
    int rc = ctl_types_get(export->ctl, export->ctl->namespace_, export->request.definition,
                           revision, &known.types);
    if (rc != 0)
        return rc;
    export->known[export->known_count++] = known;
    *ret = known.types;
    return 0;
}

static int write_page(struct export *export, const Saga__V1__ExportAttemptsResponse *page)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    struct err err;
    for (size_t i = 0; i < page->n_operations; i++) {
        struct export_row row = { .operation = page->operations[i],
                                  .step = export->request.step,
                                  .kind = export->request.operation };
        int rc = types_of(export, row.operation->revision, &row.types);
        if (rc != 0)
            return rc;
        if ((export->jsonl ? export_write_json : export_write_csv)(&row, &export->fields, &text,
                                                                   &err) != 0)
            return ctl_print_error(&err);
    }
    export->rows += (int64_t)page->n_operations;
    return write_text(export, &text);
}

static void tell_progress(struct export *export)
{
    int64_t now_ms = ctl_now_ms();
    if (!export->told_ms)
        export->told_ms = now_ms;
    if (now_ms - export->told_ms < PROGRESS_EVERY_MS)
        return;
    export->told_ms = now_ms;
    (void)fprintf(stderr, "sagactl: %" PRId64 " rows so far\n", export->rows);
}

static int write_pages(struct export *export)
{
    char token[512] = "";
    do {
        CLEANUP(ctl_message_free_p) Saga__V1__ExportAttemptsResponse *page = NULL;
        export->request.page_token = token;
        int rc =
            ctl_call(export->ctl, "/saga.v1.OperatorService/ExportAttempts", &export->request.base,
                     &saga__v1__export_attempts_response__descriptor, &page);
        if (rc == 0)
            rc = write_page(export, page);
        if (rc != 0)
            return rc;
        if (strlen(page->next_page_token) >= sizeof token) {
            (void)fputs("sagactl: the server's page token is too long\n", stderr);
            return CTL_EXIT_FAILED;
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
        tell_progress(export);
    } while (*token);
    return 0;
}

/* --- the manifest ----------------------------------------------------------------------------- */

static json_t *time_json(const Google__Protobuf__Timestamp *time)
{
    char text[JSON_TIME_SIZE];
    return json_timestamp_write(time->seconds, time->nanos, text) ? json_string(text) : NULL;
}

static json_t *fields_json(const struct export_fields *fields)
{
    json_t *list = json_array();
    for (size_t i = 0; i < fields->count; i++)
        if (json_array_append_new(list, json_string(fields->list[i].text)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *manifest_json(struct export *export)
{
    static const char digits[] = "0123456789abcdef";
    const Saga__V1__ExportAttemptsRequest *request = &export->request;
    uint8_t digest[32];
    char hex[sizeof digest * 2 + 1] = "";
    Google__Protobuf__Timestamp now = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    if (sha256_sum_end(export->sum, digest) != 0)
        return NULL;
    for (size_t i = 0; i < sizeof digest; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    timestamp_from_ms(ctl_now_ms(), &now);
    const char *name = strrchr(export->path, '/');
    bool ended = request->by == SAGA__V1__EXPORT_ATTEMPTS_REQUEST__BY__BY_ENDED;
    return json_pack(
        "{s:s, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:s*, s:s, s:o, s:o, s:s}", "file",
        name ? name + 1 : export->path, "rows", (json_int_t) export->rows, "bytes",
        (json_int_t) export->bytes, "sha256", hex, "namespace",
        *request->namespace_ ? request->namespace_ : "default", "definition", request->definition,
        "step", request->step, "operation", name_operation(request->operation), "by",
        ended ? "ended" : "dispatched", "from", time_json(&export->from), "to",
        time_json(&export->to), "time_zone", export->zone, "format",
        export->jsonl ? "jsonl" : "csv", "fields", fields_json(&export->fields), "exported_at",
        time_json(&now), "server", export->ctl->address);
}

static int write_manifest(struct export *export, json_t *manifest)
{
    char path[PATH_MAX + 16];
    (void)snprintf(path, sizeof path, "%s.manifest.json", export->path);
    FILE *file = manifest ? fopen(path, "we") : NULL;
    bool written = file && json_dumpf(manifest, file, JSON_INDENT(2)) == 0 &&
                   fputs("\n", file) >= 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;
    if (file && fclose(file) != 0)
        written = false;
    if (written)
        return 0;
    (void)fprintf(stderr, "sagactl: %s: cannot be written: %s\n", path,
                  manifest ? strerror(errno) : "out of memory");
    return CTL_EXIT_FAILED;
}

static int finish(struct export *export)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    json_t *manifest = manifest_json(export);
    int rc = close_file(export);
    if (rc == 0)
        rc = write_manifest(export, manifest);
    if (rc == 0 && export->ctl->json)
        return ctl_print_json(manifest); /* consumed */
    buf_printf(&text, "exported %" PRId64 " rows to %s, sha256 %s\n", export->rows, export->path,
               manifest ? json_string_value(json_object_get(manifest, "sha256")) : "");
    json_decref(manifest);
    return rc == 0 ? ctl_print_text(&text) : rc;
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    CLEANUP(export_done)
    struct export export = { .ctl = ctl, .request = SAGA__V1__EXPORT_ATTEMPTS_REQUEST__INIT };
    struct err err;
    if (read_line(arguments, &export, &err) != 0)
        return ctl_print_error(&err);
    int rc = open_file(&export);
    if (rc == 0)
        rc = write_pages(&export);
    return rc == 0 ? finish(&export) : rc;
}

const struct ctl_verb verb_export = {
    "export",
    "",
    0,
    0,
    options,
    "what was sent to the other side in a span of time, as a file to compare with its books\n"
    "\n"
    "A line for each saga of which an attempt of the step was sent out (or ended) then: key, "
    "idempotency\n"
    "keys, fences, first and last time, outcome, and the fields of the payloads that are asked for "
    "(empty\n"
    "where they are not set). The manifest tells the count and the SHA-256. An interrupted export "
    "leaves\n"
    "FILE.part alone.",
    run,
};
