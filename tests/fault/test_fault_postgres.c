/* A PostgreSQL that dies, refuses, or has no room. Goal: nothing acknowledged is lost, guarded
 * effects stay single, every saga goes on by itself when it is back. Method: load, with the server
 * of both sagad and the participant killed at random moments, its sessions ended, the server turned
 * into a standby for a while, its disk filled, its connections used up. */
#include "base/clock.h"
#include "base/rng.h"
#include "load.h"
#include "support/proof.h"
#include "support/scratch.h"
#include "support/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REST_MS = 120000, SOON = 30000, CONNECTIONS = 60 };

static const char *const settings[] = { "max_connections=60", "superuser_reserved_connections=1",
                                        "recovery_init_sync_method=syncfs", NULL };
static struct rig rig = { .server_args = { "--resend-grace", "500ms", "--stream-lost", "500ms" },
                          .postgres_settings = settings };
static struct rng rng;

static int setup(void **state)
{
    (void)state;
    /* Mounts of this program and its children vanish with them. */
    if (geteuid() == 0 &&
        (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0))
        return -1;
    if (rig_up(&rig) != 0)
        return -1;
    load_define(&rig);
    rng_seed(&rng, proof_seed());
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static int check(void **state)
{
    (void)state;
    rig_workers_kill(&rig);
    return rig_check(&rig);
}

static void workers(void)
{
    (void)rig_worker_threads(&rig, "one", "act:6 undo:4", 6); /* the rig owns them */
    (void)rig_worker_threads(&rig, "two", "act:6 undo:4", 6);
}

/* b may not be repeated: where the bank dies under it, it is parked. */
static void judge(struct load *load, int parked_max)
{
    int parked = load_judge(load, parked_max, REST_MS);
    if (parked > 0)
        print_message("%d parked: OUTCOME_UNKNOWN\n", parked);
    assert_int_equal(rig_count(&rig, RIG_STORE,
                               "SELECT count(*) FROM saga WHERE state = 'PARKED'"
                               " AND (park_reason <> 'OUTCOME_UNKNOWN' OR park_step <> 'b')"),
                     0);
}

static void test_p1_p2_p8_the_postmaster_is_killed_at_random_times(void **state)
{
    (void)state;
    PROVES("P1 P2 P8");
    enum { EACH = 40 };
    int rounds = test_is_full_size() ? 100 : 10;
    struct err err;
    workers();
    struct load *load = load_start(&rig, LOAD_BANK_DIES, "killed-", rounds * EACH);
    for (int i = 0; i < rounds; i++) {
        load_allow(load, (i + 1) * EACH);
        int64_t limit = clock_mono_ms(&clock_system) + REST_MS;
        while (load_acked(load) <= i * EACH) { /* it works again */
            assert_true(clock_mono_ms(&clock_system) < limit);
            wait_ms(5);
        }
        wait_ms((int64_t)rng_below(&rng, 400));
        test_postgres_kill(rig.postgres);
        proof_fault("postmaster killed", 1);
        ASSERT_OK(test_postgres_restart(rig.postgres, &err), &err);
    }
    judge(load, rounds * 12);
    assert_true(test_process_running(rig.sagad));
}

static void test_p2_p8_sessions_are_ended_at_random_times(void **state)
{
    (void)state;
    PROVES("P1 P2 P8");
    int rounds = test_is_full_size() ? 200 : 25;
    workers();
    int64_t reconnects = rig_counter(&rig, "reconnects");
    struct load *load = load_start(&rig, LOAD_BANK_LIVES, "ended-", rounds * 6);
    int64_t ended = 0;
    for (int i = 0; i < rounds; i++) {
        wait_ms(20 + (int64_t)rng_below(&rng, 80));
        ended += rig_count(&rig, RIG_STORE,
                           "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                           " WHERE application_name = '%s'",
                           rng_below(&rng, 4) == 0 ? "sagad reader" : "sagad engine");
    }
    proof_fault("session ended by pg_terminate_backend", ended);
    judge(load, 0);
    assert_true(rig_counter(&rig, "reconnects") >= reconnects + ended / 4);
}

/* --- read-only -------------------------------------------------------------------------------- */

/* How often the file holds the text. */
static int64_t occurrences(const char *path, const char *text)
{
    char line[4096];
    int64_t count = 0;
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        count += strstr(line, text) != NULL;
    (void)fclose(file); /* was only read */
    return count;
}

static void await_text(const char *path, const char *text, int64_t more_than)
{
    int64_t until = clock_mono_ms(&clock_system) + SOON;
    while (occurrences(path, text) <= more_than) {
        if (clock_mono_ms(&clock_system) > until)
            fail_msg("no \"%s\" in %s", text, path);
        wait_ms(20);
    }
}

static void become_standby(void)
{
    struct err err;
    char signal_file[300];
    ASSERT_OK(test_postgres_query(rig.postgres, "postgres",
                                  "SELECT current_setting('data_directory') || '/standby.signal'",
                                  signal_file, sizeof signal_file, &err),
              &err);
    ASSERT_OK(test_postgres_stop_fast(rig.postgres, &err), &err);
    FILE *file = fopen(signal_file, "we");
    assert_non_null(file);
    (void)fclose(file); /* empty */
    ASSERT_OK(test_postgres_restart(rig.postgres, &err), &err);
}

static void test_p2_p3_p8_a_database_that_is_read_only_for_a_while(void **state)
{
    (void)state;
    PROVES("P1 P2 P3 P8");
    struct err err;
    workers();
    const char *log = test_process_log(rig.sagad);
    int64_t refused = occurrences(log, "read-only");
    struct load *load = load_start(&rig, LOAD_BANK_DIES, "readonly-", 150);
    while (load_acked(load) < 50)
        wait_ms(5);
    become_standby();
    await_text(log, "read-only", refused + 2);
    proof_fault("database read-only: a standby", occurrences(log, "read-only") - refused);
    int64_t acked = load_acked(load);
    wait_ms(500);
    assert_true(load_acked(load) <= acked + 1); /* one answer may have been on its way */
    ASSERT_OK(test_postgres_exec(rig.postgres, "postgres", "SELECT pg_promote()", &err), &err);
    judge(load, 12);
    /* Fences of the new timeline are higher than any before. */
    assert_true(
        rig_count(&rig, RIG_BANK,
                  "SELECT (max(fence) >> 40) FROM calls WHERE saga_id LIKE 'readonly-%%'") >= 1);
}

/* --- no connection left ----------------------------------------------------------------------- */

static size_t occupy(PGconn **conns, size_t count)
{
    while (count < CONNECTIONS) {
        PGconn *conn = PQconnectdb(rig.bank);
        if (PQstatus(conn) != CONNECTION_OK) {
            PQfinish(conn);
            break;
        }
        conns[count++] = conn;
    }
    return count;
}

static void test_p8_no_connection_is_left(void **state)
{
    (void)state;
    PROVES("P1 P8");
    static PGconn *conns[CONNECTIONS];
    workers();
    const char *log = test_process_log(rig.sagad);
    int64_t refused = occurrences(log, "too many clients");
    struct load *load = load_start(&rig, LOAD_BANK_LIVES, "connections-", 60);
    while (load_acked(load) < 20)
        wait_ms(5);
    wait_ms(300); /* the workers have all of theirs */
    size_t count = occupy(conns, 0);
    int64_t until = clock_mono_ms(&clock_system) + SOON;
    while (occurrences(log, "too many clients") < refused + 3) {
        assert_true(clock_mono_ms(&clock_system) < until);
        rig_exec(&rig, RIG_STORE,
                 "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                 " WHERE application_name = 'sagad engine'");
        for (int i = 0; i < 100; i++) {
            count = occupy(conns, count);
            wait_ms(1);
        }
    }
    proof_fault("53300: no connection left", occurrences(log, "too many clients") - refused);
    while (count > 0)
        PQfinish(conns[--count]);
    judge(load, 0);
}

/* --- no room ---------------------------------------------------------------------------------- */

/* A file system of its own, in memory; it goes with this process's name space. */
static void small_disk(const char *path, int megabytes)
{
    struct stat like;
    char options[64];
    assert_int_equal(stat(test_postgres_socket_dir(rig.postgres), &like), 0);
    (void)snprintf(options, sizeof options, "size=%dm,mode=0700,uid=%u,gid=%u", megabytes,
                   like.st_uid, like.st_gid);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(mount("tmpfs", path, "tmpfs", 0, options), 0);
}

static void fill(const char *directory)
{
    static const char zeros[4096];
    char path[SCRATCH_PATH_SIZE + 16];
    (void)snprintf(path, sizeof path, "%s/ballast", directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    while (write(fd, zeros, sizeof zeros) > 0)
        continue;
    assert_int_equal(errno, ENOSPC);
    (void)close(fd); /* full, as it was to be */
}

static void make_room(const char *directory)
{
    char path[SCRATCH_PATH_SIZE + 16];
    (void)snprintf(path, sizeof path, "%s/ballast", directory);
    assert_int_equal(unlink(path), 0);
}

static void skip_without_mounts(void)
{
    if (geteuid() == 0)
        return;
    print_message("only root may mount a small file system\n");
    skip();
}

static void move_journal(const char *tablespace)
{
    rig_exec(&rig, RIG_STORE, "ALTER TABLE journal SET TABLESPACE %s", tablespace);
    rig_exec(&rig, RIG_STORE, "ALTER INDEX journal_pkey SET TABLESPACE %s", tablespace);
}

static void test_p1_p2_p8_the_disk_of_the_journal_is_full_for_a_while(void **state)
{
    (void)state;
    PROVES("P1 P2 P8");
    skip_without_mounts();
    char disk[SCRATCH_PATH_SIZE];
    (void)snprintf(disk, sizeof disk, "%s/journal", test_postgres_socket_dir(rig.postgres));
    small_disk(disk, 24);
    rig_exec(&rig, RIG_STORE, "CREATE TABLESPACE small LOCATION '%s'", disk);
    move_journal("small");
    workers();
    const char *log = test_postgres_log(rig.postgres);
    struct load *load = load_start(&rig, LOAD_BANK_LIVES, "disk-", 300);
    while (load_acked(load) < 50)
        wait_ms(5);
    fill(disk);
    await_text(log, "No space left on device", 3);
    wait_ms(1000);
    assert_true(load_acked(load) < 300);
    proof_fault("53100: disk of the journal full", occurrences(log, "No space left on device"));
    make_room(disk);
    judge(load, 0);
    move_journal("pg_default");
    rig_exec(&rig, RIG_STORE, "DROP TABLESPACE small");
    assert_int_equal(umount(disk), 0);
}

/* Moves the WAL's files: to a small disk, which when full makes PostgreSQL give up altogether, or
 * back. PostgreSQL is restarted. */
static void move_wal(const char *disk, bool back)
{
    static const char *const moves[] = {
        "cp -a $0/pg_wal/. $1 && rm -r $0/pg_wal && ln -s $1 $0/pg_wal",
        "rm $0/pg_wal && cp -a $1 $0/pg_wal && umount $1"
    };
    struct err err;
    char data[SCRATCH_PATH_SIZE];
    ASSERT_OK(test_postgres_query(rig.postgres, "postgres", "SHOW data_directory", data,
                                  sizeof data, &err),
              &err);
    ASSERT_OK(test_postgres_stop_fast(rig.postgres, &err), &err);
    const char *argv[] = { "/bin/sh", "-c", moves[back], data, disk, NULL };
    const struct test_process_options options = { .argv = argv };
    ASSERT_OK(test_process_must_succeed(&options, SOON, &err), &err);
    ASSERT_OK(test_postgres_restart(rig.postgres, &err), &err);
}

static void use_up_wal(void)
{
    struct err err;
    const char *log = test_postgres_log(rig.postgres);
    int64_t until = clock_mono_ms(&clock_system) + SOON;
    while (occurrences(log, "PANIC") == 0) {
        assert_true(clock_mono_ms(&clock_system) < until);
        int rc = test_postgres_exec(
            rig.postgres, "postgres",
            "SELECT pg_logical_emit_message(false, 'x', 'y'), pg_switch_wal()", &err);
        if (rc != 0)
            wait_ms(20); /* this one made it give up, or it is starting again */
    }
}

static void test_p1_p2_p8_the_disk_of_the_wal_is_full(void **state)
{
    (void)state;
    PROVES("P1 P2 P8");
    skip_without_mounts();
    struct err err;
    char disk[SCRATCH_PATH_SIZE];
    (void)snprintf(disk, sizeof disk, "%s/wal", test_postgres_socket_dir(rig.postgres));
    small_disk(disk, 192);
    move_wal(disk, false);
    workers();
    struct load *load = load_start(&rig, LOAD_BANK_DIES, "wal-", 150);
    while (load_acked(load) < 50)
        wait_ms(5);
    fill(disk);
    use_up_wal();
    proof_fault("disk of the WAL full: PANIC",
                occurrences(test_postgres_log(rig.postgres), "PANIC"));
    wait_ms(500);
    test_postgres_kill(rig.postgres);
    make_room(disk);
    ASSERT_OK(test_postgres_restart(rig.postgres, &err), &err);
    judge(load, 12);
    move_wal(disk, true);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, check)
    const struct CMUnitTest tests[] = {
        TEST(test_p1_p2_p8_the_postmaster_is_killed_at_random_times),
        TEST(test_p2_p8_sessions_are_ended_at_random_times),
        TEST(test_p8_no_connection_is_left),
        TEST(test_p1_p2_p8_the_disk_of_the_journal_is_full_for_a_while),
        TEST(test_p2_p3_p8_a_database_that_is_read_only_for_a_while),
        TEST(test_p1_p2_p8_the_disk_of_the_wal_is_full),
    };
    return proof_end(cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0);
}
