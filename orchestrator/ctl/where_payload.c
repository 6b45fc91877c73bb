#include "ctl/revision_types.h"
#include "ctl/where_text.h"

#include <inttypes.h>

bool where_write_input(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    if (!saga->input.len)
        return false;
    buf_printf(out, "  %-8s ", "input");
    bool cut = revision_types_write(view->types, revision_types_input(view->types), &saga->input,
                                    view->payload_max, out);
    buf_text(out, "\n");
    return cut;
}

/* All outputs together are more than one answer of the server may have. */
static void write_left_out(const Saga__V1__Saga *saga, const struct where_view *view,
                           const Saga__V1__StepStatus *step, struct buf *out)
{
    buf_printf(out, "%" PRId64 " bytes: ", step->output_bytes_left_out);
    where_write_command(saga, view, "history", out);
    buf_text(out, " --full");
}

bool where_write_outputs(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    const char *label = "output";
    bool cut = false;
    for (size_t i = 0; i < saga->n_steps; i++) {
        const Saga__V1__StepStatus *step = saga->steps[i];
        if (!step->output.len && !step->output_bytes_left_out)
            continue;
        struct revision_type type = revision_types_step(
            view->types, step->name, SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION);
        buf_printf(out, "  %-8s ", label);
        screen_text(out, step->name);
        buf_text(out, ": ");
        if (step->output.len)
            cut |= revision_types_write(view->types, type, &step->output, view->payload_max, out);
        else
            write_left_out(saga, view, step, out);
        buf_text(out, "\n");
        label = "";
    }
    return cut;
}

void where_write_cut(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    buf_printf(out, "  %-8s ", "cut");
    where_write_command(saga, view, "get", out);
    buf_text(out, " --full   (payloads in full length; so does -o json)\n");
}
