/* Goal: every setting is read from every source, the later source wins, and a mistake stops the
 * start with where, which, why and what is allowed. Method: sweeps over the table, files written to
 * a temporary folder, lists of good and bad values. */
#include "support/check.h"

#include "app/address.h"
#include "app/config.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A value that is allowed for an option and is not its default. */
static const char *other_value(const struct config_option *option)
{
    switch (option->type) {
    case CONFIG_TYPE_BOOL:
        return "true";
    case CONFIG_TYPE_INTEGER:
        return "300";
    case CONFIG_TYPE_DURATION:
        return "1.5s";
    case CONFIG_TYPE_MEMORY:
        return "forever";
    case CONFIG_TYPE_BROKERS:
        return "a:9092, [::1]:9093,c";
    case CONFIG_TYPE_LOG_LEVEL:
        return "error";
    case CONFIG_TYPE_ADDRESSES:
        return "[::1]:0";
    default:
        return "/text";
    }
}

static const char *allowed_value(const struct config_option *option)
{
    if (option->type == CONFIG_TYPE_INTEGER && (option->max < 300 || option->min > 300))
        return option->max < 300 ? "3" : "300000";
    return other_value(option);
}

static void write_file(char path[64], const char *content, size_t size)
{
    (void)snprintf(path, 64, "/tmp/sagad-test-config-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, size), (ssize_t)size);
    assert_int_equal(close(fd), 0);
}

/* What config_read_file says of this content; NULL: nothing is wrong. Borrowed until the next call.
 */
static const char *read_content(const char *content, struct config *config, struct err *err)
{
    char path[64];
    write_file(path, content, strlen(content));
    int rc = config_read_file(config, path, err);
    assert_int_equal(unlink(path), 0);
    return rc == 0 ? NULL : err->msg;
}

static void test_table_is_complete_and_its_defaults_are_allowed(void **state)
{
    (void)state;
    struct err err;
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const struct config_option *option = &config_options[i];
        struct config config = { .command = option->commands };
        assert_non_null(option->name);
        assert_true(option->env && strncmp(option->env, "SAGAD_", 6) == 0);
        assert_non_null(option->help);
        assert_int_equal(config_find(option->name, option->commands), i);
        ASSERT_OK(
            config_set(&config, (enum config_id)i, CONFIG_FROM_FLAG, option->default_text, &err),
            &err);
        config_done(&config);
    }
}

static void test_each_later_source_wins(void **state)
{
    (void)state;
    struct err err;
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const struct config_option *option = &config_options[i];
        struct config config = { .command = option->commands };
        const char *value = allowed_value(option);
        char content[256];
        assert_string_equal(config_text(&config, (enum config_id)i), option->default_text);
        (void)snprintf(content, sizeof content, "# a comment\n\n%s = %s\n", option->name, value);
        assert_null(read_content(content, &config, &err));
        assert_string_equal(config_text(&config, (enum config_id)i), value);
        assert_int_equal(config.sources[i], CONFIG_FROM_FILE);
        assert_int_equal(setenv(option->env, value, 1), 0);
        ASSERT_OK(config_read_env(&config, &err), &err);
        assert_int_equal(config.sources[i], CONFIG_FROM_ENV);
        assert_int_equal(unsetenv(option->env), 0);
        ASSERT_OK(config_set(&config, (enum config_id)i, CONFIG_FROM_FLAG, value, &err), &err);
        assert_string_equal(config_text(&config, (enum config_id)i), value);
        assert_int_equal(config.sources[i], CONFIG_FROM_FLAG);
        config_done(&config);
    }
}

