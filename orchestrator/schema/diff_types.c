#include "schema/derive_internal.h"
#include "schema/diff_internal.h"

#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Types may be made of themselves: a pair is looked at once, in the order of finding. */
struct diff_pair {
    const void *key;                       /* the message or enum as it was */
    const struct schema_message *was, *is; /* NULL: enums */
    const struct schema_enum *was_enum, *is_enum;
    UT_hash_handle hh;
};

static void add_pair(struct diff *diff, const struct diff_pair *found)
{
    struct diff_pair *pair;
    HASH_FIND_PTR(diff->pairs, &found->key, pair);
    if (pair)
        return;
    pair = mem_calloc(1, sizeof *pair);
    if (pair) {
        *pair = *found;
        HASH_ADD_PTR(diff->pairs, key, pair);
    }
    if (pair && hash_holds(&pair->hh))
        return;
    mem_free(pair);
    diff->oom = true;
}

/* ---- A field that is on both sides ----------------------------------------------------------- */

enum { TRAIT_BYTES = FLOW_TYPE_BYTES };
typedef void trait_fn(const struct schema_message *message, const struct schema_field *field,
                      char ret[TRAIT_BYTES]);

static void say_type(const struct schema_message *message, const struct schema_field *field,
                     char ret[TRAIT_BYTES])
{
    (void)message;
    flow_type_describe(field, ret);
}

static void say_required(const struct schema_message *message, const struct schema_field *field,
                         char ret[TRAIT_BYTES])
{
    (void)message;
    (void)snprintf(ret, TRAIT_BYTES, "%s", field->required ? "required" : "optional");
}

static void say_oneof(const struct schema_message *message, const struct schema_field *field,
                      char ret[TRAIT_BYTES])
{
    if (field->oneof < 0)
        (void)snprintf(ret, TRAIT_BYTES, "in no oneof");
    else
        (void)snprintf(ret, TRAIT_BYTES, "in oneof %s", message->oneof_names[field->oneof]);
}

static void say_default(const struct schema_message *message, const struct schema_field *field,
                        char ret[TRAIT_BYTES])
{
    (void)message;
    char quoted[DIFF_VALUE_BYTES];
    if (field->default_value)
        (void)snprintf(ret, TRAIT_BYTES, "%s by default", diff_quote(field->default_value, quoted));
    else
        (void)snprintf(ret, TRAIT_BYTES, "without a default of its own");
}

static void say_name(const struct schema_message *message, const struct schema_field *field,
                     char ret[TRAIT_BYTES])
{
    (void)message;
    (void)snprintf(ret, TRAIT_BYTES, "named %s", field->name);
}

static void say_json_name(const struct schema_message *message, const struct schema_field *field,
                          char ret[TRAIT_BYTES])
{
    (void)message;
    (void)snprintf(ret, TRAIT_BYTES, "\"%s\" in JSON", field->json_name);
}

static void say_presence(const struct schema_message *message, const struct schema_field *field,
                         char ret[TRAIT_BYTES])
{
    (void)message;
    (void)snprintf(ret, TRAIT_BYTES, "%s",
                   field->presence ? "absent or zero, told apart" : "zero when absent");
}

static void say_packed(const struct schema_message *message, const struct schema_field *field,
                       char ret[TRAIT_BYTES])
{
    (void)message;
    (void)snprintf(ret, TRAIT_BYTES, "%s", field->packed ? "packed" : "not packed");
}

#define JSON_WHY "JSON and templates that were written with the old name do not find it"

/* The gravest comes first, and what follows from it is not told. */
static const struct trait {
    trait_fn *say;
    enum diff_severity severity;
    const char *why;
} traits[] = {
    { say_type, DIFF_BREAKING, "what is sent as the one is not always read right as the other" },
    { say_required, DIFF_BREAKING, "a message without it is refused by one of the two" },
    { say_oneof, DIFF_BREAKING, "of the fields of a oneof only one is there" },
    { say_default, DIFF_WARNING, "what is absent is read as something else" },
    { say_name, DIFF_WARNING, JSON_WHY },
    { say_json_name, DIFF_WARNING, JSON_WHY },
    { say_presence, DIFF_NOTE, "the bytes of both are read by both" },
    { say_packed, DIFF_NOTE, "the bytes of both are read by both" },
};

static void diff_same_field(struct diff *diff, const char *path, const struct diff_pair *pair,
                            const struct schema_field *was, const struct schema_field *is)
{
    for (size_t i = 0; i < ARRAY_LEN(traits); i++) {
        char before[TRAIT_BYTES], now[TRAIT_BYTES];
        traits[i].say(pair->was, was, before);
        traits[i].say(pair->is, is, now);
        if (strcmp(before, now) == 0)
            continue;
        diff_tell(diff, traits[i].severity, path, "%s.%s (field %" PRIu32 ") was %s, is %s: %s",
                  pair->was->full_name, was->name, was->number, before, now, traits[i].why);
        if (i == 0)
            return; /* what they are made of is another thing anyway */
        break;
    }
    if (was->message && is->message)
        add_pair(diff, &(struct diff_pair){
                           .key = was->message, .was = was->message, .is = is->message });
    if (was->enumeration && is->enumeration)
        add_pair(diff, &(struct diff_pair){ .key = was->enumeration,
                                            .was_enum = was->enumeration,
                                            .is_enum = is->enumeration });
}

