/* The statements of sql/guard/mysql.sql, taken out of its comments and run with literals for their
 * named parameters: what is tested is what people read. Any thread, once read. */
#ifndef TEST_GUARD_STATEMENTS_H
#define TEST_GUARD_STATEMENTS_H

#include <mysql.h>
#include <stdbool.h>
#include <stdint.h>

/* In the order of the file. */
enum statement {
    SAVEPOINT,
    RELEASE,
    BLOCK_ACTION,
    CLAIM,
    ASK_ACTION,
    ASK_COMPENSATION,
    DONE,
    NO_EFFECT,
    UNBLOCK,
    ONCE,
    PURGE_LEVEL,
    PURGE_WAIT,
    RAISE_FLOOR,
    RAISE_SHORT_TEXT,
    RAISE_SHORT_PREPARE,
    RAISE_SHORT,
    PURGE,
    STATEMENT_COUNT
};

/* One operation of the step "debit" of a saga. */
struct operation {
    const char *saga, *name; /* ACTION or COMPENSATION */
    long fence;
    int even_without_action;
    const char *output;
    bool short_way; /* an action: tried first */
};
extern const char action[], compensation[];

struct guard_statements;

/* Not 0: the file does not hold them, or memory is out. */
int guard_statements_read(struct guard_statements **ret_statements);
struct guard_statements *guard_statements_free(struct guard_statements *statements);

/* Of a saga that started at 1714564800000000 (RAISE_FLOOR: to that plus the operation's fence), run
 * 1, step "debit". Returns the number of the error, 0: none. */
unsigned execute(const struct guard_statements *statements, MYSQL *conn, enum statement id,
                 const struct operation *operation);

#endif
