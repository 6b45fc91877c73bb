/* sagactl fsm: the tables that move sagas; asks no server. */
#include "core/fsm.h"
#include "ctl/ctl.h"
#include "ctl/verbs.h"

static const struct ctl_option options[] = {
    { "dot", NULL, false, "the transition table for Graphviz" },
    { "markdown", NULL, false, "the transition table and what each call does in each state" },
    { NULL, NULL, false, NULL },
};

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    (void)ctl;
    struct err err;
    bool dot = ctl_option(arguments, "dot") != NULL;
    bool markdown = ctl_option(arguments, "markdown") != NULL;
    if (dot == markdown) {
        (void)err_set(&err, ERR_INVALID, "which one, --dot or --markdown?");
        return ctl_print_error(&err);
    }
    CLEANUP(buf_done) struct buf text = { 0 };
    if (dot)
        fsm_write_dot(&text);
    else
        fsm_write_markdown(&text);
    return ctl_print_text(&text);
}

const struct ctl_verb verb_fsm = {
    "fsm",   "--dot|--markdown",
    0,       0,
    options, "the transitions that a saga can make, drawn or as tables",
    run,
};