/* ---- Messages and enums ---------------------------------------------------------------------- */

static void tell_removed(struct diff *diff, const char *path, const struct schema_message *message,
                         const struct schema_field *field)
{
    diff_tell(diff, DIFF_BREAKING, path,
              "%s.%s (field %" PRIu32 ") was removed: what is still sent in it is passed over, and "
              "who reads it finds nothing",
              message->full_name, field->name, field->number);
}

static void tell_added(struct diff *diff, const char *path, const struct schema_message *message,
                       const struct schema_field *field)
{
    char type[FLOW_TYPE_BYTES];
    flow_type_describe(field, type);
    diff_tell(diff, field->required ? DIFF_BREAKING : DIFF_NOTE, path,
              "%s.%s (field %" PRIu32 ", %s) was added: %s", message->full_name, field->name,
              field->number, type,
              field->required ? "it is required, so what was made without it is refused"
                              : "whoever does not know it passes over it");
}

static void diff_messages(struct diff *diff, const char *path, const struct diff_pair *pair)
{
    const struct schema_message *was = pair->was, *is = pair->is;
    if (was->map_entry != is->map_entry)
        diff_tell(diff, DIFF_BREAKING, path, "%s was %s, is %s: JSON of the two differs",
                  was->full_name, was->map_entry ? "an entry of a map" : "a message",
                  is->map_entry ? "an entry of a map" : "a message");
    size_t i = 0, j = 0;
    while (i < was->field_count || j < is->field_count) {
        bool is_gone = j == is->field_count ||
                       (i < was->field_count && was->fields[i].number < is->fields[j].number);
        if (is_gone)
            tell_removed(diff, path, was, &was->fields[i++]);
        else if (i == was->field_count || is->fields[j].number < was->fields[i].number)
            tell_added(diff, path, is, &is->fields[j++]);
        else
            diff_same_field(diff, path, pair, &was->fields[i++], &is->fields[j++]);
    }
}

/* Of several names for a number the first is compared. */
static void diff_enums(struct diff *diff, const char *path, const struct schema_enum *was,
                       const struct schema_enum *is)
{
    if (was->closed != is->closed)
        diff_tell(diff, is->closed ? DIFF_BREAKING : DIFF_NOTE, path,
                  "%s was %s, is %s: numbers that it does not declare are %s", was->full_name,
                  was->closed ? "closed" : "open", is->closed ? "closed" : "open",
                  is->closed ? "passed over" : "kept");
    for (size_t i = 0; i < was->value_count; i++) {
        const struct schema_value *before = was->by_number[i];
        if (i && was->by_number[i - 1]->number == before->number)
            continue;
        const struct schema_value *now = schema_value_by_number(is, before->number);
        if (!now)
            diff_tell(diff, DIFF_WARNING, path,
                      "%s.%s (%" PRId32 ") was removed: whoever still sends it is not understood",
                      was->full_name, before->name, before->number);
        else if (strcmp(before->name, now->name) != 0)
            diff_tell(diff, DIFF_WARNING, path, "%s.%s (%" PRId32 ") was named so, is %s: %s",
                      was->full_name, before->name, before->number, now->name, JSON_WHY);
    }
    for (size_t i = 0; i < is->value_count; i++) {
        const struct schema_value *now = is->by_number[i];
        if ((!i || is->by_number[i - 1]->number != now->number) &&
            !schema_value_by_number(was, now->number))
            diff_tell(diff, DIFF_NOTE, path,
                      "%s.%s (%" PRId32 ") was added: whoever does not know it keeps its number",
                      is->full_name, now->name, now->number);
    }
}

/* ---- All that a field of the definition reaches ---------------------------------------------- */

static const struct schema_message *find_message(const struct schema *schema, const char *full_name)
{
    return schema ? schema_message_find(schema, full_name) : NULL;
}

static void tell_blind(struct diff *diff, const char *path, const char *full_name,
                       const char *revision)
{
    if (!diff->blind)
        diff_tell(diff, DIFF_WARNING, path,
                  "%s is not in the descriptors of the %s revision: whether its fields changed "
                  "cannot be told, here and where else it is so",
                  full_name, revision);
    diff->blind = true;
}

void diff_type(struct diff *diff, const char *path, const char *full_name)
{
    if (diff->renamed_from)
        return;
    const struct schema_message *was = find_message(diff->was.schema, full_name);
    const struct schema_message *is = find_message(diff->is.schema, full_name);
    if (!was != !is)
        tell_blind(diff, path, full_name, was ? "new" : "old");
    if (!was || !is)
        return;
    add_pair(diff, &(struct diff_pair){ .key = was, .was = was, .is = is });
    struct diff_pair *next = diff->compared ? diff->compared->hh.next : diff->pairs;
    for (; next; next = next->hh.next) {
        if (next->was)
            diff_messages(diff, path, next);
        else
            diff_enums(diff, path, next->was_enum, next->is_enum);
        diff->compared = next;
    }
}

void diff_types_done(struct diff *diff)
{
    struct diff_pair *pair, *next;
    HASH_ITER(hh, diff->pairs, pair, next)
    {
        HASH_DEL(diff->pairs, pair);
        mem_free(pair);
    }
}
