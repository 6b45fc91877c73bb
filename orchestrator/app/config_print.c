#include "app/config.h"

#include <string.h>

enum { WIDTH = 88 };

/* Wraps at spaces; each line starts with `indent`. */
static void write_wrapped(struct buf *out, const char *indent, const char *text)
{
    while (*text) {
        size_t room = WIDTH - strlen(indent);
        size_t size = strlen(text);
        if (size > room) {
            size = room;
            while (size > 1 && text[size] != ' ')
                size--;
        }
        buf_printf(out, "%s%.*s\n", indent, (int)size, text);
        text += size;
        text += strspn(text, " ");
    }
}

static const char *value_name(enum config_type type)
{
    static const char *const names[] = {
        [CONFIG_TYPE_TEXT] = " TEXT",
        [CONFIG_TYPE_ADDRESSES] = " ADDRESS",
        [CONFIG_TYPE_BOOL] = "",
        [CONFIG_TYPE_INTEGER] = " NUMBER",
        [CONFIG_TYPE_DURATION] = " SECONDS",
        [CONFIG_TYPE_LOG_LEVEL] = " LEVEL",
    };
    return names[type];
}

void config_write_help(unsigned command, struct buf *out)
{
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const struct config_option *option = &config_options[i];
        if (!(option->commands & command))
            continue;
        buf_printf(out, "  --%s%s   (%s%s%s)\n", option->name, value_name(option->type),
                   option->env, *option->default_text ? "; default " : "", option->default_text);
        write_wrapped(out, "        ", option->help);
    }
}

void config_write_example(struct buf *out)
{
    buf_text(out, "# Settings of sagad: sagad serve --config FILE. The environment wins over this"
                  " file,\n# flags win over both.\n");
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const struct config_option *option = &config_options[i];
        buf_text(out, "\n");
        write_wrapped(out, "# ", option->help);
        buf_printf(out, "#%s = %s\n", option->name, option->default_text);
    }
}

/* In a file " ;" begins a comment, and spaces around a value are not of it: such a value came from
 * elsewhere. */
static bool stands_in_a_file(const char *text)
{
    size_t size = strlen(text);
    return !strstr(text, " ;") && *text != ' ' && (!size || text[size - 1] != ' ');
}

void config_write_values(const struct config *config, struct buf *out)
{
    static const char *const sources[] = { "default", "file", "environment", "flag" };
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const struct config_option *option = &config_options[i];
        if (!(option->commands & config->command))
            continue;
        const char *text = config_text(config, (enum config_id)i);
        if (option->secret && *text)
            buf_printf(out, "#%s = (secret) ; %s\n", option->name, sources[config->sources[i]]);
        else
            buf_printf(out, "%s%s =%s%s ; %s\n", stands_in_a_file(text) ? "" : "#", option->name,
                       *text == ';' ? "" : " ", text, sources[config->sources[i]]);
    }
}
