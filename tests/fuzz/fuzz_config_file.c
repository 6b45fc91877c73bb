/* Goal: no configuration file crashes the start; one that is refused is refused with its place, and
 * what a good one says is in force, in range, and the same when it is printed and read again.
 * Method: the first byte chooses the command, the rest is the file. */
#include "app/address.h"
#include "app/config.h"
#include "base/log.h"
#include "base/mem.h"
#include "fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int read_bytes(struct config *config, const void *data, size_t size, struct err *err)
{
    int fd = memfd_create("config", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(write(fd, data, size) == (ssize_t)size);
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int rc = config_read_file(config, path, err);
    if (rc)
        FUZZ_CHECK(rc == ERR_INVALID && strstr(err->msg, path));
    FUZZ_CHECK(close(fd) == 0);
    return rc;
}

static void check_addresses(const struct config *config)
{
    const char **items = NULL;
    size_t count = 0;
    struct err err;
    FUZZ_OK(config_list(config, CONFIG_LISTEN, &items, &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        char bound[ADDRESS_SIZE];
        FUZZ_OK(address_check(items[i], &err), &err);
        address_with_port(items[i], 7233, bound);
        FUZZ_OK(address_check(bound, &err), &err);
        FUZZ_CHECK(address_is_local(bound) == address_is_local(items[i]));
    }
    mem_free(items);
}

static void check_values(const struct config *config)
{
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const struct config_option *option = &config_options[i];
        int64_t number = config_number(config, (enum config_id)i);
        if (option->type == CONFIG_TYPE_INTEGER || option->type == CONFIG_TYPE_DURATION)
            FUZZ_CHECK(number >= option->min && number <= option->max);
        if (option->type == CONFIG_TYPE_MEMORY)
            FUZZ_CHECK(number == -1 || (number >= option->min && number <= option->max));
        if (option->type == CONFIG_TYPE_LOG_LEVEL)
            FUZZ_CHECK(number >= 0 && number < LOG_LEVEL_COUNT);
        if (option->type == CONFIG_TYPE_BOOL)
            (void)config_bool(config, (enum config_id)i); /* either */
        if (!(option->commands & config->command))
            FUZZ_CHECK(!config->texts[i]);
    }
    check_addresses(config);
}

/* Each is whole, and says the same in `again`. */
static void check_rules(const struct config *config, const struct config *again)
{
    FUZZ_CHECK(config->rule_count == again->rule_count);
    for (size_t i = 0; i < config->rule_count; i++) {
        const struct kafka_rule *a = config->rules[i], *b = again->rules[i];
        FUZZ_CHECK(a->topic && a->definition && a->texts[RULE_START] && a->texts[RULE_VALUE]);
        FUZZ_CHECK(strcmp(a->name, b->name) == 0 && strcmp(a->topic, b->topic) == 0);
        FUZZ_CHECK(strcmp(a->group, b->group) == 0 && a->start_ms == b->start_ms);
        FUZZ_CHECK(a->start == b->start && a->key == b->key && a->value == b->value);
        FUZZ_CHECK(a->canary == b->canary && a->batch == b->batch);
        FUZZ_CHECK(a->filter_count == b->filter_count);
        for (size_t j = 0; j < a->filter_count; j++)
            FUZZ_CHECK(strcmp(a->filters[j].name, b->filters[j].name) == 0 &&
                       strcmp(a->filters[j].text, b->filters[j].text) == 0 &&
                       a->filters[j].is_not == b->filters[j].is_not);
    }
}

/* All but secrets, which have no printer. */
static void check_printed(const struct config *config)
{
    CLEANUP(buf_done) struct buf printed = { 0 };
    CLEANUP(config_done) struct config again = { .command = config->command };
    struct err err;
    config_write_values(config, &printed);
    FUZZ_CHECK(!printed.failed);
    if (read_bytes(&again, printed.data, printed.size, &err)) {
        FUZZ_CHECK(strstr(err.msg, "the line is too long")); /* by the source behind the value */
        return;
    }
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const char *text = config_text(config, (enum config_id)i);
        if (!config_options[i].secret)
            FUZZ_CHECK(strcmp(text, config_text(&again, (enum config_id)i)) == 0);
    }
    check_rules(config, &again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script script = { data, size };
    CLEANUP(config_done) struct config config = { 0 };
    config.command = script_byte(&script) % 2 ? CONFIG_FOR_DEV : CONFIG_FOR_SERVE;
    struct err err;
    if (read_bytes(&config, script.data, script.left, &err))
        return 0;
    check_values(&config);
    check_printed(&config);
    int rc = config_check(&config, &err);
    FUZZ_CHECK(!rc || (rc == ERR_INVALID && !*config_text(&config, CONFIG_KAFKA_BROKERS)));
    return 0;
}
