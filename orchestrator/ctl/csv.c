#include "ctl/csv.h"

#include <string.h>

void csv_field(struct buf *out, bool first, const char *text, size_t size)
{
    if (!first)
        buf_text(out, ",");
    bool plain = true;
    for (size_t i = 0; i < size && plain; i++)
        plain = !strchr(",\"\r\n", text[i]) || text[i] == '\0';
    if (plain) {
        buf_append(out, text, size);
        return;
    }
    buf_text(out, "\"");
    for (size_t i = 0; i < size; i++)
        buf_append(out, text[i] == '"' ? "\"\"" : &text[i], text[i] == '"' ? 2 : 1);
    buf_text(out, "\"");
}

static void begin_field(struct csv_reader *reader)
{
    if (reader->count < CSV_FIELDS_MAX)
        reader->offsets[reader->count] = reader->record.size;
    reader->count++;
}

static void end_field(struct csv_reader *reader)
{
    buf_append(&reader->record, "", 1);
}

/* To the end of a line that cannot be used. */
static void skip_line(struct csv_reader *reader)
{
    int c;
    while ((c = getc_unlocked(reader->file)) != EOF && c != '\n')
        continue;
    reader->next++;
}

static int broken(struct csv_reader *reader, int last, const char *what, struct err *err)
{
    if (last != '\n')
        skip_line(reader);
    return err_set(err, ERR_INVALID, "%s", what);
}

/* One field, up to what ends it: a comma, a line end or EOF, which is returned. */
static int read_field(struct csv_reader *reader, int c, int *ret_end, struct err *err)
{
    bool quoted = c == '"';
    begin_field(reader);
    if (quoted)
        c = getc_unlocked(reader->file);
    for (;; c = getc_unlocked(reader->file)) {
        if (quoted && c == EOF)
            return err_set(err, ERR_INVALID, "a quote is not closed");
        if (quoted && c == '"') {
            c = getc_unlocked(reader->file);
            if (c != '"') /* else a quote within */
                break;
        } else if (!quoted && (c == ',' || c == '\n' || c == '\r' || c == EOF)) {
            break;
        } else if (c == '"' || c == '\0') {
            return broken(reader, c, c ? "a quote within a field that is not quoted" : "a NUL",
                          err);
        }
        char byte = (char)c;
        reader->next += c == '\n';
        buf_append(&reader->record, &byte, 1);
        if (reader->record.size > CSV_RECORD_BYTES_MAX)
            return broken(reader, c, "the record is longer than 1 MiB", err);
    }
    if (c == '\r') {
        c = getc_unlocked(reader->file);
        if (c != '\n' && c != EOF)
            return broken(reader, c, "a carriage return within a line", err);
    }
    if (c != ',' && c != '\n' && c != EOF)
        return broken(reader, c, "text behind a closing quote", err);
    end_field(reader);
    *ret_end = c;
    return 0;
}

static int read_record(struct csv_reader *reader, int c, struct err *err)
{
    int end = ',';
    while (end == ',') {
        int rc = read_field(reader, c, &end, err);
        if (rc)
            return rc;
        if (end == ',')
            c = getc_unlocked(reader->file);
    }
    reader->next += end == '\n';
    if (reader->count > CSV_FIELDS_MAX)
        return err_set(err, ERR_INVALID, "has %zu fields, the limit is %d", reader->count,
                       CSV_FIELDS_MAX);
    if (reader->record.failed)
        return err_set(err, ERR_NOMEM, "out of memory");
    return 0;
}

int csv_read(struct csv_reader *reader, bool *ret_more, struct err *err)
{
    int c;
    reader->next = reader->next ? reader->next : 1;
    while ((c = getc_unlocked(reader->file)) == '\n' || c == '\r')
        reader->next += c == '\n';
    reader->line = reader->next;
    reader->count = 0;
    reader->record.size = 0;
    *ret_more = c != EOF;
    int rc = c != EOF ? read_record(reader, c, err) : 0;
    if (ferror(reader->file))
        return err_set(err, ERR_UNAVAILABLE, "cannot be read");
    return rc;
}

const char *csv_text(const struct csv_reader *reader, size_t field)
{
    return field < reader->count && field < CSV_FIELDS_MAX
               ? (const char *)reader->record.data + reader->offsets[field]
               : "";
}

void csv_reader_done(struct csv_reader *reader)
{
    buf_done(&reader->record);
}
