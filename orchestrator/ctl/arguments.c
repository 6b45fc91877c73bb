#include "ctl/arguments.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Options that every verb has. */
static const struct ctl_option common_options[] = {
    { "address", "ADDRESS", false,
      "the server: HOST:PORT or unix:/PATH ($SAGACTL_ADDRESS; default 127.0.0.1:7233)" },
    { "namespace", "NAME", false, "namespace of definitions and sagas (default: default)" },
    { "output", "FORMAT", false, "text (default) or json; also -o" },
    { "timeout", "SECONDS", false, "give up after so long (default 30)" },
    { "help", NULL, false, "this text; also -h" },
    { "version", NULL, false, "the version" },
    { NULL, NULL, false, NULL },
};

static const struct ctl_option *option_find(const struct ctl_option *options, const char *name,
                                            size_t size, size_t *ret_index)
{
    for (size_t i = 0; options && options[i].name; i++) {
        if (strlen(options[i].name) == size && strncmp(options[i].name, name, size) == 0) {
            *ret_index = i;
            return &options[i];
        }
    }
    return NULL;
}

/* The verb that the first one or two words name; *ret_words: how many it took, 0: none. */
static const struct ctl_verb *verb_find(const struct ctl_verb *const *verbs, const char *first,
                                        const char *second, size_t *ret_words)
{
    *ret_words = 0;
    for (size_t i = 0; verbs[i]; i++) {
        const char *blank = strchr(verbs[i]->name, ' ');
        size_t size = blank ? (size_t)(blank - verbs[i]->name) : strlen(verbs[i]->name);
        if (strlen(first) != size || strncmp(first, verbs[i]->name, size) != 0)
            continue;
        if (blank && (!second || strcmp(second, blank + 1) != 0))
            continue;
        *ret_words = blank ? 2 : 1;
        return verbs[i];
    }
    return NULL;
}

static void take_common(struct ctl_arguments *arguments, size_t index, const char *value)
{
    const char **const values[] = { &arguments->address, &arguments->namespace_, &arguments->output,
                                    &arguments->timeout };
    if (index < ARRAY_LEN(values))
        *values[index] = value;
    else if (index == ARRAY_LEN(values))
        arguments->help = true;
    else
        arguments->version = true;
}

static int take_own(struct ctl_arguments *arguments, const struct ctl_option *option, size_t index,
                    const char *value, struct err *err)
{
    size_t *count = &arguments->options[index].count;
    if (*count && !option->repeatable)
        return err_set(err, ERR_INVALID, "--%s is given twice", option->name);
    if (*count == CTL_REPEATS_MAX)
        return err_set(err, ERR_INVALID, "--%s is given more than %d times", option->name,
                       CTL_REPEATS_MAX);
    arguments->options[index].values[(*count)++] = value;
    return 0;
}

/* "--name value", "--name=value", "--name", "-o json", "-h", "-I DIR", "-IDIR" at argv[*i]. */
static int take_option(struct ctl_arguments *arguments, int argc, char **argv, int *i,
                       struct err *err)
{
    const char *word = argv[*i];
    const char *name = strcmp(word, "-o") == 0       ? "output"
                       : strcmp(word, "-h") == 0     ? "help"
                       : strncmp(word, "-I", 2) == 0 ? "proto-path"
                       : strncmp(word, "--", 2) == 0 ? word + 2
                                                     : NULL;
    if (!name)
        return err_set(err, ERR_INVALID, "unknown option %s", word);
    size_t index = 0;
    size_t size = strcspn(name, "=");
    const char *value = name[size] ? name + size + 1 : NULL;
    if (strncmp(word, "-I", 2) == 0 && word[2])
        value = word + 2; /* as protoc has it */
    const struct ctl_option *own = arguments->verb ? arguments->verb->options : NULL;
    const struct ctl_option *option = option_find(own, name, size, &index);
    bool is_own = option != NULL;
    if (!option)
        option = option_find(common_options, name, size, &index);
    if (!option)
        return err_set(err, ERR_INVALID, "unknown option %s", word);
    if (value && !option->value)
        return err_set(err, ERR_INVALID, "--%s takes no value", option->name);
    if (!value && option->value) {
        if (*i + 1 >= argc)
            return err_set(err, ERR_INVALID, "--%s needs a value", option->name);
        value = argv[++*i];
    }
    if (is_own)
        return take_own(arguments, option, index, value ? value : "", err);
    take_common(arguments, index, value);
    return 0;
}

static int take_positional(struct ctl_arguments *arguments, const char *word, struct err *err)
{
    const struct ctl_verb *verb = arguments->verb;
    if (!verb)
        return err_set(err, ERR_INVALID, "unknown command \"%s\"", word);
    if (arguments->count >= verb->max)
        return err_set(err, ERR_INVALID, "unexpected argument \"%s\": sagactl %s %s", word,
                       verb->name, verb->arguments);
    arguments->positional[arguments->count++] = word;
    return 0;
}

