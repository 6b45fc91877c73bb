/* Goal: what archive_sync has returned for is a whole line of the day's file, whatever happened
 * before; a file whose day is over gets a manifest that is right, and never changes again. Method:
 * the archive by hand, days made by the clock that it is given, files torn and taken by others,
 * sha256sum beside our own. */
#include "support/check.h"
#include "support/scratch.h"

#include "retention/archive.h"
#include "retention/pace.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAY_MS (INT64_C(24) * 3600 * 1000)
#define DAY_1  INT64_C(1764460800000) /* 2025-11-30T00:00Z */

enum { PATH_SIZE = SCRATCH_PATH_SIZE + 300 };
static char folder[SCRATCH_PATH_SIZE];

static int setup(void **state)
{
    (void)state;
    struct err err;
    SETUP_OK(scratch_path("archive", folder, &err), &err);
    return mkdir(folder, 0700);
}

static struct archive *open_archive(const char *node)
{
    struct archive *archive;
    struct err err;
    ASSERT_OK(archive_new(folder, node, -1, &archive, &err), &err);
    return archive;
}

static void path_of(const char *name, char ret[PATH_SIZE])
{
    (void)snprintf(ret, PATH_SIZE, "%s/%s", folder, name);
}

/* Owned. */
static char *content_of(const char *name)
{
    char path[PATH_SIZE];
    path_of(name, path);
    FILE *file = fopen(path, "re");
    if (!file)
        return NULL;
    char *text = calloc(1, 100000);
    assert_non_null(text);
    assert_true(fread(text, 1, 99999, file) < 99999);
    assert_int_equal(fclose(file), 0);
    return text;
}

static void assert_content(const char *name, const char *expected)
{
    char *text = content_of(name);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
}

static void write_line(struct archive *archive, int64_t wall_ms, const char *line)
{
    struct err err;
    ASSERT_OK(archive_begin(archive, wall_ms, &err), &err);
    ASSERT_OK(archive_add(archive, line, strlen(line), &err), &err);
    ASSERT_OK(archive_sync(archive, &err), &err);
}

static void expect_refused(struct archive *archive, int64_t wall_ms, const char *part)
{
    struct err err;
    assert_int_equal(archive_begin(archive, wall_ms, &err), ERR_UNAVAILABLE);
    if (!strstr(err.msg, part))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, part);
}

static void test_lines_are_whole_after_a_torn_one_and_after_an_undo(void **state)
{
    (void)state;
    static const char name[] = "sagas-2025-11-30-node_1_7233.jsonl";
    char path[PATH_SIZE];
    struct err err;
    struct archive *archive = open_archive("node 1:7233");
    write_line(archive, DAY_1, "{\"a\": 1}");
    assert_string_equal(archive_name(archive), name);
    ASSERT_OK(archive_begin(archive, DAY_1 + DAY_MS - 1, &err), &err);
    ASSERT_OK(archive_add(archive, "{\"b\"", 4, &err), &err);
    archive_undo(archive);
    write_line(archive, DAY_1, "{\"c\": 3}");
    assert_content(name, "{\"a\": 1}\n{\"c\": 3}\n");
    archive = archive_free(archive);
    /* A process that died while it wrote, with a line longer than what is read at once. */
    path_of(name, path);
    FILE *file = fopen(path, "ae");
    assert_non_null(file);
    assert_true(fprintf(file, "{\"torn\": \"%*d", 10000, 1) > 0);
    assert_int_equal(fclose(file), 0);
    archive = open_archive("node 1:7233");
    write_line(archive, DAY_1, "{\"d\": 4}");
    assert_content(name, "{\"a\": 1}\n{\"c\": 3}\n{\"d\": 4}\n");
    archive = archive_free(archive);
    /* Nothing but a torn line. */
    assert_int_equal(truncate(path, 4), 0);
    archive = open_archive("node 1:7233");
    write_line(archive, DAY_1, "{}");
    assert_content(name, "{}\n");
    archive = archive_free(archive);
}

static void test_many_lines_are_written_as_they_come(void **state)
{
    (void)state;
    enum { LINES = 300, SIZE = 20000 }; /* more than what is gathered before a write */
    static char line[SIZE + 1];
    struct err err;
    struct stat found;
    char path[PATH_SIZE];
    memset(line, 'x', SIZE);
    struct archive *archive = open_archive("many");
    ASSERT_OK(archive_begin(archive, DAY_1, &err), &err);
    for (int i = 0; i < LINES; i++)
        ASSERT_OK(archive_add(archive, line, SIZE, &err), &err);
    path_of(archive_name(archive), path);
    assert_int_equal(stat(path, &found), 0);
    assert_true(found.st_size > 0 && found.st_size < (off_t)LINES * (SIZE + 1));
    ASSERT_OK(archive_sync(archive, &err), &err);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_size, (off_t)LINES * (SIZE + 1));
    /* And taken back, also where a part was written. */
    ASSERT_OK(archive_begin(archive, DAY_1, &err), &err);
    for (int i = 0; i < LINES; i++)
        ASSERT_OK(archive_add(archive, line, SIZE, &err), &err);
    archive_undo(archive);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_size, (off_t)LINES * (SIZE + 1));
    archive = archive_free(archive);
}