static void test_mistakes_in_a_file_stop_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *content, *line, *part;
    } rows[] = {
        { "grace = 5\n\nlistn = x\n", "line 3", "unknown key \"listn\"" },
        { "grace = soon\n", "line 1", "grace: must be a time such as 10" },
        { "grace = -1\n", "line 1", "not \"-1\"" },
        { "# x\ngrace = 2h\n", "line 2", "0 to 3600 seconds, not 7200000 ms" },
        { "grace = 1\ngrace = 2\n", "line 2", "given twice" },
        { "rpc-threads = 65\n", "line 1", "from 1 to 64, not \"65\"" },
        { "payload-bytes-max = 262143\n", "line 1", "from 262144 to 1048576, not \"262143\"" },
        { "payload-bytes-max = 1048577\n", "line 1", "from 262144 to 1048576" },
        { "rpc-threads = 2 threads\n", "line 1", "from 1 to 64" },
        { "unsafe = maybe\n", "line 1", "true or false, not \"maybe\"" },
        { "log-level = loud\n", "line 1", "debug, info, warn or error" },
        { "listen = 127.0.0.1\n", "line 1", "is no address" },
        { "listen = 127.0.0.1:1, 127.0.0.1:70000\n", "line 1", "0 to 65535" },
        { "grace = 1\n[server]\ngrace = 1\n", "line 2",
          "a section is [kafka NAME], not \"[server]\"" },
        { "grace\n", "line 1", "key = value" },
        { "node = a\001b\n", "line 1", "control characters" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct config config = { .command = CONFIG_FOR_SERVE };
        struct err err;
        const char *msg = read_content(rows[i].content, &config, &err);
        if (!msg || !strstr(msg, rows[i].line) || !strstr(msg, rows[i].part))
            fail_msg("row %zu: \"%s\" lacks \"%s\" or \"%s\"", i, msg ? msg : "(nothing)",
                     rows[i].line, rows[i].part);
        config_done(&config);
    }
}

static void test_a_line_too_long_is_refused_not_cut(void **state)
{
    (void)state;
    struct config config = { .command = CONFIG_FOR_SERVE };
    struct err err;
    char content[16384];
    memset(content, 'x', sizeof content);
    memcpy(content, "grace = 1\ndatabase = ", 21);
    content[sizeof content - 2] = '\n';
    content[sizeof content - 1] = '\0';
    const char *msg = read_content(content, &config, &err);
    assert_non_null(msg);
    assert_non_null(strstr(msg, "line 2: the line is too long"));
    config_done(&config);
    assert_int_equal(config_read_file(&config, "/nonexistent/sagad.ini", &err), ERR_INVALID);
    assert_non_null(strstr(err.msg, "/nonexistent/sagad.ini"));
}

/* The last line may lack its end; a NUL byte anywhere is refused, as what is behind it would be
 * lost.
 */
static void test_a_nul_byte_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *content;
        size_t size;
        const char *fault; /* NULL: none */
    } rows[] = {
        { "grace = 1\nnode = a", 18, NULL },
        { "grace = 1\nnode = a\n", 19, NULL },
        { "grace = 1\nnode = a\0b\n", 21, "line 2: the line holds a NUL byte" },
        { "grace = 1\nnode = a\0b", 20, "line 2: the line holds a NUL byte" },
        { "\0grace = 1\nnode = a", 19, "line 1: the line holds a NUL byte" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct config config = { .command = CONFIG_FOR_SERVE };
        struct err err;
        char path[64];
        write_file(path, rows[i].content, rows[i].size);
        int rc = config_read_file(&config, path, &err);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rc, rows[i].fault ? ERR_INVALID : 0);
        if (rows[i].fault)
            assert_non_null(strstr(err.msg, rows[i].fault));
        else
            assert_string_equal(config_text(&config, CONFIG_NODE), "a");
        config_done(&config);
    }
}

static void test_one_file_serves_both_commands(void **state)
{
    (void)state;
    struct err err;
    struct config dev = { .command = CONFIG_FOR_DEV };
    assert_null(read_content("database = host=db\ngrace = 3\ndata = /d\n", &dev, &err));
    assert_int_equal(config_number(&dev, CONFIG_GRACE), 3000);
    assert_null(dev.texts[CONFIG_DATABASE]);
    config_done(&dev);
    struct config serve = { .command = CONFIG_FOR_SERVE };
    assert_null(read_content("data = /d\ndatabase = host=db\n", &serve, &err));
    assert_string_equal(config_text(&serve, CONFIG_DATABASE), "host=db");
    config_done(&serve);
}

