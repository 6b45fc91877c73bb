/* sagactl guard floor: how far the rows of the participants' guards may be purged. */
#include "ctl/ctl.h"
#include "ctl/people_text.h"
#include "ctl/verbs.h"

static const struct ctl_option options[] = {
    { "margin", "TIME", false, "so much below the oldest open saga: 90s, 30m (default 1h)" },
    { NULL, NULL, false, NULL },
};

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    Saga__V1__GetGuardFloorRequest request = SAGA__V1__GET_GUARD_FLOOR_REQUEST__INIT;
    Google__Protobuf__Duration duration = GOOGLE__PROTOBUF__DURATION__INIT;
    CLEANUP(ctl_message_free_p) Saga__V1__GetGuardFloorResponse *floor = NULL;
    const char *margin = ctl_option(arguments, "margin");
    if (margin) {
        int64_t ms;
        struct err err;
        if (!ctl_duration(margin, &ms)) {
            (void)err_set(&err, ERR_INVALID,
                          "--margin must be a time such as 90s, 30m or 1h, not \"%s\"", margin);
            return ctl_print_error(&err);
        }
        duration.seconds = ms / 1000;
        duration.nanos = (int32_t)(ms % 1000) * 1000000;
        request.margin = &duration;
    }
    int rc = ctl_call(ctl, "/saga.v1.OperatorService/GetGuardFloor", &request.base,
                      &saga__v1__get_guard_floor_response__descriptor, &floor);
    if (rc != 0)
        return rc;
    if (ctl->json)
        return ctl_print_message(&floor->base);
    const struct where_view view = ctl_where_view(ctl);
    CLEANUP(buf_done) struct buf text = { 0 };
    guard_floor_write(floor, &view, &text);
    return ctl_print_text(&text);
}

const struct ctl_verb verb_guard_floor = {
    "guard floor",
    "",
    0,
    0,
    options,
    "how far the rows of the participants' guards may be purged, and the SQL for it\n"
    "\n"
    "Every saga that started before the floor has ended. Whoever is below it afterwards is "
    "answered\n"
    "STALE by a guard, so the margin is for what may still be on its way. All namespaces count.",
    run,
};
