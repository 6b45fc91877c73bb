#include "ctl/where_known.h"

#include "ctl/kafka_text.h"
#include "ctl/letter_text.h"
#include "ctl/names.h"

#include <string.h>

static void write_saga(const Saga__V1__LookUpKeyResponse__Known *saga,
                       const struct where_view *view, struct buf *out)
{
    if (strcmp(saga->namespace_, "default") != 0) {
        screen_text(out, saga->namespace_);
        buf_text(out, "/");
    }
    screen_styled(out, saga->definition, STYLE_BOLD, view->color);
    buf_printf(out, ", run %d: ", saga->run);
    if (saga->state == SAGA__V1__SAGA_STATE__SAGA_STATE_UNSPECIFIED)
        buf_text(out, "has not ended");
    else
        screen_styled(out, name_saga_state(saga->state), style_saga_state(saga->state),
                      view->color);
    if (saga->start_time) {
        buf_text(out, ", started ");
        screen_time(out, saga->start_time, view->now_ms);
    }
    buf_printf(out, ", uid %s\n", saga->saga_uid);
    if (!saga->purged)
        return;
    buf_text(out, "  its rows were purged; the same key starts nothing ");
    if (saga->forget_time) {
        buf_text(out, "until ");
        screen_time(out, saga->forget_time, view->now_ms);
    } else {
        buf_text(out, "again");
    }
    if (*saga->archive) {
        buf_text(out, "; archived in ");
        screen_text(out, saga->archive);
    }
    buf_text(out, "\n");
}

void where_write_letters(const Saga__V1__LookUpKeyResponse *known, const struct where_view *view,
                         struct buf *out)
{
    for (size_t i = 0; i < known->n_dead_letters; i++)
        letter_write_short(known->dead_letters[i], view, out);
}

void where_write_known(const Saga__V1__LookUpKeyResponse *known, const struct where_view *view,
                       struct buf *out)
{
    for (size_t i = 0; i < known->n_known; i++)
        write_saga(known->known[i], view, out);
    where_write_letters(known, view, out);
    for (size_t i = 0; i < known->n_rules; i++)
        kafka_write_behind(known->rules[i], view, out);
}

bool where_has_known(const Saga__V1__LookUpKeyResponse *known)
{
    return known->n_known || known->n_dead_letters;
}
