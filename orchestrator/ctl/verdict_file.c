#include "ctl/verdict_file.h"

#include "base/mem.h"
#include "base/sha256.h"
#include "base/uuid.h"
#include "core/limits.h"
#include "ctl/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum column {
    COLUMN_VERDICT,
    COLUMN_UID,
    COLUMN_DEFINITION,
    COLUMN_SAGA_ID,
    COLUMN_RUN,
    COLUMN_STEP,
    COLUMN_OPERATION,
    COLUMN_FENCE,
    COLUMN_RESULT,
    COLUMN_EVIDENCE,
    COLUMN_COUNT
};
static const char *const column_names[COLUMN_COUNT] = {
    [COLUMN_VERDICT] = "verdict",     [COLUMN_UID] = "uid",     [COLUMN_DEFINITION] = "definition",
    [COLUMN_SAGA_ID] = "saga_id",     [COLUMN_RUN] = "run",     [COLUMN_STEP] = "step",
    [COLUMN_OPERATION] = "operation", [COLUMN_FENCE] = "fence", [COLUMN_RESULT] = "result",
    [COLUMN_EVIDENCE] = "evidence",
};
enum { DIGEST_DIGITS = 32 };

struct verdict_file {
    FILE *file;
    const char *path, *name, *definition, *step; /* borrowed */
    struct csv_reader reader;
    int places[COLUMN_COUNT]; /* -1: the file has no such column */
    char digest[DIGEST_DIGITS + 1];
};

static int unreadable(const struct verdict_file *file, struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, "%s: cannot be read: %s", file->path, strerror(errno));
}

static int digest_make(struct verdict_file *file, struct err *err)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t block[64 * 1024], digest[32];
    struct sha256_sum *sum = sha256_sum_new();
    int rc = sum ? 0 : -1;
    size_t size;
    while (!rc && (size = fread(block, 1, sizeof block, file->file)) > 0)
        rc = sha256_sum_add(sum, block, size);
    if (!rc)
        rc = sha256_sum_end(sum, digest);
    (void)sha256_sum_free(sum); /* always NULL */
    if (rc)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (ferror(file->file))
        return unreadable(file, err);
    for (size_t i = 0; i < DIGEST_DIGITS; i++)
        file->digest[i] = digits[i % 2 ? digest[i / 2] & 15 : digest[i / 2] >> 4];
    return 0;
}

static int read_header(struct verdict_file *file, struct err *err)
{
    bool more;
    if (csv_read(&file->reader, &more, err) != 0)
        return err_wrap(err, "%s:%lld", file->path, (long long)file->reader.line);
    for (int column = 0; column < COLUMN_COUNT; column++) {
        file->places[column] = -1;
        for (size_t i = 0; more && i < file->reader.count; i++)
            if (strcasecmp(csv_text(&file->reader, i), column_names[column]) == 0)
                file->places[column] = (int)i;
    }
    bool named = file->places[COLUMN_UID] >= 0 || file->places[COLUMN_SAGA_ID] >= 0;
    if (file->places[COLUMN_VERDICT] >= 0 && named)
        return 0;
    return err_set(err, ERR_INVALID,
                   "%s: its first line must name the columns: verdict, and saga_id or uid",
                   file->path);
}

int verdict_file_rewind(struct verdict_file *file, struct err *err)
{
    if (fseeko(file->file, 0, SEEK_SET) != 0)
        return unreadable(file, err);
    file->reader.next = 0;
    return read_header(file, err);
}

int verdict_file_open(const char *path, const char *definition, const char *step,
                      struct verdict_file **ret, struct err *err)
{
    struct verdict_file *file = mem_calloc(1, sizeof *file);
    if (!file)
        return err_set(err, ERR_NOMEM, "out of memory");
    const char *name = strrchr(path, '/');
    file->path = path;
    file->name = name ? name + 1 : path;
    file->definition = definition;
    file->step = step;
    file->file = file->reader.file = fopen(path, "re");
    int rc = file->file ? digest_make(file, err) : unreadable(file, err);
    if (!rc)
        rc = verdict_file_rewind(file, err);
    if (rc)
        file = verdict_file_close(file);
    *ret = file;
    return rc;
}

struct verdict_file *verdict_file_close(struct verdict_file *file)
{
    if (!file)
        return NULL;
    if (file->file)
        (void)fclose(file->file); /* it was only read */
    csv_reader_done(&file->reader);
    mem_free(file);
    return NULL;
}

const char *verdict_file_digest(const struct verdict_file *file)
{
    return file->digest;
}

const char *verdict_file_name(const struct verdict_file *file)
{
    return file->name;
}

/* --- a row ------------------------------------------------------------------------------------ */