static void test_bad_environment_is_named(void **state)
{
    (void)state;
    struct config config = { .command = CONFIG_FOR_SERVE };
    struct err err;
    assert_int_equal(setenv("SAGAD_GRACE", "later", 1), 0);
    assert_int_equal(config_read_env(&config, &err), ERR_INVALID);
    assert_int_equal(unsetenv("SAGAD_GRACE"), 0);
    assert_non_null(strstr(err.msg, "SAGAD_GRACE"));
    config_done(&config);
}

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms; /* -1: refused */
    } rows[] = {
        { "0", 0 },       { "10", 10000 },     { "10s", 10000 }, { "0.5", 500 },
        { "500ms", 500 }, { "1.25s", 1250 },   { "2m", 120000 }, { "1h", 3600000 },
        { "0.001", 1 },   { "", -1 },          { "s", -1 },      { "1.", -1 },
        { ".5", -1 },     { "1.0005", -1 },    { "1 s", -1 },    { "1d", -1 },
        { "1s ", -1 },    { "0.01d", 864000 }, { "day", -1 },    { "0x10", -1 },
        { "1h1m", -1 },   { "61m", -1 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct config config = { .command = CONFIG_FOR_SERVE };
        struct err err;
        int rc = config_set(&config, CONFIG_GRACE, CONFIG_FROM_FLAG, rows[i].text, &err);
        assert_int_equal(rc, rows[i].ms < 0 ? ERR_INVALID : 0);
        if (rows[i].ms >= 0)
            assert_int_equal(config_number(&config, CONFIG_GRACE), rows[i].ms);
        config_done(&config);
    }
}

static void test_addresses_gather_within_a_source(void **state)
{
    (void)state;
    struct config config = { .command = CONFIG_FOR_SERVE };
    struct err err;
    const char **items;
    size_t count;
    ASSERT_OK(config_set(&config, CONFIG_LISTEN, CONFIG_FROM_FILE, "127.0.0.1:9", &err), &err);
    ASSERT_OK(config_set(&config, CONFIG_LISTEN, CONFIG_FROM_FLAG, "127.0.0.1:1 , [::1]:2", &err),
              &err);
    ASSERT_OK(config_set(&config, CONFIG_LISTEN, CONFIG_FROM_FLAG, "unix:/run/s", &err), &err);
    ASSERT_OK(config_list(&config, CONFIG_LISTEN, &items, &count, &err), &err);
    assert_int_equal(count, 3);
    assert_string_equal(items[0], "127.0.0.1:1");
    assert_string_equal(items[1], "[::1]:2");
    assert_string_equal(items[2], "unix:/run/s");
    mem_free(items);
    config_done(&config);
}

