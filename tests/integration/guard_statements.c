#include "guard_statements.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

const char action[] = "ACTION", compensation[] = "COMPENSATION";
static const int64_t started_us = 1714564800000000;

struct guard_statements {
    struct buf texts[STATEMENT_COUNT];
};

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    struct buf text = { .limit = 1 << 20 };
    for (size_t got = 1; file && got > 0;) {
        uint8_t *room = buf_room(&text, 4096);
        if (!room)
            break;
        got = fread(room, 1, 4096, file);
        buf_added(&text, got);
    }
    buf_text(&text, "");
    if (file)
        (void)fclose(file); /* was only read */
    return (char *)text.data;
}

/* A statement is a run of lines that begin with "--      " and ends with a semicolon. */
static int fill(struct guard_statements *statements, char *file)
{
    char *rest = NULL;
    int count = 0;
    for (char *line = strtok_r(file, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "--      ", 8) != 0)
            continue;
        if (count == STATEMENT_COUNT)
            return -1;
        size_t length = strlen(line);
        bool ends = line[length - 1] == ';';
        if (ends)
            line[length - 1] = '\0';
        buf_text(&statements->texts[count], line + 8);
        buf_text(&statements->texts[count], " ");
        count += ends;
    }
    return count == STATEMENT_COUNT ? 0 : -1;
}

int guard_statements_read(struct guard_statements **ret_statements)
{
    CLEANUP(mem_free_p) char *file = read_file(SOURCE_DIR "/sql/guard/mysql.sql");
    struct guard_statements *statements = mem_calloc(1, sizeof *statements);
    if (!file || !statements || fill(statements, file) != 0) {
        (void)guard_statements_free(statements); /* always NULL */
        return -1;
    }
    *ret_statements = statements;
    return 0;
}

struct guard_statements *guard_statements_free(struct guard_statements *statements)
{
    for (int i = 0; statements && i < STATEMENT_COUNT; i++)
        buf_done(&statements->texts[i]);
    mem_free(statements);
    return NULL;
}

/* The named parameters become literals; every other ':' is one of ours, too. */
static void put_parameter(struct buf *sql, const struct operation *operation, const char *name,
                          size_t size)
{
#define IS(text) (size == strlen(text) && memcmp(name, text, size) == 0)
    if (IS("namespace"))
        buf_text(sql, "'default'");
    else if (IS("definition"))
        buf_text(sql, "'settle'");
    else if (IS("saga_id"))
        buf_printf(sql, "'%s'", operation->saga);
    else if (IS("run"))
        buf_text(sql, "1");
    else if (IS("step"))
        buf_text(sql, "'debit'");
    else if (IS("operation"))
        buf_printf(sql, "'%s'", operation->name);
    else if (IS("fence"))
        buf_printf(sql, "%ld", operation->fence);
    else if (IS("saga_started_us"))
        buf_printf(sql, "%lld", (long long)started_us);
    else if (IS("even_without_action"))
        buf_printf(sql, "%d", operation->even_without_action);
    else if (IS("output"))
        buf_printf(sql, "'%s'", operation->output);
    else if (IS("new_floor_us"))
        buf_printf(sql, "%lld", (long long)started_us + operation->fence);
    else
        buf_text(sql, "unknown parameter");
#undef IS
}

static const char letters[] = "abcdefghijklmnopqrstuvwxyz_";

unsigned execute(const struct guard_statements *statements, MYSQL *conn, enum statement id,
                 const struct operation *operation)
{
    struct buf sql = { .limit = 1 << 16 };
    const char *from = buf_cstr(&statements->texts[id]);
    for (const char *colon; (colon = strchr(from, ':')) != NULL;) {
        size_t size = strspn(colon + 1, letters);
        buf_append(&sql, from, (size_t)(colon - from));
        put_parameter(&sql, operation, colon + 1, size);
        from = colon + 1 + size;
    }
    buf_text(&sql, from);
    bool failed = mysql_query(conn, buf_cstr(&sql)) != 0;
    buf_done(&sql);
    return failed ? mysql_errno(conn) : 0;
}
