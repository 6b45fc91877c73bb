#include "support/sagactl.h"

#include <stdio.h>
#include <string.h>

static struct command run(const struct rig *rig, const char *const *words)
{
    const char *argv[COMMAND_ARGS_MAX] = { SAGACTL_BINARY };
    char address[64];
    (void)snprintf(address, sizeof address, "SAGACTL_ADDRESS=%s", rig->address);
    const char *const env[] = { "SAGACTL_ACTOR=ada", address, NULL };
    for (size_t i = 0; words[i]; i++) {
        assert_true(i + 2 < COMMAND_ARGS_MAX);
        argv[i + 1] = words[i];
    }
    return command_run(argv, env);
}

void sagactl_expect(const struct rig *rig, int exit_code, const char *const *parts,
                    const char *const *words)
{
    CLEANUP(command_done) struct command command = run(rig, words);
    if (command.exit_code != exit_code)
        fail_msg("sagactl %s: exit code %d, not %d: %s", words[0], command.exit_code, exit_code,
                 command.output);
    for (size_t i = 0; parts[i]; i++)
        if (!strstr(command.output, parts[i]))
            fail_msg("sagactl %s: \"%s\" is not in: %s", words[0], parts[i], command.output);
}

json_t *sagactl_json(const struct rig *rig, const char *const *words)
{
    CLEANUP(command_done) struct command command = run(rig, words);
    json_error_t where;
    json_t *value = json_loads(command.output, JSON_REJECT_DUPLICATES, &where);
    if (command.exit_code != 0 || !value)
        fail_msg("sagactl %s: exit code %d: %s", words[0], command.exit_code, command.output);
    return value;
}
