/* Goal: `sagactl watch` tells what happens to a saga as it happens, goes on where it was when the
 * server comes back, and ends as the saga does. Method: the program as people run it, beside sagas
 * whose worker does what they say. */
#include "base/mem.h"
#include "support/process.h"
#include "support/sagactl.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { SOON = 15000, ARGS_MAX = 12 };

static struct rig rig;

static int setup(void **state)
{
    (void)state;
    if (rig_up(&rig) != 0)
        return -1;
    (void)rig_worker(&rig, "w1", "act:8 undo:8"); /* the rig owns it */
    rig_define(&rig, "steps", NULL, "a: IDEMPOTENT | IDEMPOTENT\nb: ONCE | IDEMPOTENT");
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
    return rig_check(&rig);
}

#define EXPECT(exit_code, part, ...)                                                               \
    sagactl_expect(&rig, exit_code, WORDS(part), WORDS(__VA_ARGS__))

/* The program, still running. */
static struct test_process *watch(const char *const *words)
{
    const char *argv[ARGS_MAX] = { SAGACTL_BINARY, "--address", rig.address, "watch" };
    for (size_t i = 0; words[i]; i++)
        argv[4 + i] = words[i];
    struct test_process *process = NULL;
    struct err err;
    ASSERT_OK(test_process_run(argv, &process, &err), &err);
    return process;
}

static void await_text(struct test_process *process, const char *text)
{
    struct err err;
    ASSERT_OK(test_process_wait_output(process, text, SOON, NULL, 0, &err), &err);
}

/* Its exit code; *ret_output is owned by the caller. */
static int end_of(struct test_process *process, char **ret_output)
{
    int status = -1;
    struct err err;
    ASSERT_OK(test_process_wait(process, SOON, &status, &err), &err);
    *ret_output = test_process_output(process);
    assert_non_null(*ret_output);
    (void)test_process_free(process); /* always NULL */
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int times(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        count++;
    return count;
}

static void test_a_saga_is_told_as_it_goes(void **state)
{
    (void)state;
    rig_start(&rig, "steps", "s-1", "a A 1 sleep=1500\nb A 1 sleep=1500");
    struct test_process *process = watch(WORDS("s-1"));
    await_text(process, "steps s-1  (run 1, revision 1, ");
    await_text(process, "  step     a LEASED, try 1, by w1/");
    await_text(process, "  step     a DONE, try 1, by w1/");
    await_text(process, "  step     b LEASED, try 1, by w1/");
    await_text(process, "  step     b DONE, try 1, by w1/");
    CLEANUP(mem_free_p) char *output = NULL;
    assert_int_equal(end_of(process, &output), 0);
    assert_non_null(strstr(output, "  state    SUCCEEDED since "));
    assert_int_equal(times(output, "steps s-1  (run 1"), 1);
    assert_int_equal(times(output, "  step     a DONE"), 1);
}

static void test_its_exit_code_tells_the_end(void **state)
{
    (void)state;
    rig_start(&rig, "steps", "e-1", "b A 1 rejected code=NO");
    EXPECT(3, "state    COMPENSATED since ", "watch", "e-1", "--timeout", "15");
    rig_start(&rig, "steps", "e-2", "b A 1 unknown code=TIMEOUT");
    EXPECT(4, "parked   OUTCOME_UNKNOWN at step b", "watch", "steps", "e-2", "--or-parked",
           "--timeout", "15");
    EXPECT(6, "step     b UNKNOWN, try 1", "watch", "e-2", "--timeout", "1");
    EXPECT(0, "abandoned", "abandon", "e-2", "--reason", "a test");
    EXPECT(5, "state    ABANDONED", "watch", "e-2", "--timeout", "15");
    EXPECT(1, "no saga has this key", "watch", "e-3");
    rig_start(&rig, "steps", "e-4", "");
    rig_await_state(&rig, "steps", "e-4", "SUCCEEDED", SOON);
    json_t *last = sagactl_json(&rig, WORDS("watch", "e-4", "-o", "json"));
    assert_string_equal(json_string_value(json_object_get(last, "state")), "SAGA_STATE_SUCCEEDED");
    json_decref(last);
}

static void test_json_is_one_object_a_line(void **state)
{
    (void)state;
    rig_start(&rig, "steps", "j-1", "a A 1 sleep=1500");
    struct test_process *process = watch(WORDS("j-1", "-o", "json"));
    CLEANUP(mem_free_p) char *output = NULL;
    assert_int_equal(end_of(process, &output), 0);
    int count = 0;
    const char *state_of_last = "";
    json_t *value = NULL;
    for (char *rest = output, *line; (line = strsep(&rest, "\n")) && *line; count++) {
        json_decref(value);
        value = json_loads(line, 0, NULL);
        assert_non_null(value);
        state_of_last = json_string_value(json_object_get(value, "state"));
    }
    assert_true(count >= 2);
    assert_string_equal(state_of_last, "SAGA_STATE_SUCCEEDED");
    json_decref(value);
}

static void test_it_goes_on_where_it_was_when_the_server_is_back(void **state)
{
    (void)state;
    rig_define(&rig, "late", NULL, "a: IDEMPOTENT | none\nb: IDEMPOTENT handler=later | none");
    rig_start(&rig, "late", "r-1", "");
    struct test_process *process = watch(WORDS("r-1"));
    await_text(process, "  step     b READY");
    rig_server_kill(&rig);
    rig_server_start(&rig);
    (void)rig_worker(&rig, "w2", "later:1"); /* the rig owns it */
    CLEANUP(mem_free_p) char *output = NULL;
    assert_int_equal(end_of(process, &output), 0);
    assert_int_equal(times(output, "late r-1  (run 1"), 1);
    assert_int_equal(times(output, "  step     a DONE"), 1);
    assert_int_equal(times(output, "  step     b DONE"), 1);
}

static void test_ctrl_c_ends_it(void **state)
{
    (void)state;
    struct err err;
    rig_define(&rig, "long", NULL, "a: IDEMPOTENT handler=nobody | none");
    rig_start(&rig, "long", "c-1", "");
    struct test_process *process = watch(WORDS("c-1"));
    await_text(process, "  waits    for a worker");
    ASSERT_OK(test_process_signal(process, SIGINT, &err), &err);
    CLEANUP(mem_free_p) char *output = NULL;
    assert_int_equal(end_of(process, &output), 130);
    EXPECT(0, "cancelled", "cancel", "c-1", "--reason", "a test");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_saga_is_told_as_it_goes, check),
        cmocka_unit_test_teardown(test_its_exit_code_tells_the_end, check),
        cmocka_unit_test_teardown(test_json_is_one_object_a_line, check),
        cmocka_unit_test_teardown(test_it_goes_on_where_it_was_when_the_server_is_back, check),
        cmocka_unit_test_teardown(test_ctrl_c_ends_it, check),
    };
    return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
