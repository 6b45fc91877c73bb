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
        if (option->type == CONFIG_TYPE_LOG_LEVEL)
            FUZZ_CHECK(number >= 0 && number < LOG_LEVEL_COUNT);
        if (option->type == CONFIG_TYPE_BOOL)
            (void)config_bool(config, (enum config_id)i); /* either */
        if (!(option->commands & config->command))
            FUZZ_CHECK(!config->texts[i]);
    }
    check_addresses(config);
}

/* All but secrets, which have no printer, and what came by a continued line alone. */
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
        if (!config_options[i].secret && !strstr(text, " ;"))
            FUZZ_CHECK(strcmp(text, config_text(&again, (enum config_id)i)) == 0);
    }
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
    return 0;
}
