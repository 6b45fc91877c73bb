#include "ctl/revision_types.h"
#include "ctl/where_text.h"

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

bool where_write_outputs(const Saga__V1__Saga *saga, const struct where_view *view, struct buf *out)
{
    const char *label = "output";
    bool cut = false;
    for (size_t i = 0; i < saga->n_steps; i++) {
        const Saga__V1__StepStatus *step = saga->steps[i];
        if (!step->output.len)
            continue;
        struct revision_type type = revision_types_step(
            view->types, step->name, SAGA__V1__OPERATION_KIND__OPERATION_KIND_ACTION);
        buf_printf(out, "  %-8s ", label);
        screen_text(out, step->name);
        buf_text(out, ": ");
        cut |= revision_types_write(view->types, type, &step->output, view->payload_max, out);
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
