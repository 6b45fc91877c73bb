/* Goal: tools that others wrote find out by reflection what there is, and call it. Method: their
 * programs (tests/tools/reflect.sh) at a server as people run it. */
#include "support/command.h"
#include "support/rig.h"

#include <stdio.h>

enum { SKIPPED = 77, LIMIT_MS = 140 * 1000 /* with what is to be fetched */ };

static struct rig rig;

static int setup(void **state)
{
    (void)state;
    return rig_up(&rig);
}

static int teardown(void **state)
{
    (void)state;
    return rig_down(&rig);
}

static void run_tool(const char *tool)
{
    const char *argv[] = { REFLECT_SH, tool, rig.address, NULL };
    struct command command = command_run_within(argv, NULL, LIMIT_MS);
    print_message("%s", command.output);
    if (command.exit_code == SKIPPED) {
        command_done(&command);
        skip();
    }
    assert_int_equal(command.exit_code, 0);
    assert_non_null(strstr(command.output, "v1: "));
    assert_non_null(strstr(command.output, "v1alpha: "));
    command_done(&command);
}

static void test_grpcio_of_python(void **state)
{
    (void)state;
    run_tool("python");
}

static void test_grpc_js_of_node(void **state)
{
    (void)state;
    run_tool("node");
}

static void test_buf_curl(void **state)
{
    (void)state;
    run_tool("buf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grpcio_of_python),
        cmocka_unit_test(test_grpc_js_of_node),
        cmocka_unit_test(test_buf_curl),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
