/* Goal: what happens in well-known situations, to the letter. Method: each file in scenarios/ is
 * run in the simulator without chance, and its trace compared with the one that the file ends with.
 */
#include "sim/scenario.h"
#include "support/check.h"

#include "base/log.h"

#include <dirent.h>
#include <stdio.h>

enum { SCENARIOS_MAX = 64 };

static size_t line_of(const char *text, const char *at)
{
    size_t line = 1;
    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

static void test_scenario(void **state)
{
    const char *path = *state;
    CLEANUP(buf_done) struct buf trace = { .limit = 0 };
    CLEANUP(buf_done) struct buf expected = { .limit = 0 };
    bool held = scenario_run(path, &trace, &expected);
    const char *is = buf_cstr(&trace), *should = buf_cstr(&expected);
    const char *a = is, *b = should;
    while (*a && *a == *b)
        a++, b++;
    if (held && *a == *b)
        return;
    print_error("%s, from line %zu of the trace on:\n%s", path, line_of(is, a), is);
    fail_msg("%s", held ? "the trace is another one" : "a promise was broken");
}

/* "dir/p5_deadline.txt" is test_p5_deadline. */
static char *name_of(const char *file)
{
    char name[128];
    (void)snprintf(name, sizeof name, "test_%.*s", (int)(strlen(file) - 4), file);
    return strdup(name);
}

static int by_name(const void *left, const void *right)
{
    const struct CMUnitTest *a = left, *b = right;
    return strcmp(a->name, b->name);
}

int main(void)
{
    static struct CMUnitTest tests[SCENARIOS_MAX];
    size_t count = 0;
    log_set_level(LOG_LEVEL_COUNT);
    DIR *dir = opendir(SCENARIOS_DIR);
    for (struct dirent *at; dir && count < SCENARIOS_MAX && (at = readdir(dir));) {
        size_t size = strlen(at->d_name);
        if (size < 5 || strcmp(at->d_name + size - 4, ".txt") != 0)
            continue;
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", SCENARIOS_DIR, at->d_name);
        tests[count++] = (struct CMUnitTest){ .name = name_of(at->d_name),
                                              .test_func = test_scenario,
                                              .initial_state = strdup(path) };
    }
    if (dir)
        (void)closedir(dir);
    qsort(tests, count, sizeof *tests, by_name);
    int failed = count ? _cmocka_run_group_tests("scenarios", tests, count, NULL, NULL) : 1;
    for (size_t i = 0; i < count; i++) {
        free((void *)tests[i].name);
        free(tests[i].initial_state);
    }
    return failed ? 1 : 0;
}
