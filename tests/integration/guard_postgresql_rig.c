#include "guard_postgresql_rig.h"

#include "base/buf.h"
#include "support/wait.h"

#include <stdio.h>

enum { BLOCKED_MS_MAX = 10000 };

const char guard_started[] = "2024-05-01 12:00:00+00";

void must(PGconn *conn, const char *sql)
{
    PGresult *res = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(res);
    PQclear(res);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(conn));
}

static PGconn *connect_to(const char *conninfo)
{
    PGconn *conn = PQconnectdb(conninfo);
    if (PQstatus(conn) != CONNECTION_OK)
        print_error("%s\n", PQerrorMessage(conn));
    return conn;
}

int setup(void **state)
{
    static struct fixture fixture;
    struct err err;
    char conninfo[POSTGRES_CONNINFO_SIZE];
    SETUP_OK(test_postgres_start(NULL, &fixture.postgres, &err), &err);
    SETUP_OK(test_postgres_createdb(fixture.postgres, "shop", conninfo, &err), &err);
    FILE *file = fopen(SOURCE_DIR "/sql/guard/postgresql.sql", "re");
    if (!file)
        return -1;
    struct buf sql = { .limit = 1 << 20 };
    for (size_t got = 1; got > 0;) {
        uint8_t *room = buf_room(&sql, 4096);
        if (!room)
            break;
        got = fread(room, 1, 4096, file);
        buf_added(&sql, got);
    }
    buf_text(&sql, "");
    (void)fclose(file); /* was only read */
    /* Twice: the file may be run again at any time, also over a table as it once was. */
    SETUP_OK(test_postgres_exec(fixture.postgres, "shop", buf_cstr(&sql), &err), &err);
    SETUP_OK(test_postgres_exec(fixture.postgres, "shop",
                                "DROP TRIGGER guard_refuse_open_commit ON saga_guard.guard;"
                                "ALTER TABLE saga_guard.guard ALTER saga_id TYPE text"
                                " COLLATE \"default\"",
                                &err),
             &err);
    SETUP_OK(test_postgres_exec(fixture.postgres, "shop", buf_cstr(&sql), &err), &err);
    buf_done(&sql);
    SETUP_OK(test_postgres_exec(fixture.postgres, "shop",
                                "CREATE TABLE account (saga text PRIMARY KEY, balance int);"
                                "CREATE ROLE worker LOGIN;"
                                "GRANT USAGE ON SCHEMA saga_guard TO worker;"
                                "GRANT SELECT, INSERT, UPDATE ON account TO worker",
                                &err),
             &err);
    fixture.first = connect_to(conninfo);
    fixture.second = connect_to(conninfo);
    fixture.watcher = connect_to(conninfo);
    must(fixture.first, "SET ROLE worker");
    must(fixture.second, "SET ROLE worker");
    *state = &fixture;
    return 0;
}

int teardown(void **state)
{
    struct fixture *fixture = *state;
    PQfinish(fixture->first);
    PQfinish(fixture->second);
    PQfinish(fixture->watcher);
    (void)test_postgres_free(fixture->postgres); /* always NULL */
    return 0;
}

int new_saga(void **state)
{
    struct fixture *fixture = *state;
    (void)snprintf(fixture->saga, sizeof fixture->saga, "order-%d", ++fixture->next_saga);
    char sql[128];
    (void)snprintf(sql, sizeof sql, "INSERT INTO account VALUES ('%s', 0)", fixture->saga);
    must(fixture->first, sql);
    return 0;
}

int connections_are_idle(void **state)
{
    struct fixture *fixture = *state;
    bool idle = PQtransactionStatus(fixture->first) == PQTRANS_IDLE &&
                PQtransactionStatus(fixture->second) == PQTRANS_IDLE;
    return idle ? 0 : -1;
}

struct answer answer_of(PGresult *res)
{
    struct answer answer = { .word = "", .output = "" };
    if (PQresultStatus(res) == PGRES_TUPLES_OK && PQntuples(res) == 1) {
        (void)snprintf(answer.word, sizeof answer.word, "%s", PQgetvalue(res, 0, 0));
        (void)snprintf(answer.output, sizeof answer.output, "%s", PQgetvalue(res, 0, 1));
    } else {
        const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);
        (void)snprintf(answer.word, sizeof answer.word, "%s", sqlstate ? sqlstate : "none");
    }
    PQclear(res);
    return answer;
}

void send_call(PGconn *conn, const char *function, const char *saga, const char *operation,
               long fence)
{
    char sql[256], number[24];
    (void)snprintf(sql, sizeof sql,
                   "SELECT answer, convert_from(output, 'UTF8') FROM saga_guard.%s("
                   "'default', 'settle', $1, 1, 'debit', $2, $3, $4)",
                   function);
    (void)snprintf(number, sizeof number, "%ld", fence);
    const char *values[] = { saga, operation, number, guard_started };
    assert_int_equal(PQsendQueryParams(conn, sql, 4, NULL, values, NULL, NULL, 0), 1);
}

struct answer receive_answer(PGconn *conn)
{
    struct answer answer = answer_of(PQgetResult(conn));
    PGresult *res;
    while ((res = PQgetResult(conn)) != NULL)
        PQclear(res);
    return answer;
}

struct answer enter(PGconn *conn, const char *saga, const char *operation, long fence)
{
    send_call(conn, "enter", saga, operation, fence);
    return receive_answer(conn);
}

void work(PGconn *conn, const char *saga, const char *operation, const char *output)
{
    char sql[512];
    (void)snprintf(sql, sizeof sql,
                   "UPDATE account SET balance = balance %s 1 WHERE saga = '%s';"
                   "SELECT saga_guard.done('default', 'settle', '%s', 1, 'debit', '%s', '%s')",
                   strcmp(operation, "ACTION") == 0 ? "+" : "-", saga, saga, operation, output);
    must(conn, sql);
}

int balance(struct fixture *fixture, const char *saga)
{
    char sql[128], text[16];
    struct err err;
    (void)snprintf(sql, sizeof sql, "SELECT balance FROM account WHERE saga = '%s'", saga);
    ASSERT_OK(test_postgres_query(fixture->postgres, "shop", sql, text, sizeof text, &err), &err);
    return (int)strtol(text, NULL, 10);
}

struct answer run(PGconn *conn, const char *saga, const char *operation, long fence,
                  const char *output)
{
    must(conn, "BEGIN");
    struct answer answer = enter(conn, saga, operation, fence);
    if (strcmp(answer.word, "PROCEED") == 0)
        work(conn, saga, operation, output);
    bool stands = strcmp(answer.word, "PROCEED") == 0 || strcmp(answer.word, "EMPTY") == 0 ||
                  strcmp(answer.word, "DUPLICATE") == 0;
    must(conn, stands ? "COMMIT" : "ROLLBACK");
    return answer;
}

struct waiting {
    PGconn *watcher;
    int pid;
};

static bool is_waiting(void *ctx)
{
    struct waiting *waiting = ctx;
    char sql[160];
    (void)snprintf(sql, sizeof sql,
                   "SELECT 1 FROM pg_stat_activity WHERE pid = %d AND wait_event_type = 'Lock'",
                   waiting->pid);
    PGresult *res = PQexec(waiting->watcher, sql);
    bool found = PQntuples(res) == 1;
    PQclear(res);
    return found;
}

void assert_waits(struct fixture *fixture, PGconn *conn)
{
    struct waiting waiting = { .watcher = fixture->watcher, .pid = PQbackendPID(conn) };
    assert_true(wait_until(is_waiting, &waiting, BLOCKED_MS_MAX));
}
