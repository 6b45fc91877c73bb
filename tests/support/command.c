#include "support/command.h"

#include "base/mem.h"

#include <sys/wait.h>

struct command command_run_within(const char *const *argv, const char *const *env, int64_t limit_ms)
{
    const struct test_process_options options = { .argv = argv, .env = env };
    struct test_process *process;
    struct err err;
    int status;
    ASSERT_OK(test_process_start(&options, &process, &err), &err);
    ASSERT_OK(test_process_wait(process, limit_ms, &status, &err), &err);
    struct command command = { .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                               .output = test_process_output(process) };
    process = test_process_free(process);
    assert_null(process);
    assert_non_null(command.output);
    return command;
}

struct command command_run(const char *const *argv, const char *const *env)
{
    return command_run_within(argv, env, COMMAND_LIMIT_MS);
}

void command_done(struct command *command)
{
    mem_free(command->output);
}

void command_expect(const char *const *argv, const char *const *env, int exit_code,
                    const char *part)
{
    CLEANUP(command_done) struct command command = command_run(argv, env);
    if (command.exit_code != exit_code)
        fail_msg("%s %s: exit code %d, not %d: %s", argv[0], argv[1], command.exit_code, exit_code,
                 command.output);
    if (part && !strstr(command.output, part))
        fail_msg("%s %s: \"%s\" is not in: %s", argv[0], argv[1], part, command.output);
}
