/* Goal: what is known of a partition has one meaning, and no record is handled twice, left out, or
 * taken for another. Method: a table of situations; a sweep of all small ones against rules written
 * down once more, in words of offsets alone. */
#include "kafka/partition.h"
#include "support/check.h"

#define NONE PARTITION_UNKNOWN
#define MARK(o)                                                                                    \
    {                                                                                              \
        .known = true, .offset = (o), .time_ms = 1000, .crc = 7                                    \
    }

static void test_what_follows_for_a_partition(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        struct partition_facts facts;
        struct partition_verdict verdict;
    } rows[] = {
        /* clang-format off */
        { "nothing handled yet, the group has nothing",
          { .next_offset = 5, .low = 0, .end = 9, .group_offset = NONE },
          { .begin = 5, .follow = true } },
        { "the record before is compared",
          { .next_offset = 5, .before = MARK(4), .low = 0, .end = 9, .group_offset = 5, .group_is_ours = true },
          { .begin = 4, .verify = true } },
        { "it is further back: marks of transactions lie between",
          { .next_offset = 7, .before = MARK(4), .low = 0, .end = 9, .group_offset = 5, .group_is_ours = true },
          { .begin = 4, .verify = true } },
        { "it is trimmed, and nothing is missing",
          { .next_offset = 5, .before = MARK(4), .low = 5, .end = 9, .group_offset = 5, .group_is_ours = true },
          { .begin = 5 } },
        { "records are missing",
          { .next_offset = 5, .before = MARK(4), .low = 8, .end = 9, .group_offset = 5, .group_is_ours = true },
          { .stop = PARTITION_GAP, .from = 5, .to = 7 } },
        { "an empty log that begins behind the cursor",
          { .next_offset = 5, .low = 8, .end = 8, .group_offset = NONE },
          { .stop = PARTITION_GAP, .from = 5, .to = 7 } },
        { "the log is shorter than what was handled",
          { .next_offset = 5, .before = MARK(4), .low = 0, .end = 3, .group_offset = 5, .group_is_ours = true },
          { .stop = PARTITION_BEYOND_END, .from = 3, .to = 5 } },
        { "at the end there is nothing, and nothing is wrong",
          { .next_offset = 5, .low = 5, .end = 5, .group_offset = 5, .group_is_ours = true },
          { .begin = 5 } },
        { "our own offset lags behind: a crash came between",
          { .next_offset = 5, .low = 0, .end = 9, .group_offset = 2, .group_is_ours = true },
          { .begin = 5 } },
        { "our own offset is ahead: the database was restored to an earlier point",
          { .next_offset = 5, .low = 0, .end = 9, .group_offset = 8, .group_is_ours = true },
          { .begin = 5 } },
        { "another program has moved the group on",
          { .next_offset = 5, .low = 0, .end = 9, .group_offset = 8 },
          { .stop = PARTITION_FOREIGN_OFFSET, .from = 5, .to = 8 } },
        { "or back",
          { .next_offset = 5, .low = 0, .end = 9, .group_offset = 0 },
          { .stop = PARTITION_FOREIGN_OFFSET, .from = 5, .to = 0 } },
        { "another program's offset is where the cursor is: it becomes ours",
          { .next_offset = 5, .low = 0, .end = 9, .group_offset = 5 },
          { .begin = 5, .follow = true } },
        { "what is missing counts before what the group says",
          { .next_offset = 5, .low = 8, .end = 9, .group_offset = 9 },
          { .stop = PARTITION_GAP, .from = 5, .to = 7 } },
    }; /* clang-format on */
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct partition_verdict verdict;
        partition_judge(&rows[i].facts, &verdict);
        print_message("%s\n", rows[i].what);
        assert_int_equal(verdict.stop, rows[i].verdict.stop);
        assert_int_equal(verdict.from, rows[i].verdict.from);
        assert_int_equal(verdict.to, rows[i].verdict.to);
        assert_int_equal(verdict.begin, rows[i].verdict.begin);
        assert_int_equal(verdict.verify, rows[i].verdict.verify);
        assert_int_equal(verdict.follow, rows[i].verdict.follow);
    }
}

enum { SMALL = 5 };

