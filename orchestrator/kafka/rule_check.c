#include "kafka/rule.h"
#include "schema/definition_types.h"
#include "schema/payload.h"

#include <string.h>

/* Is the text one that the field can have at all? Else the filter would pass over everything. */
static int check_filter_text(const struct schema_field *field, const char *text, struct err *err)
{
    size_t digits = strspn(text, "-0123456789");
    switch (field->kind) {
    case KIND_STRING:
        return 0;
    case KIND_BOOL:
        if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
            return 0;
        return err_set(err, ERR_INVALID, "is true or false, never \"%.100s\"", text);
    case KIND_ENUM:
        if (schema_value_by_name(field->enumeration, text) || (digits && !text[digits]))
            return 0;
        return err_set(err, ERR_INVALID, "\"%.60s\" is no value of %.100s", text,
                       field->enumeration->full_name);
    default:
        if (digits && !text[digits])
            return 0;
        return err_set(err, ERR_INVALID, "is a whole number, never \"%.100s\"", text);
    }
}

static int check_filters(const struct kafka_rule *rule, const struct schema_message *type,
                         struct err *err)
{
    for (size_t i = 0; i < rule->filter_count; i++) {
        const struct kafka_filter *filter = &rule->filters[i];
        const struct schema_field *field = NULL;
        if (filter->is_header)
            continue;
        int rc = payload_field_find(type, filter->name, &field, err);
        if (!rc)
            rc = check_filter_text(field, filter->text, err);
        if (rc)
            return err_wrap(err, "filter = field:%.64s", filter->name);
    }
    return 0;
}

static int check_value(const struct kafka_rule *rule, const struct definition *definition,
                       const struct schema_message *type, struct err *err)
{
    if (rule->value == KAFKA_VALUE_PROTOBUF && !type)
        return err_set(err, ERR_INVALID,
                       "value = protobuf: %s has no input type to read it by; json and bytes are "
                       "kept as they are",
                       definition->name);
    if (rule->value == KAFKA_VALUE_BYTES && type)
        return err_set(err, ERR_INVALID,
                       "value = bytes: the input of %s is a %.120s: protobuf or "
                       "json",
                       definition->name, type->full_name);
    return 0;
}

static int check(const struct kafka_rule *rule, const struct definition *definition,
                 struct err *err)
{
    const struct schema *schema = NULL;
    const struct schema_message *type = definition_input_type(definition, &schema);
    int rc = check_value(rule, definition, type, err);
    if (rc)
        return rc;
    if (rule->key == KAFKA_KEY_DEFINITION && !definition->key_template)
        return err_set(err, ERR_INVALID,
                       "key is missing: %s makes none of its input; record-key, header:NAME or "
                       "template:{field}",
                       definition->name);
    if (type && rule->key == KAFKA_KEY_TEMPLATE &&
        payload_template_check(type, rule->key_text, err) != 0)
        return err_wrap(err, "key = template");
    return type ? check_filters(rule, type, err) : 0;
}

int kafka_rule_check(const struct kafka_rule *rule, const struct definition *definition,
                     struct err *err)
{
    return check(rule, definition, err) ? err_wrap(err, "[kafka %s]", rule->name) : 0;
}
