/* sagactl: asks and tells a sagad. Reads the command line and runs one verb. */
#include "ctl/ctl.h"
#include "ctl/verbs.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

static int print_usage(const struct ctl_arguments *arguments)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    if (arguments->version)
        buf_printf(&text, "sagactl %s\n", SAGAD_VERSION);
    else if (arguments->verb)
        ctl_write_help(arguments->verb, &text);
    else
        ctl_write_usage(ctl_verbs, &text);
    return ctl_print_text(&text);
}

int main(int argc, char **argv)
{
    struct ctl_arguments arguments;
    struct ctl ctl;
    struct err err;
    (void)signal(SIGPIPE, SIG_DFL); /* `sagactl list | head` ends quietly */
    tzset();
    if (ctl_arguments_read(ctl_verbs, argc, argv, &arguments, &err) != 0) {
        int code = ctl_print_error(&err);
        (void)fputs("sagactl --help explains\n", stderr);
        return code;
    }
    if (arguments.help || arguments.version)
        return print_usage(&arguments);
    if (!arguments.verb) {
        (void)fputs("sagactl: which command? sagactl --help lists them\n", stderr);
        return CTL_EXIT_USAGE;
    }
    if (ctl_init(&ctl, &arguments, &err) != 0)
        return ctl_print_error(&err);
    int code = arguments.verb->run(&ctl, &arguments);
    ctl_done(&ctl);
    return code;
}