static const char *text_of(json_t *manifest, const char *key)
{
    const char *text = json_string_value(json_object_get(manifest, key));
    assert_non_null(text);
    return text;
}

static void assert_sum_is(const char *name, const char *sum)
{
    char command[PATH_SIZE + 20], line[200] = "";
    (void)snprintf(command, sizeof command, "sha256sum %s/%s", folder, name);
    FILE *output = popen(command, "re");
    assert_non_null(output);
    assert_non_null(fgets(line, sizeof line, output));
    assert_int_equal(pclose(output), 0);
    line[64] = '\0';
    assert_string_equal(line, sum);
}

static void test_a_day_that_is_over_gets_a_manifest_and_is_closed(void **state)
{
    (void)state;
    static const char name[] = "sagas-2025-11-30-m.jsonl";
    struct err err;
    size_t made = 0;
    struct archive *archive = open_archive("m"), *other = open_archive("other");
    write_line(archive, DAY_1, "{\"archived_at\": \"2025-11-30T00:00:01.5+00:00\"}");
    write_line(archive, DAY_1, "{\"x\": 2}");
    write_line(archive, DAY_1, "{\"archived_at\": \"2025-11-30T23:59:59+00:00\", \"y\": \"z\"}");
    write_line(other, DAY_1, "{}");
    ASSERT_OK(archive_close_days(archive, DAY_1 + DAY_MS - 1, &made, &err), &err);
    assert_int_equal(made, 0); /* it is not over */
    ASSERT_OK(archive_close_days(archive, DAY_1 + DAY_MS, &made, &err), &err);
    assert_int_equal(made, 1); /* that of the other node is the other's */
    char *text = content_of("sagas-2025-11-30-m.manifest.json");
    assert_non_null(text);
    json_t *manifest = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(manifest);
    assert_string_equal(text_of(manifest, "file"), name);
    assert_int_equal(json_integer_value(json_object_get(manifest, "lines")), 3);
    char *data = content_of(name);
    assert_int_equal(json_integer_value(json_object_get(manifest, "bytes")),
                     (json_int_t)strlen(data));
    free(data);
    assert_string_equal(text_of(manifest, "first_time"), "2025-11-30T00:00:01.5+00:00");
    assert_string_equal(text_of(manifest, "last_time"), "2025-11-30T23:59:59+00:00");
    assert_sum_is(name, text_of(manifest, "sha256"));
    json_decref(manifest);
    /* It stays as it is, also for a clock that goes back. */
    ASSERT_OK(archive_close_days(archive, DAY_1 + DAY_MS, &made, &err), &err);
    assert_int_equal(made, 1);
    expect_refused(archive, DAY_1, "clock");
    write_line(archive, DAY_1 + DAY_MS, "{}");
    assert_content("sagas-2025-11-30-m.manifest.json", text);
    free(text);
    archive = archive_free(archive);
    other = archive_free(other);
}

static void test_a_file_of_nothing_and_one_that_is_torn_get_their_manifests(void **state)
{
    (void)state;
    char path[PATH_SIZE];
    struct err err;
    size_t made = 0;
    static const struct {
        const char *name, *content, *lines;
    } files[] = { { "sagas-2025-10-01-n.jsonl", "", "\"lines\": 0," },
                  { "sagas-2025-10-02-n.jsonl", "{\"archived_at\": \"2025-10-02\"}\n{\"to",
                    "\"lines\": 1," } };
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        path_of(files[i].name, path);
        FILE *file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fputs(files[i].content, file) >= 0);
        assert_int_equal(fclose(file), 0);
    }
    struct archive *archive = open_archive("n");
    ASSERT_OK(archive_close_days(archive, DAY_1, &made, &err), &err);
    assert_int_equal(made, 2);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%.18s.manifest.json", files[i].name);
        char *text = content_of(name);
        assert_non_null(text);
        assert_non_null(strstr(text, files[i].lines));
        free(text);
    }
    archive = archive_free(archive);
}

static void test_what_is_no_archive_gets_no_manifest(void **state)
{
    (void)state;
    static const char *const contents[] = { "hello\n", "{\"archived_at\": 5}\n",
                                            "{\"archived_at\": \"\\\"}\"}\n", "{}\n{\n" };
    char path[PATH_SIZE];
    struct err err;
    struct archive *archive = open_archive("bad");
    for (size_t i = 0; i < ARRAY_LEN(contents); i++) {
        path_of("sagas-2025-10-03-bad.jsonl", path);
        FILE *file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fputs(contents[i], file) >= 0);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(archive_close_days(archive, DAY_1, NULL, &err), ERR_UNAVAILABLE);
        assert_non_null(strstr(err.msg, "no archived saga"));
        assert_null(content_of("sagas-2025-10-03-bad.manifest.json"));
    }
    archive = archive_free(archive);
}

