/* A program that is run to its end, with its output and exit code. thread: the test thread only. */
#ifndef SUPPORT_COMMAND_H
#define SUPPORT_COMMAND_H

#include "support/check.h"
#include "support/process.h"

enum { COMMAND_ARGS_MAX = 24, COMMAND_LIMIT_MS = 30000 };

struct command {
    int exit_code; /* -1: ended by a signal */
    char *output;  /* stdout and stderr */
};

/* Fails the test when it does not end within COMMAND_LIMIT_MS. Free with command_done. */
struct command command_run(const char *const *argv, const char *const *env);
struct command command_run_within(const char *const *argv, const char *const *env,
                                  int64_t limit_ms);
void command_done(struct command *command);
/* Runs, and fails the test unless it exits so and its output holds `part` (NULL: whatever it is).
 */
void command_expect(const char *const *argv, const char *const *env, int exit_code,
                    const char *part);

#endif
