#include "ctl/kafka_text.h"

#include "wire/times.h"

#include <inttypes.h>
#include <string.h>

/* A node says every second what it sees; over: nobody has the partition. */
enum { SEEN_MS_MAX = 10 * 1000 };

#define STOPPED SAGA__V1__KAFKA_PARTITION__STATE__STATE_STOPPED

static bool is_unseen(const Google__Protobuf__Timestamp *seen, const struct where_view *view)
{
    return !seen || view->now_ms - screen_time_ms(seen) > SEEN_MS_MAX;
}

static void write_age(const Google__Protobuf__Timestamp *time, const struct where_view *view,
                      struct buf *out)
{
    screen_span(out, view->now_ms - screen_time_ms(time));
    buf_text(out, " ago");
}

void kafka_write_stop(const Saga__V1__KafkaPartition *partition, struct buf *out)
{
    screen_text(out, partition->stop_reason);
    if (partition->stop_from_offset || partition->stop_to_offset)
        buf_printf(out, " %" PRId64 "..%" PRId64, partition->stop_from_offset,
                   partition->stop_to_offset);
    if (*partition->stop_message) {
        buf_text(out, ": ");
        screen_text(out, partition->stop_message);
    }
}

/* --- one rule ------------------------------------------------------------------------------------
 */

struct standing {
    const char *word;
    enum screen_style style;
};

static struct standing partition_standing(const Saga__V1__KafkaRule *rule,
                                          const Saga__V1__KafkaPartition *partition,
                                          const struct where_view *view)
{
    if (partition->state == STOPPED)
        return (struct standing){ "STOPPED", STYLE_BAD };
    if (rule->stop || *rule->problem)
        return (struct standing){ "not read", STYLE_BUSY };
    if (is_unseen(partition->seen_time, view))
        return (struct standing){ "UNSEEN", STYLE_BAD };
    if (*partition->paused_why)
        return (struct standing){ "paused", STYLE_BUSY };
    return (struct standing){ "running", STYLE_GOOD };
}

static struct standing rule_standing(const Saga__V1__KafkaRule *rule, const struct where_view *view)
{
    if (*rule->problem)
        return (struct standing){ "CANNOT RUN", STYLE_BAD };
    if (rule->stop)
        return (struct standing){ "stopped", STYLE_BUSY };
    if (is_unseen(rule->seen_time, view))
        return (struct standing){ "UNSEEN", STYLE_BAD };
    if (rule->stopped_partitions)
        return (struct standing){ "IN PART", STYLE_BAD };
    return (struct standing){ "running", STYLE_GOOD };
}

/* Why it stands so, in full. */
static void write_standing(const Saga__V1__KafkaRule *rule, const struct where_view *view,
                           struct buf *out)
{
    if (*rule->problem) {
        screen_text(out, rule->problem);
    } else if (rule->stop) {
        buf_text(out, "by ");
        screen_text(out, *rule->stop->actor ? rule->stop->actor : "?");
        if (rule->stop->time) {
            buf_text(out, ", ");
            write_age(rule->stop->time, view, out);
        }
        buf_text(out, ": ");
        screen_text(out, rule->stop->reason);
    } else if (is_unseen(rule->seen_time, view)) {
        buf_text(out, "no node serves it now; ");
        screen_text(out, *rule->node ? rule->node : "none");
        buf_text(out, " did");
        if (rule->seen_time) {
            buf_text(out, " ");
            write_age(rule->seen_time, view, out);
        }
    } else {
        buf_text(out, "at ");
        screen_text(out, rule->node);
        if (rule->stopped_partitions)
            buf_printf(out, ", but for %d partition%s", rule->stopped_partitions,
                       rule->stopped_partitions == 1 ? "" : "s");
    }
}

/* "for ever"; 0: "for an unknown time" */
static void write_kept(const Google__Protobuf__Duration *span, struct buf *out)
{
    if (!span) {
        buf_text(out, "for ever");
        return;
    }
    int64_t ms = duration_to_ms(span);
    if (ms > 0)
        screen_span(out, ms);
    else
        buf_text(out, "for an unknown time");
}