static const char *text_of(const struct verdict_file *file, enum column column)
{
    int place = file->places[column];
    return place >= 0 ? csv_text(&file->reader, (size_t)place) : "";
}

static int read_kind(const char *text, enum verdict_kind *ret, struct err *err)
{
    static const struct {
        const char *word;
        enum verdict_kind kind;
    } words[] = { { "DID_HAPPEN", VERDICT_DID_HAPPEN },
                  { "DID_NOT_HAPPEN", VERDICT_DID_NOT_HAPPEN },
                  { "UNKNOWN", VERDICT_NOT_KNOWN } };
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcasecmp(text, words[i].word) == 0) {
            *ret = words[i].kind;
            return 0;
        }
    return err_set(err, ERR_INVALID,
                   "verdict: must be DID_HAPPEN, DID_NOT_HAPPEN or UNKNOWN, not \"%.64s\"", text);
}

/* "" is 0. */
static int read_number(const char *name, const char *text, int64_t max, int64_t *ret,
                       struct err *err)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool is_number = !*text || (*text >= '0' && *text <= '9' && !*end);
    if (!is_number || errno || value > max)
        return err_set(err, ERR_INVALID, "%s: must be a number, not \"%.64s\"", name, text);
    *ret = *text ? value : 0;
    return 0;
}

static int read_operation(const char *text, Saga__V1__OperationKind *ret, struct err *err)
{
    *ret = SAGA__V1__OPERATION_KIND__OPERATION_KIND_UNSPECIFIED;
    if (*text &&
        (!name_operation_read(text, ret) || *ret == SAGA__V1__OPERATION_KIND__OPERATION_KIND_PROBE))
        return err_set(err, ERR_INVALID, "operation: must be ACTION or COMPENSATION, not \"%.64s\"",
                       text);
    return 0;
}

static const char *either(const char *text, const char *otherwise)
{
    return *text || !otherwise ? text : otherwise;
}

static int check_names(const struct verdict *verdict, struct err *err)
{
    struct uuid uid;
    if (*verdict->uid)
        return uuid_parse(verdict->uid, &uid)
                   ? 0
                   : err_set(err, ERR_INVALID, "uid: is no UUID: \"%.64s\"", verdict->uid);
    if (!*verdict->saga_id)
        return err_set(err, ERR_INVALID, "saga_id: is required");
    if (strlen(verdict->saga_id) > LIMIT_SAGA_ID_BYTES)
        return err_set(err, ERR_INVALID, "saga_id: is longer than %d bytes", LIMIT_SAGA_ID_BYTES);
    return *verdict->definition
               ? 0
               : err_set(err, ERR_INVALID,
                         "definition: is required, in the file or as --definition");
}

static int read_row(const struct verdict_file *file, struct verdict *ret, struct err *err)
{
    struct verdict verdict = {
        .line = file->reader.line,
        .uid = text_of(file, COLUMN_UID),
        .definition = either(text_of(file, COLUMN_DEFINITION), file->definition),
        .saga_id = text_of(file, COLUMN_SAGA_ID),
        .step = either(text_of(file, COLUMN_STEP), file->step),
        .result = text_of(file, COLUMN_RESULT),
        .evidence = text_of(file, COLUMN_EVIDENCE),
    };
    int64_t run = 0;
    int rc = read_kind(text_of(file, COLUMN_VERDICT), &verdict.kind, err);
    if (!rc)
        rc = check_names(&verdict, err);
    if (!rc)
        rc = read_number("run", text_of(file, COLUMN_RUN), INT32_MAX, &run, err);
    if (!rc)
        rc = read_number("fence", text_of(file, COLUMN_FENCE), INT64_MAX, &verdict.fence, err);
    if (!rc)
        rc = read_operation(text_of(file, COLUMN_OPERATION), &verdict.operation, err);
    if (!rc && !*verdict.step)
        rc = err_set(err, ERR_INVALID, "step: is required, in the file or as --step");
    if (!rc && *verdict.result && verdict.kind != VERDICT_DID_HAPPEN)
        rc = err_set(err, ERR_INVALID, "result: goes with DID_HAPPEN alone");
    verdict.run = (int32_t)run;
    ret->line = verdict.line;
    if (!rc)
        *ret = verdict;
    return rc;
}

int verdict_file_next(struct verdict_file *file, struct verdict *ret, bool *ret_more,
                      struct err *err)
{
    int rc = csv_read(&file->reader, ret_more, err);
    ret->line = file->reader.line;
    if (rc && err->code == ERR_UNAVAILABLE)
        return unreadable(file, err);
    return rc || !*ret_more ? rc : read_row(file, ret, err);
}
