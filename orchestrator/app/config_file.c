#include "app/config.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 8192 }; /* with its end */

/* What inih's two callbacks share. */
struct reading {
    struct config *config;
    FILE *file;
    unsigned line;           /* the one that was handed to inih last */
    struct kafka_rule *rule; /* of the section that it is in, owned by config; NULL: in none */
    struct err *err;
    bool failed; /* err is set; nothing more is looked at */
};

static char *refuse_line(struct reading *reading, const char *what)
{
    reading->failed = true;
    (void)err_set(reading->err, ERR_INVALID, "the line %s", what);
    return NULL;
}

/* ---- sections ---- */

/* The section is over: an error stands at its first line. */
static int end_section(struct reading *reading)
{
    struct kafka_rule *rule = reading->rule;
    reading->rule = NULL;
    if (!rule)
        return 0;
    int rc = kafka_rule_finish(rule, reading->err);
    for (size_t i = 0; !rc && i + 1 < reading->config->rule_count; i++)
        if (strcmp(reading->config->rules[i]->group, rule->group) == 0)
            rc = err_set(reading->err, ERR_INVALID, "group: \"%.100s\" is that of [kafka %s]",
                         rule->group, reading->config->rules[i]->name);
    if (rc) {
        reading->line = rule->line;
        (void)err_wrap(reading->err, "[kafka %s]", rule->name);
    }
    return rc;
}

static int add_rule(struct reading *reading, const char *name)
{
    struct config *config = reading->config;
    if (config->rule_count == KAFKA_RULES_MAX)
        return err_set(reading->err, ERR_INVALID, "more than %d rules", KAFKA_RULES_MAX);
    for (size_t i = 0; i < config->rule_count; i++)
        if (strcmp(config->rules[i]->name, name) == 0)
            return err_set(reading->err, ERR_INVALID,
                           "[kafka %s]: is there twice, first in line %u", name,
                           config->rules[i]->line);
    int rc = kafka_rule_new(name, reading->line, &reading->rule, reading->err);
    if (!rc)
        config->rules[config->rule_count++] = reading->rule;
    return rc;
}

/* "[kafka NAME]", and nothing behind it but a comment. inih would pass over a section without keys,
 * and cut its name. */
static int begin_section(struct reading *reading, const char *text)
{
    static const char kind[] = "[kafka ";
    char name[LINE_BYTES];
    size_t size = strcspn(text, "]\r\n");
    const char *rest = text + size + (text[size] == ']');
    rest += strspn(rest, " \t\r\n");
    int rc = end_section(reading);
    if (rc)
        return rc;
    if (text[size] != ']' || strncmp(text, kind, sizeof kind - 1) != 0 ||
        (*rest && *rest != ';' && *rest != '#'))
        return err_set(reading->err, ERR_INVALID, "a section is [kafka NAME], not \"%.*s\"",
                       (int)strcspn(text, "\r\n"), text);
    const char *start = text + sizeof kind - 1;
    start += strspn(start, " ");
    (void)snprintf(name, sizeof name, "%.*s", (int)(text + size - start), start);
    for (size_t end = strlen(name); end && name[end - 1] == ' ';)
        name[--end] = '\0';
    return add_rule(reading, name);
}

static const char *skip_space(const char *text)
{
    return text + strspn(text, " \t\v\f\r\n");
}

/* ---- inih ---- */

/* fgets for inih, which would cut long lines, and any line at a NUL byte, without a word: they are
 * refused here. */
static char *read_line(char *text, int size, void *ctx)
{
    struct reading *reading = ctx;
    int length = 0, c = 0;
    if (reading->failed)
        return NULL;
    reading->line++;
    while (c != '\n' && length + 1 < size && (c = getc(reading->file)) != EOF) {
        if (c == '\0')
            return refuse_line(reading, "holds a NUL byte");
        text[length++] = (char)c;
    }
    text[length] = '\0';
    if (c != '\n' && c != EOF && getc(reading->file) != EOF)
        return refuse_line(reading, "is too long");
    if (!length)
        return NULL;
    const char *start = skip_space(text);
    if (*start == '[' && begin_section(reading, start) != 0) {
        reading->failed = true;
        return NULL;
    }
    return text;
}

/* A key before any section. */
static int set_value(struct reading *reading, const char *name, const char *value)
{
    static const char prefix[] = "librdkafka.";
    struct config *config = reading->config;
    if (strncmp(name, prefix, sizeof prefix - 1) == 0)
        return kafka_properties_add(&config->kafka, name + sizeof prefix - 1, value, reading->line,
                                    reading->err);
    int id = config_find(name, CONFIG_FOR_SERVE | CONFIG_FOR_DEV);
    if (id < 0)
        return err_set(reading->err, ERR_INVALID, "unknown key \"%s\" (sagad --help lists them)",
                       name);
    if (config_options[id].commands & config->command)
        return config_set(config, (enum config_id)id, CONFIG_FROM_FILE, value, reading->err);
    struct config other = { .command = config_options[id].commands };
    int rc = config_set(&other, (enum config_id)id, CONFIG_FROM_FILE, value, reading->err);
    config_done(&other);
    return rc;
}

static int take_value(void *ctx, const char *section, const char *name, const char *value)
{
    struct reading *reading = ctx;
    (void)section; /* cut by inih; begin_section knows it */
    if (reading->failed)
        return 0;
    int rc = reading->rule ? kafka_rule_set(reading->rule, name, value, reading->line, reading->err)
                           : set_value(reading, name, value);
    if (rc && reading->rule)
        (void)err_wrap(reading->err, "[kafka %s]", reading->rule->name);
    reading->failed = rc != 0;
    return rc == 0;
}

int config_read_file(struct config *config, const char *path, struct err *err)
{
    struct reading reading = { .config = config, .err = err };
    reading.file = fopen(path, "re");
    if (!reading.file)
        return err_set(err, ERR_INVALID, "configuration file %s: %s", path, strerror(errno));
    ini_allow_multiline = false; /* a key may be indented */
    ini_max_line = LINE_BYTES;
    int rc = ini_parse_stream(read_line, &reading, take_value, &reading);
    bool unreadable = ferror(reading.file) != 0;
    (void)fclose(reading.file); /* it was only read */
    if (!reading.failed && !unreadable && rc == 0)
        reading.failed = end_section(&reading) != 0;
    if (reading.failed)
        return err_wrap(err, "%s, line %u", path, reading.line);
    if (unreadable)
        return err_set(err, ERR_INVALID, "configuration file %s: cannot be read", path);
    if (rc != 0)
        return err_set(err, ERR_INVALID, "%s, line %d: neither a comment nor \"key = value\"", path,
                       rc);
    return 0;
}