static void write_head(const Saga__V1__KafkaRule *rule, const struct where_view *view,
                       struct buf *out)
{
    const Saga__V1__KafkaCounters *counted = rule->counters;
    struct standing standing = rule_standing(rule, view);
    screen_styled(out, rule->name, STYLE_BOLD, view->color);
    buf_text(out, ": ");
    screen_styled(out, standing.word, standing.style, view->color);
    buf_text(out, " ");
    write_standing(rule, view, out);
    buf_text(out, "\n  topic ");
    screen_text(out, rule->topic);
    buf_text(out, " starts ");
    if (strcmp(rule->namespace_, "default") != 0) {
        screen_text(out, rule->namespace_);
        buf_text(out, "/");
    }
    screen_text(out, rule->definition);
    buf_text(out, ", group ");
    screen_text(out, rule->group);
    buf_text(out, "\n  the broker keeps records ");
    write_kept(rule->topic_retention, out);
    buf_printf(out, "%s, keys are remembered ", rule->topic_compacted ? " (compacted)" : "");
    write_kept(rule->key_memory, out);
    buf_printf(out, "\n  %" PRId64 " records behind, %" PRId64 " a second\n", rule->lag,
               rule->rate_per_s);
    if (counted)
        buf_printf(out,
                   "  %" PRId64 " records: %" PRId64 " started, %" PRId64 " duplicates, %" PRId64
                   " mismatches, %" PRId64 " dead letters, %" PRId64 " filtered, %" PRId64
                   " tombstones\n",
                   counted->records, counted->started, counted->duplicates, counted->mismatches,
                   counted->dead_letters, counted->filtered, counted->tombstones);
}

static void add_offset(struct table *table, int64_t offset)
{
    if (offset < 0)
        table_cell(table, "-", STYLE_PLAIN);
    else
        table_cellf(table, "%" PRId64, offset);
}

static void write_why(const Saga__V1__KafkaPartition *partition, const struct where_view *view,
                      struct buf *out)
{
    if (partition->state == STOPPED) {
        kafka_write_stop(partition, out);
        if (partition->stop_time) {
            buf_text(out, " (");
            write_age(partition->stop_time, view, out);
            buf_text(out, ")");
        }
        return;
    }
    screen_text(out, partition->paused_why);
    if (partition->suspect_until > partition->next_offset)
        buf_printf(out, "%ssuspect until %" PRId64, out->size ? "; " : "",
                   partition->suspect_until);
    if (!partition->seen_time) {
        buf_printf(out, "%sno node has looked at it yet", out->size ? "; " : "");
    } else if (is_unseen(partition->seen_time, view)) {
        buf_printf(out, "%sseen ", out->size ? "; " : "");
        write_age(partition->seen_time, view, out);
    }
}

static void add_partition(struct table *table, const Saga__V1__KafkaRule *rule,
                          const Saga__V1__KafkaPartition *partition, const struct where_view *view)
{
    CLEANUP(buf_done) struct buf why = { 0 };
    struct standing standing = partition_standing(rule, partition, view);
    write_why(partition, view, &why);
    if (strcmp(partition->topic, rule->topic) == 0)
        table_cellf(table, "%d", partition->partition);
    else /* the rule had another topic once */
        table_cellf(table, "%s/%d", partition->topic, partition->partition);
    table_cell(table, standing.word, standing.style);
    table_cellf(table, "%" PRId64, partition->next_offset);
    add_offset(table, partition->end_offset);
    add_offset(table, partition->end_offset < 0 ? -1 : partition->lag);
    table_cellf(table, "%" PRId64,
                is_unseen(partition->seen_time, view) ? 0 : partition->rate_per_s);
    table_cell(table, partition->node, STYLE_PLAIN);
    table_cell(table, buf_cstr(&why), STYLE_PLAIN);
}

/* Where a person most likely goes on. */
static const char *likely_from(const char *stop_reason)
{
    static const struct {
        const char *reason, *from;
    } likely[] = {
        { "GAP", "low" },
        { "BEYOND_END", "end" },
        { "TOPIC_RECREATED", "low" },
        { "GROUP_OFFSET_FOREIGN", "cursor" },
    };
    for (size_t i = 0; i < ARRAY_LEN(likely); i++)
        if (strcmp(likely[i].reason, stop_reason) == 0)
            return likely[i].from;
    return "OFFSET|low|end|cursor";
}

static void write_command(const struct where_view *view, const char *verb, struct buf *out)
{
    buf_text(out, "  sagactl");
    if (view->address) {
        buf_text(out, " --address ");
        screen_shell_word(out, view->address);
    }
    buf_printf(out, " %s ", verb);
}

