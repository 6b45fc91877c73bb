/* sagactl key: the idempotency key of an operation; asks no server. */
#include "ctl/ctl.h"
#include "ctl/verbs.h"
#include "dispatch/key.h"

static const struct ctl_option options[] = {
    { "compensation", NULL, false, "of the step's compensation (default: of its action)" },
    { "run", "N", false, "which run of the key (default 1)" },
    { "generation", "N", false,
      "of a step with fresh_key_after_not_done: how many NOT_DONE were settled (default 0)" },
    { NULL, NULL, false, NULL },
};

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    struct err err;
    int64_t run_number, generation;
    char key[IDEMPOTENCY_KEY_SIZE];
    enum operation operation =
        ctl_option(arguments, "compensation") ? OPERATION_COMPENSATION : OPERATION_ACTION;
    if (ctl_option_number(arguments, "run", 1, INT32_MAX, 1, &run_number, &err) != 0 ||
        ctl_option_number(arguments, "generation", 0, INT32_MAX, 0, &generation, &err) != 0)
        return ctl_print_error(&err);
    if (idempotency_key(ctl->namespace_ ? ctl->namespace_ : "default", arguments->positional[0],
                        arguments->positional[1], (int32_t)run_number, arguments->positional[2],
                        operation, (int32_t)generation, key) != 0) {
        (void)err_set(&err, ERR_NOMEM, "out of memory");
        return ctl_print_error(&err);
    }
    if (ctl->json)
        return ctl_print_json(json_pack("{s:s}", "idempotencyKey", key));
    CLEANUP(buf_done) struct buf text = { 0 };
    buf_printf(&text, "%s\n", key);
    return ctl_print_text(&text);
}

const struct ctl_verb verb_key = {
    "key",
    "DEFINITION KEY STEP",
    3,
    3,
    options,
    "the idempotency key that a step sends to the other side\n"
    "\n"
    "Computed here, from the identity alone: for looking an operation up at a provider.",
    run,
};