static void test_a_file_is_written_by_one_process_and_read_by_none_that_stops(void **state)
{
    (void)state;
    char path[PATH_SIZE];
    struct err err;
    struct archive *archive = open_archive("one"), *twin = open_archive("one"), *stopping;
    write_line(archive, DAY_1, "{\"archived_at\": \"2025\"}");
    expect_refused(twin, DAY_1, "another process");
    assert_int_equal(archive_close_days(twin, DAY_1 + DAY_MS, NULL, &err), ERR_UNAVAILABLE);
    archive = archive_free(archive);
    int stop = eventfd(1, EFD_CLOEXEC);
    ASSERT_OK(archive_new(folder, "one", stop, &stopping, &err), &err);
    assert_int_equal(archive_close_days(stopping, DAY_1 + DAY_MS, NULL, &err), ERR_UNAVAILABLE);
    assert_non_null(strstr(err.msg, "stopping"));
    stopping = archive_free(stopping);
    assert_int_equal(close(stop), 0);
    write_line(twin, DAY_1, "{}");
    twin = archive_free(twin);
    /* A link that somebody put there is not followed. */
    struct archive *linked = open_archive("linked");
    path_of("sagas-2025-11-30-linked.jsonl", path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    expect_refused(linked, DAY_1, "open");
    linked = archive_free(linked);
    assert_int_equal(rmdir(folder), -1);
    (void)snprintf(folder, sizeof folder, "/nonexistent/archive");
    struct archive *nowhere = open_archive("x");
    expect_refused(nowhere, DAY_1, "make the folder");
    assert_int_equal(archive_close_days(nowhere, DAY_1, NULL, &err), ERR_UNAVAILABLE);
    nowhere = archive_free(nowhere);
}

/* The pace: batches shrink when they take long, grow when they are quick and full, and the pause
 * follows. */
static void test_the_pace_follows_how_long_a_batch_takes(void **state)
{
    (void)state;
    struct pace pace = { .limit = PACE_FIRST };
    pace_batch(&pace, PACE_FIRST, 1, 1000);
    assert_int_equal(pace.limit, 2 * PACE_FIRST);
    pace_batch(&pace, 5, 1, 1000); /* not full */
    assert_int_equal(pace.limit, 2 * PACE_FIRST);
    pace_batch(&pace, 2 * PACE_FIRST, PACE_TARGET_MS, 1000); /* just right */
    assert_int_equal(pace.limit, 2 * PACE_FIRST);
    for (int i = 0; i < 10; i++)
        pace_batch(&pace, 1000, 1, 1000);
    assert_int_equal(pace.limit, 1000);
    for (int i = 0; i < 20; i++)
        pace_batch(&pace, 1000, 1000, 1000);
    assert_int_equal(pace.limit, PACE_LEAST);
    assert_int_equal(pace_pause_ms(0, 0, 0), 1);
    assert_int_equal(pace_pause_ms(30, 1000, 0), 30);
    assert_int_equal(pace_pause_ms(30, 100, 1000), 70); /* 100 ms from start to start */
    assert_int_equal(pace_pause_ms(60, 100, 1000), 60);
    assert_int_equal(pace_pause_ms(100000, 0, 1000), PACE_PAUSE_MAX_MS);
    assert_int_equal(pace_pause_ms(1, 1000000, 1000), PACE_PAUSE_MAX_MS);
    assert_int_equal(pace_rate(-1, 1000), 0);
    assert_int_equal(pace_rate(1, 0), 0);
    assert_int_equal(pace_rate(0, 1000), PACE_RATE_MIN);
    assert_int_equal(pace_rate(500, 1000), PACE_RATE_MIN);
    assert_int_equal(pace_rate(20000, 2000), PACE_AHEAD * 10000);
    struct pace wide = { .limit = 1000 };
    assert_int_equal(pace_limit(&wide, 0), 1000);
    assert_int_equal(pace_limit(&wide, PACE_RATE_MIN), PACE_RATE_MIN / PACE_BATCHES);
    assert_int_equal(pace_limit(&wide, 100000), 1000);
    assert_int_equal(pace_round_ms(0), 200);
    assert_int_equal(pace_round_ms(20 * 1000), 1000);
    assert_int_equal(pace_round_ms(30 * DAY_MS), 60 * 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_whole_after_a_torn_one_and_after_an_undo),
        cmocka_unit_test(test_many_lines_are_written_as_they_come),
        cmocka_unit_test(test_a_day_that_is_over_gets_a_manifest_and_is_closed),
        cmocka_unit_test(test_a_file_of_nothing_and_one_that_is_torn_get_their_manifests),
        cmocka_unit_test(test_what_is_no_archive_gets_no_manifest),
        cmocka_unit_test(test_the_pace_follows_how_long_a_batch_takes),
        cmocka_unit_test(test_a_file_is_written_by_one_process_and_read_by_none_that_stops),
    };
    return cmocka_run_group_tests(tests, setup, NULL) ? 1 : 0;
}