/* Finds the verb before anything else is read, so that options may stand before it. */
static int take_verb(const struct ctl_verb *const *verbs, int argc, char **argv, int *words,
                     struct ctl_arguments *arguments, struct err *err)
{
    int count = 0;
    for (int i = 1; i < argc && count < 2; i++) {
        size_t index;
        if (argv[i][0] != '-' || !argv[i][1]) {
            words[count++] = i;
            continue;
        }
        const char *name = strcmp(argv[i], "-o") == 0 ? "output" : argv[i] + strspn(argv[i], "-");
        const struct ctl_option *option = option_find(common_options, name, strlen(name), &index);
        if (option && option->value)
            i++; /* its value is no verb */
    }
    if (!count)
        return 0;
    size_t taken = 0;
    const char *second = count > 1 ? argv[words[1]] : NULL;
    arguments->verb = verb_find(verbs, argv[words[0]], second, &taken);
    if (!arguments->verb)
        return err_set(err, ERR_INVALID, "unknown command \"%s%s%s\"", argv[words[0]],
                       second ? " " : "", second ? second : "");
    if (taken < 2)
        words[1] = 0;
    return 0;
}

int ctl_arguments_read(const struct ctl_verb *const *verbs, int argc, char **argv,
                       struct ctl_arguments *ret, struct err *err)
{
    struct ctl_arguments arguments = { 0 };
    int words[2] = { 0, 0 };
    bool only_positional = false;
    if (take_verb(verbs, argc, argv, words, &arguments, err) != 0)
        return err->code;
    for (int i = 1; i < argc; i++) {
        if (i == words[0] || i == words[1])
            continue;
        bool is_option = argv[i][0] == '-' && argv[i][1] && !only_positional;
        int rc = 0;
        if (is_option && strcmp(argv[i], "--") == 0)
            only_positional = true;
        else if (is_option)
            rc = take_option(&arguments, argc, argv, &i, err);
        else
            rc = take_positional(&arguments, argv[i], err);
        if (rc != 0)
            return rc;
    }
    bool runs = arguments.verb && !arguments.help && !arguments.version;
    if (runs && arguments.count < arguments.verb->min)
        return err_set(err, ERR_INVALID, "an argument is missing: sagactl %s %s",
                       arguments.verb->name, arguments.verb->arguments);
    *ret = arguments;
    return 0;
}

static size_t index_of(const struct ctl_arguments *arguments, const char *name)
{
    size_t index = 0;
    const struct ctl_option *option =
        option_find(arguments->verb->options, name, strlen(name), &index);
    assert(option && index < CTL_OPTIONS_MAX);
    return index;
}

const char *ctl_option(const struct ctl_arguments *arguments, const char *name)
{
    size_t index = index_of(arguments, name);
    size_t count = arguments->options[index].count;
    return count ? arguments->options[index].values[count - 1] : NULL;
}

size_t ctl_option_all(const struct ctl_arguments *arguments, const char *name,
                      const char *const **ret_values)
{
    size_t index = index_of(arguments, name);
    *ret_values = arguments->options[index].values;
    return arguments->options[index].count;
}

int ctl_option_number(const struct ctl_arguments *arguments, const char *name, int64_t min,
                      int64_t max, int64_t otherwise, int64_t *ret, struct err *err)
{
    const char *text = ctl_option(arguments, name);
    if (!text) {
        *ret = otherwise;
        return 0;
    }
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno || end == text || *end || number < min || number > max)
        return err_set(err, ERR_INVALID,
                       "--%s must be a number from %" PRId64 " to %" PRId64 ", not \"%s\"", name,
                       min, max, text);
    *ret = number;
    return 0;
}

bool ctl_duration(const char *text, int64_t *ret_ms)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = { { "", 1000 },   { "ms", 1 },      { "s", 1000 },
                  { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };
    if (*text < '0' || *text > '9')
        return false;
    size_t size = strspn(text, "0123456789.");
    char *end;
    double value = strtod(text, &end);
    if (end != text + size || value > 1e9)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (strcmp(end, units[i].name) == 0) {
            *ret_ms = (int64_t)(value * units[i].ms);
            return true;
        }
    }
    return false;
}

static void write_options(const struct ctl_option *options, struct buf *out)
{
    for (size_t i = 0; options && options[i].name; i++) {
        char left[64];
        (void)snprintf(left, sizeof left, "--%s%s%s", options[i].name, options[i].value ? " " : "",
                       options[i].value ? options[i].value : "");
        buf_printf(out, "  %-24s %s%s\n", left, options[i].help,
                   options[i].repeatable ? " (may be repeated)" : "");
    }
}

void ctl_write_usage(const struct ctl_verb *const *verbs, struct buf *out)
{
    buf_text(out, "sagactl asks and tells a sagad what its sagas do.\n\n");
    for (size_t i = 0; verbs[i]; i++) {
        char left[64];
        (void)snprintf(left, sizeof left, "%s %s", verbs[i]->name, verbs[i]->arguments);
        buf_printf(out, "  %-41s %.*s\n", left, (int)strcspn(verbs[i]->help, "\n"), verbs[i]->help);
    }
    buf_text(out, "\nOptions of every command (sagactl COMMAND --help tells its own):\n");
    write_options(common_options, out);
    buf_text(out, "\nExit codes: 0 done, 1 refused or failed, 2 wrong usage; wait has its own.\n");
}

void ctl_write_help(const struct ctl_verb *verb, struct buf *out)
{
    buf_printf(out, "sagactl %s %s\n\n%s\n", verb->name, verb->arguments, verb->help);
    if (verb->options) {
        buf_text(out, "\nOptions:\n");
        write_options(verb->options, out);
    }
    buf_text(out, "\nOptions of every command:\n");
    write_options(common_options, out);
}
