#include "ctl/filter_text.h"

#include "ctl/ctl.h"
#include "wire/json_scalars.h"

void filter_text_add(struct buf *filter, const char *text)
{
    if (filter->size)
        buf_text(filter, " AND ");
    buf_text(filter, text);
}

void filter_text_equal(struct buf *filter, const char *field, const char *value)
{
    filter_text_add(filter, field);
    buf_text(filter, " = \"");
    for (const char *c = value; *c; c++) {
        if (*c == '"' || *c == '\\' || *c == '*')
            buf_text(filter, "\\");
        buf_append(filter, c, 1);
    }
    buf_text(filter, "\"");
}

int filter_text_time(struct buf *filter, const struct ctl_arguments *arguments, const char *option,
                     const char *compare, struct err *err)
{
    const char *text = ctl_option(arguments, option);
    int64_t ms;
    char time[JSON_TIME_SIZE];
    if (!text)
        return 0;
    if (!ctl_moment(text, ctl_now_ms(), &ms) || ms < 0 ||
        !json_timestamp_write(ms / 1000, (int32_t)(ms % 1000 * 1000000), time))
        return err_set(err, ERR_INVALID, "--%s must be " CTL_MOMENT_HELP ", not \"%s\"", option,
                       text);
    filter_text_add(filter, compare);
    buf_printf(filter, " \"%s\"", time);
    return 0;
}