static void judge_check(const struct partition_facts *facts)
{
    struct partition_verdict verdict;
    partition_judge(facts, &verdict);
    bool complete = facts->low <= facts->next_offset && facts->next_offset <= facts->end;
    if (verdict.stop != PARTITION_RUNS) {
        char text[256];
        assert_true(!complete || (!facts->group_is_ours && facts->group_offset != NONE &&
                                  facts->group_offset != facts->next_offset));
        partition_stop_text(verdict.stop, verdict.from, verdict.to, text, sizeof text);
        assert_true(strlen(text) > 20);
        assert_true(strlen(partition_stop_word(verdict.stop)) > 0);
        return;
    }
    assert_true(complete);
    assert_true(verdict.begin >= facts->low && verdict.begin <= facts->next_offset);
    assert_int_equal(verdict.begin < facts->next_offset, verdict.verify);
    assert_int_equal(verdict.follow, !facts->group_is_ours || facts->group_offset == NONE);
}

static void test_every_small_situation(void **state)
{
    (void)state;
    for (int64_t low = 0; low < SMALL; low++)
        for (int64_t end = low; end < SMALL; end++)
            for (int64_t next = 0; next <= SMALL; next++)
                for (int64_t before = NONE; before < next; before++)
                    for (int64_t group = NONE; group <= SMALL; group++)
                        for (int ours = 0; ours < 2; ours++) {
                            struct partition_facts facts = { .next_offset = next,
                                                             .low = low,
                                                             .end = end,
                                                             .group_offset = group,
                                                             .group_is_ours = ours };
                            facts.before = (struct partition_mark){ .known = before != NONE,
                                                                    .offset = before };
                            judge_check(&facts);
                        }
}

static struct partition_reader reader_at(int64_t next, bool verify, bool may_compact)
{
    struct partition_reader reader = {
        .next_offset = next,
        .taken = next,
        .before = MARK(next - 1),
        .verify = verify,
        .may_compact = may_compact,
    };
    return reader;
}

static void test_the_record_before_the_cursor(void **state)
{
    (void)state;
    struct partition_reader reader = reader_at(5, true, false);
    assert_int_equal(partition_take(&reader, 4, 1000, 7), PARTITION_PASS);
    assert_int_equal(partition_take(&reader, 5, 1, 1), PARTITION_HANDLE);
    assert_int_equal(partition_take(&reader, 5, 1, 1), PARTITION_PASS); /* again, after a rewind */
    assert_int_equal(partition_take(&reader, 9, 1, 1), PARTITION_HANDLE);
    assert_int_equal(reader.taken, 10);
    assert_int_equal(reader.next_offset, 5); /* moved by a commit alone */

    reader = reader_at(5, true, false);
    assert_int_equal(partition_take(&reader, 4, 1001, 7), PARTITION_ANOTHER);
    reader = reader_at(5, true, false);
    assert_int_equal(partition_take(&reader, 4, 1000, 8), PARTITION_ANOTHER);
    reader = reader_at(5, true, true); /* compaction never changes a record */
    assert_int_equal(partition_take(&reader, 4, 1000, 8), PARTITION_ANOTHER);

    /* It does not come: only compaction takes single records away. */
    reader = reader_at(5, true, false);
    assert_int_equal(partition_take(&reader, 5, 1, 1), PARTITION_ANOTHER);
    reader = reader_at(5, true, true);
    assert_int_equal(partition_take(&reader, 6, 1, 1), PARTITION_HANDLE);
    reader = reader_at(5, true, false);
    assert_int_equal(partition_end(&reader, 5), PARTITION_ANOTHER);
    reader = reader_at(5, true, true);
    assert_int_equal(partition_end(&reader, 5), PARTITION_PASS);
    assert_int_equal(partition_take(&reader, 5, 1, 1), PARTITION_HANDLE);
}

static void test_the_end_of_a_log(void **state)
{
    (void)state;
    struct partition_reader reader = reader_at(5, false, false);
    assert_int_equal(partition_end(&reader, 5), PARTITION_PASS);
    assert_int_equal(partition_end(&reader, 7), PARTITION_HANDLE); /* marks alone */
    assert_int_equal(partition_take(&reader, 8, 1, 1), PARTITION_HANDLE);
    assert_int_equal(partition_end(&reader, 9), PARTITION_PASS);
    reader = reader_at(5, true, false);
    assert_int_equal(partition_end(&reader, 4), PARTITION_PASS); /* before what is compared */
    assert_int_equal(partition_take(&reader, 4, 1000, 7), PARTITION_PASS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_follows_for_a_partition),
        cmocka_unit_test(test_every_small_situation),
        cmocka_unit_test(test_the_record_before_the_cursor),
        cmocka_unit_test(test_the_end_of_a_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