static void write_resume(const Saga__V1__KafkaPartition *partition, const struct where_view *view,
                         struct buf *out)
{
    CLEANUP(buf_done) struct buf name = { 0 };
    buf_printf(&name, "%s/%d", partition->topic, partition->partition);
    write_command(view, "kafka resume", out);
    screen_shell_word(out, buf_cstr(&name));
    buf_text(out, " --rule ");
    screen_shell_word(out, partition->rule);
    buf_printf(out, " --from %s --reason ...\n", likely_from(partition->stop_reason));
}

void kafka_write_rule(const Saga__V1__KafkaRule *rule, const struct where_view *view,
                      struct buf *out)
{
    static const char *const headers[] = { "PARTITION", "STATE",  "CURSOR", "END",
                                           "LAG",       "RATE/S", "NODE",   "WHY" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    write_head(rule, view, out);
    for (size_t i = 0; i < rule->n_partitions; i++)
        add_partition(&table, rule, rule->partitions[i], view);
    if (rule->n_partitions)
        table_write(&table, "  ", view->color, out);
    table_done(&table);
    for (size_t i = 0; i < rule->n_partitions; i++)
        if (rule->partitions[i]->state == STOPPED)
            write_resume(rule->partitions[i], view, out);
    if (rule->stop) {
        write_command(view, "kafka start", out);
        screen_shell_word(out, rule->name);
        buf_text(out, " --reason ...\n");
    }
}

/* --- all of them, in short -----------------------------------------------------------------------
 */

void kafka_write_rules(Saga__V1__KafkaRule *const *rules, size_t count,
                       const struct where_view *view, struct buf *out)
{
    static const char *const headers[] = { "KAFKA RULE", "TOPIC", "STATE", "BEHIND",
                                           "RATE/S",     "DEAD",  "WHY" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    for (size_t i = 0; i < count; i++) {
        const Saga__V1__KafkaRule *rule = rules[i];
        CLEANUP(buf_done) struct buf why = { 0 };
        struct standing standing = rule_standing(rule, view);
        write_standing(rule, view, &why);
        table_cell(&table, rule->name, STYLE_BOLD);
        table_cell(&table, rule->topic, STYLE_PLAIN);
        table_cell(&table, standing.word, standing.style);
        table_cellf(&table, "%" PRId64, rule->lag);
        table_cellf(&table, "%" PRId64, rule->rate_per_s);
        table_cellf(&table, "%" PRId64, rule->counters ? rule->counters->dead_letters : 0);
        table_cell(&table, buf_cstr(&why), STYLE_PLAIN);
    }
    if (count)
        table_write(&table, "", view->color, out);
    table_done(&table);
}

static void write_behind_partition(const Saga__V1__KafkaRule *rule,
                                   const Saga__V1__KafkaPartition *partition,
                                   const struct where_view *view, struct buf *out)
{
    CLEANUP(buf_done) struct buf why = { 0 };
    struct standing standing = partition_standing(rule, partition, view);
    bool is_seen = partition->end_offset >= 0;
    write_why(partition, view, &why);
    buf_text(out, "  ");
    if (is_seen)
        buf_printf(out, "%" PRId64 " records behind on ", partition->lag);
    screen_text(out, partition->topic);
    buf_printf(out, "/%d, ", partition->partition);
    screen_styled(out, standing.word, standing.style, view->color);
    if (why.size)
        buf_printf(out, ": %s", buf_cstr(&why));
    buf_text(out, "\n");
}

void kafka_write_behind(const Saga__V1__KafkaRule *rule, const struct where_view *view,
                        struct buf *out)
{
    struct standing standing = rule_standing(rule, view);
    bool runs = standing.style == STYLE_GOOD;
    bool is_behind = rule->lag > 0 || !runs;
    for (size_t i = 0; !is_behind && i < rule->n_partitions; i++)
        is_behind = partition_standing(rule, rule->partitions[i], view).style != STYLE_GOOD;
    if (!is_behind)
        return;
    buf_text(out, "rule ");
    screen_styled(out, rule->name, STYLE_BOLD, view->color);
    buf_text(out, " may yet bring it: ");
    screen_styled(out, standing.word, standing.style, view->color);
    buf_text(out, " ");
    write_standing(rule, view, out);
    buf_text(out, "\n");
    for (size_t i = 0; i < rule->n_partitions; i++) {
        const Saga__V1__KafkaPartition *partition = rule->partitions[i];
        if (partition->lag > 0 || partition_standing(rule, partition, view).style != STYLE_GOOD)
            write_behind_partition(rule, partition, view, out);
    }
}

/* --- what a request answered ---------------------------------------------------------------------
 */

void kafka_write_check(const Saga__V1__KafkaRequest *request, const struct where_view *view,
                       struct buf *out)
{
    static const char *const headers[] = { "BAD", "REASON", "THE FIRST ONE", "WHAT IS WRONG" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    const Saga__V1__KafkaCheckResult *check = request->check;
    int64_t bad = 0;
    for (size_t i = 0; i < check->n_bad; i++) {
        const Saga__V1__KafkaCheckResult__Bad *one = check->bad[i];
        bad += one->count;
        table_cellf(&table, "%" PRId64, one->count);
        table_cell(&table, one->reason, STYLE_BAD);
        table_cellf(&table, "partition %d, offset %" PRId64, one->partition, one->offset);
        table_cell(&table, one->message, STYLE_PLAIN);
    }
    screen_styled(out, request->rule, STYLE_BOLD, view->color);
    buf_printf(out,
               ": %" PRId64 " records: %" PRId64 " good, %" PRId64 " bad, %" PRId64
               " filtered, %" PRId64 " not of the canary, %" PRId64 " tombstones\n",
               check->records, check->good, bad, check->filtered, check->not_canary,
               check->tombstones);
    buf_printf(out,
               "  of the good ones %" PRId64 " have a key that came before among them, and %" PRId64
               " one that has a saga: these start nothing\n",
               check->duplicates, check->known);
    buf_printf(out, "  %" PRId64 " have no business key\n", check->missing_keys);
    if (check->n_bad)
        table_write(&table, "", view->color, out);
    table_done(&table);
}

void kafka_write_take_over(const Saga__V1__KafkaRequest *request, const struct where_view *view,
                           struct buf *out)
{
    static const char *const headers[] = { "PARTITION", "BEGINS AT", "SUSPECT BEFORE", "RECORDS" };
    struct table table = { .headers = headers, .columns = ARRAY_LEN(headers) };
    const Saga__V1__KafkaTakeOverResult *result = request->take_over;
    for (size_t i = 0; i < result->n_partitions; i++) {
        const Saga__V1__KafkaTakeOverResult__Partition *one = result->partitions[i];
        int64_t suspect = one->suspect_until - one->next_offset;
        table_cellf(&table, "%d", one->partition);
        table_cellf(&table, "%" PRId64, one->next_offset);
        table_cellf(&table, "%" PRId64, one->suspect_until);
        table_cellf(&table, "%" PRId64, suspect > 0 ? suspect : 0);
    }
    screen_styled(out, request->rule, STYLE_BOLD, view->color);
    buf_text(out, " has taken over and runs. Records before SUSPECT BEFORE may be half done by the "
                  "group: they start SUSPECT\n");
    if (result->n_partitions)
        table_write(&table, "", view->color, out);
    table_done(&table);
}

void kafka_write_request(const Saga__V1__KafkaRequest *request, struct buf *out)
{
    screen_text(out, request->arguments);
    if (request->state == SAGA__V1__KAFKA_REQUEST__STATE__STATE_FAILED) {
        buf_text(out, " ");
        screen_text(out, request->error);
    } else if (request->state == SAGA__V1__KAFKA_REQUEST__STATE__STATE_TAKEN) {
        buf_printf(out, " %" PRId64 " of %" PRId64 " at ", request->progress, request->total);
        screen_text(out, request->node);
    } else if (request->result_case == SAGA__V1__KAFKA_REQUEST__RESULT_CHECK) {
        buf_printf(out, " %" PRId64 " of %" PRId64 " records are good", request->check->good,
                   request->check->records);
    } else if (request->result_case == SAGA__V1__KAFKA_REQUEST__RESULT_TAKE_OVER) {
        buf_printf(out, " %zu partitions", request->take_over->n_partitions);
    } else if (request->result_case == SAGA__V1__KAFKA_REQUEST__RESULT_RESUME) {
        buf_printf(out, " from %" PRId64, request->resume->next_offset);
    } else if (request->result_case == SAGA__V1__KAFKA_REQUEST__RESULT_LETTERS) {
        buf_printf(out, " %" PRId64 " letters", request->letters->letters);
    }
}
