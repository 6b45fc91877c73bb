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
        [CONFIG_TYPE_MEMORY] = " TIME",
        [CONFIG_TYPE_BROKERS] = " BROKERS",
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

static void write_rule_example(struct buf *out)
{
    buf_text(out, "\n");
    write_wrapped(out, "# ",
                  "Rules: which records of a Kafka topic start sagas. Each is a section of its own,"
                  " behind all that stands above, with a name of [a-z0-9-].");
    buf_text(out, "#[kafka settlements]\n");
    for (int i = 0; i < RULE_KEY_COUNT; i++) {
        const struct kafka_rule_key_info *key = &kafka_rule_keys[i];
        buf_text(out, "\n");
        write_wrapped(out, "# ", key->help);
        if (!key->default_text)
            buf_text(out, "# Required.\n");
        else if (*key->default_text)
            buf_printf(out, "# Default: %s\n", key->default_text);
        buf_printf(out, "#%s = %s\n", key->name, key->example);
    }
    buf_text(out, "\n");
    write_wrapped(
        out, "# ",
        "Settings of librdkafka, passed through: before any section for all that sagad does"
        " with Kafka, in a section for its rule. Those that would break a promise are"
        " refused.");
    buf_text(out, "#librdkafka.security.protocol = ssl\n");
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
    write_rule_example(out);
}

/* In a file " ;" begins a comment, and spaces around a value are not of it: such a value came from
 * elsewhere. */
static bool stands_in_a_file(const char *text)
{
    size_t size = strlen(text);
    return !strstr(text, " ;") && *text != ' ' && (!size || text[size - 1] != ' ');
}

/* In a file " ;" begins a comment: such a value stands behind its sign at once. */
static void write_pair(const char *name, const char *text, const char *source, struct buf *out)
{
    buf_printf(out, "%s =%s%s ; %s\n", name, *text == ';' ? "" : " ", text, source);
}

static void write_properties(const struct kafka_properties *properties, struct buf *out)
{
    for (size_t i = 0; i < properties->count; i++) {
        const struct kafka_property *item = &properties->items[i];
        bool is_secret = kafka_property_is_secret(item->name);
        buf_text(out, is_secret ? "#librdkafka." : "librdkafka.");
        write_pair(item->name, is_secret ? "(secret)" : item->value, "file", out);
    }
}

static void write_rule(const struct kafka_rule *rule, struct buf *out)
{
    buf_printf(out, "\n[kafka %s] ; line %u\n", rule->name, rule->line);
    for (int i = 0; i < RULE_KEY_COUNT; i++) {
        const char *text = rule->texts[i];
        if (i == RULE_FILTER)
            continue;
        if (!text)
            text = i == RULE_GROUP ? rule->group : kafka_rule_keys[i].default_text;
        write_pair(kafka_rule_keys[i].name, text, rule->texts[i] ? "file" : "default", out);
    }
    for (size_t i = 0; i < rule->filter_count; i++) {
        const struct kafka_filter *filter = &rule->filters[i];
        buf_printf(out, "filter = %s:%s%s=%s ; file\n", filter->is_header ? "header" : "field",
                   filter->name, filter->is_not ? "!" : "", filter->text);
    }
    write_properties(&rule->properties, out);
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
    write_properties(&config->kafka, out);
    for (size_t i = 0; i < config->rule_count; i++)
        write_rule(config->rules[i], out);
}
