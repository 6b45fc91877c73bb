/* Goal: times of the command line mean one point in time, or are refused; CSV is read as it was
 * written. Method: tables; the zone Europe/Berlin with both of its changes of the clocks. */
#include "ctl/csv.h"
#include "ctl/zone.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

#define NOW_MS INT64_C(1793440800000) /* 2026-10-31T10:00:00Z, 11:00 in Berlin */

static void test_times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms; /* -1: refused */
    } cases[] = {
        { "2026-10-31T10:00:00Z", NOW_MS },
        { "2026-10-31T12:00:00.500+02:00", NOW_MS + 500 },
        { "+2h", NOW_MS + 7200000 },
        { "-1d", NOW_MS - 86400000 },
        { "2026-10-31 11:00", NOW_MS },
        { "2026-10-31T11:00:01", NOW_MS + 1000 },
        { "2026-10-31", NOW_MS - 11 * 3600000 },
        { "10:59", NOW_MS - 60000 },
        { "11:01", NOW_MS + 60000 - 86400000 }, /* yesterday's */
        { "2026-07-01 00:00", INT64_C(1782856800000) },
        { "2026-03-29 02:30", -1 }, /* the clocks went past it */
        { "2026-10-25 02:30", -1 }, /* they showed it twice */
        { "2026-10-25T02:30:00+02:00", INT64_C(1792888200000) },
        { "2026-02-30", -1 },
        { "2026-10-31 24:00", -1 },
        { "soon", -1 },
        { "", -1 },
        { "2h", -1 },
    };
    struct err err;
    if (ctl_zone_set("Europe/Berlin", &err) != 0)
        skip(); /* no zones on this machine */
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t ms = -1;
        int rc = ctl_zone_time("from", cases[i].text, NOW_MS, &ms, &err);
        if (rc != (cases[i].ms < 0 ? ERR_INVALID : 0) || ms != cases[i].ms)
            fail_msg("%s: %lld, not %lld", cases[i].text, (long long)ms, (long long)cases[i].ms);
    }
    /* On the first of a month, too. */
    int64_t ms;
    ASSERT_OK(ctl_zone_time("from", "23:00", INT64_C(1793487600000), &ms, &err), &err);
    assert_int_equal(ms, INT64_C(1793484000000));
    assert_int_equal(ctl_zone_set("Europe/Nowhere", &err), ERR_INVALID);
    assert_int_equal(ctl_zone_set("../../etc/passwd", &err), ERR_INVALID);
}

static FILE *file_of(const char *text)
{
    FILE *file = fmemopen((char *)(uintptr_t)text, strlen(text), "r");
    assert_non_null(file);
    return file;
}

static void test_csv_there_and_back(void **state)
{
    (void)state;
    static const char *const fields[] = {
        "plain", "", "a,b", "a \"quote\"", "two\nlines", "\r", " "
    };
    struct buf text = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        csv_field(&text, i == 0, fields[i], strlen(fields[i]));
    buf_text(&text, "\n\n\r\nlast");
    struct csv_reader reader = { .file = file_of(buf_cstr(&text)) };
    struct err err;
    bool more;
    ASSERT_OK(csv_read(&reader, &more, &err), &err);
    assert_true(more);
    assert_int_equal(reader.line, 1);
    assert_int_equal(reader.count, ARRAY_LEN(fields));
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        assert_string_equal(csv_text(&reader, i), fields[i]);
    assert_string_equal(csv_text(&reader, 99), "");
    ASSERT_OK(csv_read(&reader, &more, &err), &err);
    assert_int_equal(reader.line, 5); /* one record took two lines, two are empty */
    assert_string_equal(csv_text(&reader, 0), "last");
    ASSERT_OK(csv_read(&reader, &more, &err), &err);
    assert_false(more);
    csv_reader_done(&reader);
    assert_int_equal(fclose(reader.file), 0);
    buf_done(&text);
}

static void test_csv_that_is_none(void **state)
{
    (void)state;
    static const char *const texts[] = { "a\"b,c\nnext\n", "\"a\"b\nnext\n", "a\rb\nnext\n" };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct csv_reader reader = { .file = file_of(texts[i]) };
        struct err err;
        bool more;
        assert_int_equal(csv_read(&reader, &more, &err), ERR_INVALID);
        assert_int_equal(reader.line, 1);
        ASSERT_OK(csv_read(&reader, &more, &err), &err); /* it goes on behind it */
        assert_string_equal(csv_text(&reader, 0), "next");
        assert_int_equal(reader.line, 2);
        csv_reader_done(&reader);
        assert_int_equal(fclose(reader.file), 0);
    }
    struct csv_reader reader = { .file = file_of("\"never closed") };
    struct err err;
    bool more;
    assert_int_equal(csv_read(&reader, &more, &err), ERR_INVALID);
    csv_reader_done(&reader);
    assert_int_equal(fclose(reader.file), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_csv_there_and_back),
        cmocka_unit_test(test_csv_that_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
