/* The command line of sagactl: one table row a verb, one a option. thread: the main thread. */
#ifndef CTL_ARGUMENTS_H
#define CTL_ARGUMENTS_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>

struct ctl;
struct ctl_arguments;

enum { CTL_POSITIONAL_MAX = 4, CTL_OPTIONS_MAX = 16, CTL_REPEATS_MAX = 16, CTL_EXIT_USAGE = 2 };

struct ctl_option {
    const char *name;  /* without dashes; NULL ends the list */
    const char *value; /* what the value is called; NULL: the option takes none */
    bool repeatable;
    const char *help;
};

struct ctl_verb {
    const char *name;                 /* one word or two: "definition apply" */
    const char *arguments;            /* "[DEFINITION] KEY" */
    size_t min, max;                  /* how many of them */
    const struct ctl_option *options; /* NULL: none */
    const char *help;
    int (*run)(struct ctl *ctl, const struct ctl_arguments *arguments); /* the exit code */
};

struct ctl_arguments { /* all borrowed from argv */
    const struct ctl_verb *verb;
    const char *positional[CTL_POSITIONAL_MAX];
    size_t count;
    struct {
        const char *values[CTL_REPEATS_MAX];
        size_t count;
    } options[CTL_OPTIONS_MAX]; /* in the order of verb->options */
    /* of every verb */
    const char *address, *namespace_, *output, *timeout;
    bool help, version;
};

/* ERR_INVALID says what is wrong with the line. No verb: arguments->verb is NULL. */
MUST_USE int ctl_arguments_read(const struct ctl_verb *const *verbs, int argc, char **argv,
                                struct ctl_arguments *ret, struct err *err);
/* Value of an option of the verb (the last one given); NULL: not given. The name must be in the
 * table. */
const char *ctl_option(const struct ctl_arguments *arguments, const char *name);
/* All of a repeatable one. */
size_t ctl_option_all(const struct ctl_arguments *arguments, const char *name,
                      const char *const **ret_values);
/* The same as a number within [min, max]; `otherwise` when not given. */
MUST_USE int ctl_option_number(const struct ctl_arguments *arguments, const char *name, int64_t min,
                               int64_t max, int64_t otherwise, int64_t *ret, struct err *err);
/* "30", "0.5", "500ms", "2m", "1h", "3d" in milliseconds; false for anything else. */
MUST_USE bool ctl_duration(const char *text, int64_t *ret_ms);

/* Overview of all verbs; the help of one. */
void ctl_write_usage(const struct ctl_verb *const *verbs, struct buf *out);
void ctl_write_help(const struct ctl_verb *verb, struct buf *out);

#endif