static void test_which_addresses_others_can_reach(void **state)
{
    (void)state;
    struct err err;
    static const struct {
        const char *address;
        bool allowed, local;
    } rows[] = {
        { "127.0.0.1:7233", true, true },
        { "127.9.9.9:0", true, true },
        { "[::1]:7233", true, true },
        { "localhost:1", true, true },
        { "unix:/run/sagad", true, true },
        { "0.0.0.0:7233", true, false },
        { "[::]:7233", true, false },
        { "10.0.0.1:1", true, false },
        { "db.example:1", true, false },
        { "localhost.example:1", true, false },
        { "127.example:1", true, false },
        { "[::ffff:127.0.0.1]:1", true, false },
        { "", false, false },
        { ":1", false, false },
        { "127.0.0.1", false, false },
        { "127.0.0.1:", false, false },
        { "127.0.0.1:x", false, false },
        { "127.0.0.1:99999", false, false },
        { "::1:7233", false, false },
        { "[x]:1", false, false },
        { "unix:relative", false, false },
        { "[]:1", false, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if ((address_check(rows[i].address, &err) == 0) != rows[i].allowed)
            fail_msg("address_check(%s)", rows[i].address);
        if (rows[i].allowed && address_is_local(rows[i].address) != rows[i].local)
            fail_msg("address_is_local(%s)", rows[i].address);
    }
    char text[ADDRESS_SIZE];
    address_with_port("[::1]:0", 4711, text);
    assert_string_equal(text, "[::1]:4711");
    address_with_port("unix:/run/s", 0, text);
    assert_string_equal(text, "unix:/run/s");
}

static void test_printed_settings_can_be_read_back(void **state)
{
    (void)state;
    struct err err;
    struct config config = { .command = CONFIG_FOR_SERVE };
    struct config again = { .command = CONFIG_FOR_SERVE };
    struct buf text = { 0 };
    ASSERT_OK(config_set(&config, CONFIG_DATABASE, CONFIG_FROM_ENV, "password=geheim", &err), &err);
    ASSERT_OK(config_set(&config, CONFIG_GRACE, CONFIG_FROM_FLAG, "2s", &err), &err);
    config_write_values(&config, &text);
    assert_null(strstr(buf_cstr(&text), "geheim"));
    assert_non_null(strstr(buf_cstr(&text), "grace = 2s ; flag\n"));
    assert_non_null(strstr(buf_cstr(&text), "rpc-threads = 2 ; default\n"));
    assert_null(read_content(buf_cstr(&text), &again, &err));
    for (int i = 0; i < CONFIG_COUNT; i++)
        if (!config_options[i].secret && (config_options[i].commands & CONFIG_FOR_SERVE))
            assert_string_equal(config_text(&again, (enum config_id)i),
                                config_text(&config, (enum config_id)i));
    config_done(&config);
    config_done(&again);
    buf_done(&text);
}

/* What a file would read in another way is only told. */
static void test_printed_settings_say_nothing_else_when_read(void **state)
{
    (void)state;
    static const struct {
        const char *node, *line;
        bool is_read;
    } rows[] = {
        { ";semicolon", "node =;semicolon ; flag\n", true },
        { "a;b", "node = a;b ; flag\n", true },
        { "a ;b", "#node = a ;b ; flag\n", false },
        { " spaced", "#node =  spaced ; flag\n", false },
        { "spaced ", "#node = spaced  ; flag\n", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err;
        struct config config = { .command = CONFIG_FOR_SERVE };
        struct config again = { .command = CONFIG_FOR_SERVE };
        struct buf text = { 0 };
        ASSERT_OK(config_set(&config, CONFIG_NODE, CONFIG_FROM_FLAG, rows[i].node, &err), &err);
        config_write_values(&config, &text);
        assert_non_null(strstr(buf_cstr(&text), rows[i].line));
        assert_null(read_content(buf_cstr(&text), &again, &err));
        assert_string_equal(config_text(&again, CONFIG_NODE), rows[i].is_read ? rows[i].node : "");
        config_done(&config);
        config_done(&again);
        buf_done(&text);
    }
}

static void test_example_file_tells_every_setting_and_changes_none(void **state)
{
    (void)state;
    struct err err;
    struct config config = { .command = CONFIG_FOR_SERVE };
    struct buf text = { 0 };
    config_write_example(&text);
    assert_null(read_content(buf_cstr(&text), &config, &err));
    for (int i = 0; i < CONFIG_COUNT; i++) {
        char line[128];
        assert_null(config.texts[i]);
        (void)snprintf(line, sizeof line, "\n#%s = %s\n", config_options[i].name,
                       config_options[i].default_text);
        assert_non_null(strstr(buf_cstr(&text), line));
    }
    for (int i = 0; i < RULE_KEY_COUNT; i++) {
        char line[128];
        (void)snprintf(line, sizeof line, "\n#%s = %s\n", kafka_rule_keys[i].name,
                       kafka_rule_keys[i].example);
        assert_non_null(strstr(buf_cstr(&text), line));
    }
    buf_clear(&text);
    config_write_help(CONFIG_FOR_DEV, &text);
    assert_non_null(strstr(buf_cstr(&text), "--data TEXT"));
    assert_null(strstr(buf_cstr(&text), "--database"));
    config_done(&config);
    buf_done(&text);
}

#define RULE "[kafka r]\ntopic = t\ndefinition = d\nstart = latest\nvalue = json\n"

/* A section ends where the next one begins, or the file; an error stands at the line of its cause,
 * or at that of the section. */
static void test_mistakes_in_a_rule_stop_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *content, *line, *part;
    } rows[] = {
        { "\n[kafka r]\ntopic = t\n", "line 2", "[kafka r]: definition is missing, as in" },
        { "[kafka r]\n[kafka s]\n", "line 1", "[kafka r]: topic is missing" },
        { "[kafka r]\n", "line 1", "[kafka r]: topic is missing" },
        { RULE "[kafka r]\n", "line 6", "[kafka r]: is there twice, first in line 1" },
        { RULE "group = x\n[kafka s]\ntopic = t\ndefinition = d\nstart = latest\nvalue = json\n"
               "group = x\n",
          "line 7", "group: \"x\" is that of [kafka r]" },
        { RULE "topik = t\n", "line 6", "[kafka r]: unknown key \"topik\"" },
        { RULE "grace = 1\n", "line 6", "[kafka r]: unknown key \"grace\"" },
        { RULE "topic = t\n", "line 6", "[kafka r]: topic: given twice" },
        { RULE "librdkafka.acks = 1\n", "line 6", "librdkafka.acks: cannot be set: an event" },
        { RULE "librdkafka.nonsense = 1\n", "line 6", "No such configuration property" },
        { RULE "librdkafka.session.timeout.ms = soon\n", "line 6", "session.timeout.ms" },
        { "librdkafka.enable.auto.commit = true\n", "line 1", "offsets are kept in the database" },
        { "librdkafka.debug = all\nlibrdkafka.debug = all\n", "line 2", "given twice" },
        { "[kafka R]\n", "line 1", "the name of a rule is 1 to 40 of [a-z0-9-], not \"R\"" },
        { "[kafka ]\n", "line 1", "the name of a rule" },
        { "[kafka a234567890123456789012345678901234567890b]\n", "line 1", "the name of a rule" },
        { "[kafka r\n", "line 1", "a section is [kafka NAME], not \"[kafka r\"" },
        { "[kafka r] x\n", "line 1", "a section is [kafka NAME], not \"[kafka r] x\"" },
        { "[kafkar]\n", "line 1", "a section is [kafka NAME]" },
        { "grace = 1\n  [x]\n", "line 2", "a section is [kafka NAME], not \"[x]\"" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct config config = { .command = CONFIG_FOR_SERVE };
        struct err err;
        const char *msg = read_content(rows[i].content, &config, &err);
        if (!msg || !strstr(msg, rows[i].line) || !strstr(msg, rows[i].part))
            fail_msg("row %zu: \"%s\" lacks \"%s\" or \"%s\"", i, msg ? msg : "(nothing)",
                     rows[i].line, rows[i].part);
        config_done(&config);
    }
}

static const char two_rules[] =
    "kafka-brokers = b:1\n"
    "librdkafka.ssl.key.password = geheim\n"
    "librdkafka.socket.keepalive.enable = true\n"
    "  [kafka  settlements ] ; a comment\n"
    "  topic = payments.settlements\n"
    "\tdefinition = settlement\n"
    "start = 2026-11-01T00:00:00.5Z\n"
    "value = protobuf\n"
    "filter = header:type=a=b\n"
    "filter = field:order.status!=\n"
    "canary = 5\n"
    "librdkafka.fetch.min.bytes = 10\n"
    "[kafka other]\n"
    "topic = t\ndefinition = d\nnamespace = n\nstart = earliest\n"
    "confirm-earliest = yes\nvalue = json\n"
    "key = template:{a}-{b.c}\ngroup = g\ninstance = i\n"
    "on-mismatch = dead-letter\ntombstone = ignore\nwhile-held = pause\nbatch = 7\n";

static void assert_two_rules(const struct config *config)
{
    assert_int_equal(config->rule_count, 2);
    const struct kafka_rule *a = config->rules[0], *b = config->rules[1];
    assert_string_equal(a->name, "settlements");
    assert_string_equal(a->topic, "payments.settlements");
    assert_string_equal(a->group, "sagad-settlements");
    assert_string_equal(a->namespace_, "default");
    assert_int_equal(a->start, KAFKA_START_TIME);
    assert_int_equal(a->start_ms, 1793491200500);
    assert_int_equal(a->key, KAFKA_KEY_DEFINITION);
    assert_int_equal(a->filter_count, 2);
    assert_true(a->filters[0].is_header && !a->filters[0].is_not);
    assert_string_equal(a->filters[0].text, "a=b");
    assert_true(!a->filters[1].is_header && a->filters[1].is_not);
    assert_string_equal(a->filters[1].name, "order.status");
    assert_string_equal(a->filters[1].text, "");
    assert_int_equal(a->canary, 5);
    assert_int_equal(a->batch, 1000);
    assert_null(a->instance);
    assert_int_equal(a->properties.count, 1);
    assert_string_equal(a->properties.items[0].name, "fetch.min.bytes");
    assert_int_equal(b->start, KAFKA_START_EARLIEST);
    assert_true(b->confirm_earliest);
    assert_int_equal(b->key, KAFKA_KEY_TEMPLATE);
    assert_string_equal(b->key_text, "{a}-{b.c}");
    assert_string_equal(b->group, "g");
    assert_string_equal(b->instance, "i");
    assert_int_equal(b->on_mismatch, KAFKA_MISMATCH_DEAD_LETTER);
    assert_int_equal(b->tombstone, KAFKA_TOMBSTONE_IGNORE);
    assert_true(b->pauses_while_held);
    assert_int_equal(b->batch, 7);
}

static void test_rules_are_read_and_printed_as_they_are(void **state)
{
    (void)state;
    struct err err;
    struct config config = { .command = CONFIG_FOR_DEV };
    struct config again = { .command = CONFIG_FOR_DEV };
    struct buf text = { 0 };
    assert_null(read_content(two_rules, &config, &err));
    ASSERT_OK(config_check(&config, &err), &err);
    assert_two_rules(&config);
    assert_int_equal(config.kafka.count, 2);
    assert_int_equal(config.rules[0]->line, 4);
    assert_int_equal(config.rules[0]->properties.items[0].line, 12);
    config_write_values(&config, &text);
    assert_null(strstr(buf_cstr(&text), "geheim"));
    assert_non_null(strstr(buf_cstr(&text), "#librdkafka.ssl.key.password = (secret) ; file\n"));
    assert_non_null(strstr(buf_cstr(&text), "\n[kafka settlements] ; line 4\n"));
    assert_non_null(strstr(buf_cstr(&text), "group = sagad-settlements ; default\n"));
    assert_null(read_content(buf_cstr(&text), &again, &err));
    assert_two_rules(&again);
    assert_int_equal(again.kafka.count, 1);
    config_done(&config);
    config_done(&again);
    buf_done(&text);
}

/* The comments are taken off its keys. */
static void test_the_example_of_a_rule_is_one(void **state)
{
    (void)state;
    struct err err;
    struct config config = { .command = CONFIG_FOR_SERVE };
    CLEANUP(buf_done) struct buf text = { 0 }, rule = { 0 };
    config_write_example(&text);
    char *rest = strstr((char *)text.data, "#[kafka");
    assert_non_null(rest);
    for (char *line; (line = strsep(&rest, "\n"));)
        if (line[0] == '#' && line[1] != ' ')
            buf_printf(&rule, "%s\n", line + 1);
    assert_null(read_content(buf_cstr(&rule), &config, &err));
    assert_int_equal(config.rule_count, 1);
    assert_int_equal(config.rules[0]->filter_count, 1);
    config_done(&config);
}

static void test_rules_and_the_outbox_need_brokers(void **state)
{
    (void)state;
    static const struct {
        const char *content, *part; /* NULL: nothing is wrong */
    } rows[] = {
        { "", NULL },
        { RULE, "kafka-brokers: is missing, and [kafka r] needs it" },
        { "outbox-topic = t\n", "kafka-brokers: is missing, and outbox-topic needs it" },
        { "kafka-brokers = b\noutbox-topic = t\n" RULE, NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct config config = { .command = CONFIG_FOR_SERVE };
        struct err err;
        assert_null(read_content(rows[i].content, &config, &err));
        assert_int_equal(config_check(&config, &err), rows[i].part ? ERR_INVALID : 0);
        if (rows[i].part)
            assert_non_null(strstr(err.msg, rows[i].part));
        config_done(&config);
    }
}

static void test_more_rules_than_threads_are_refused(void **state)
{
    (void)state;
    struct config config = { .command = CONFIG_FOR_SERVE };
    struct err err;
    CLEANUP(buf_done) struct buf text = { 0 };
    for (int i = 0; i <= KAFKA_RULES_MAX; i++)
        buf_printf(&text, "[kafka r%d]\ntopic=t\ndefinition=d\nstart=group\nvalue=json\n", i);
    const char *msg = read_content(buf_cstr(&text), &config, &err);
    assert_non_null(msg);
    assert_non_null(strstr(msg, "line 321: more than 64 rules"));
    config_done(&config);
}

static void test_brokers_and_memory(void **state)
{
    (void)state;
    static const struct {
        enum config_id id;
        const char *text;
        bool allowed;
    } rows[] = {
        { CONFIG_KAFKA_BROKERS, "b", true },       { CONFIG_KAFKA_BROKERS, "b:1,c:65535", true },
        { CONFIG_KAFKA_BROKERS, "[::1]:1", true }, { CONFIG_KAFKA_BROKERS, "[::1]", true },
        { CONFIG_KAFKA_BROKERS, "b:0", false },    { CONFIG_KAFKA_BROKERS, "b:65536", false },
        { CONFIG_KAFKA_BROKERS, "b:", false },     { CONFIG_KAFKA_BROKERS, ":1", false },
        { CONFIG_KAFKA_BROKERS, "a,,b", false },   { CONFIG_KAFKA_BROKERS, "::1", false },
        { CONFIG_KAFKA_BROKERS, "a b:1", false },  { CONFIG_KAFKA_BROKERS, "ssl://a:1", false },
        { CONFIG_KAFKA_BROKERS, "a]:1", false },   { CONFIG_KAFKA_BROKERS, "b:1x", false },
        { CONFIG_KEY_MEMORY, "1d", true },         { CONFIG_KEY_MEMORY, "forever", true },
        { CONFIG_KEY_MEMORY, "23h", false },       { CONFIG_KEY_MEMORY, "40000d", false },
        { CONFIG_KEY_MEMORY, "for ever", false },  { CONFIG_GRACE, "forever", false },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct config config = { .command = CONFIG_FOR_SERVE };
        struct err err;
        if ((config_set(&config, rows[i].id, CONFIG_FROM_FLAG, rows[i].text, &err) == 0) !=
            rows[i].allowed)
            fail_msg("%s", rows[i].text);
        config_done(&config);
    }
    struct config config = { .command = CONFIG_FOR_SERVE };
    struct err err;
    assert_int_equal(config_number(&config, CONFIG_KEY_MEMORY), INT64_C(90) * 24 * 3600 * 1000);
    ASSERT_OK(config_set(&config, CONFIG_KEY_MEMORY, CONFIG_FROM_FLAG, "forever", &err), &err);
    assert_int_equal(config_number(&config, CONFIG_KEY_MEMORY), -1);
    config_done(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_complete_and_its_defaults_are_allowed),
        cmocka_unit_test(test_each_later_source_wins),
        cmocka_unit_test(test_mistakes_in_a_file_stop_with_their_line),
        cmocka_unit_test(test_a_line_too_long_is_refused_not_cut),
        cmocka_unit_test(test_a_nul_byte_is_refused),
        cmocka_unit_test(test_one_file_serves_both_commands),
        cmocka_unit_test(test_bad_environment_is_named),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_addresses_gather_within_a_source),
        cmocka_unit_test(test_which_addresses_others_can_reach),
        cmocka_unit_test(test_printed_settings_can_be_read_back),
        cmocka_unit_test(test_printed_settings_say_nothing_else_when_read),
        cmocka_unit_test(test_example_file_tells_every_setting_and_changes_none),
        cmocka_unit_test(test_mistakes_in_a_rule_stop_with_their_line),
        cmocka_unit_test(test_rules_are_read_and_printed_as_they_are),
        cmocka_unit_test(test_the_example_of_a_rule_is_one),
        cmocka_unit_test(test_rules_and_the_outbox_need_brokers),
        cmocka_unit_test(test_more_rules_than_threads_are_refused),
        cmocka_unit_test(test_brokers_and_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
