#include "schema/definition_types.h"

#include "base/utf8.h"
#include "schema/payload.h"
#include "wire/arena.h"
#include "wire/definition_codec.h"
#include "wire/labels.h"

#include <stdio.h>
#include <string.h>

struct definition_types {
    struct payload_types base;
    struct schema *schema;
    const struct schema_message *input;        /* NULL: bytes */
    const struct schema_message *outputs[][2]; /* by step, action and compensation; NULL: bytes */
};

static const struct definition_types *types_of(const struct definition *definition)
{
    return CONTAINER(definition->types, struct definition_types, base);
}

/* Whose field it is: "output" alone would not say of what. */
static int place_in(const char *field, int rc, struct err *err)
{
    struct err inner = *err;
    bool has_path = inner.field[0] != '\0';
    (void)err_set(err, inner.code, "%s%s%s", field, has_path ? "." : ": ", inner.msg);
    (void)snprintf(err->field, sizeof err->field, "%s%s%.80s", field, has_path ? "." : "",
                   inner.field);
    return rc;
}

/* Appends what the template gives and a NUL. `field` is what it is for. */
static int fill_text(const struct definition *definition, const char *field, const char *text,
                     const struct bytes *input, size_t max, struct buf *out, struct err *err)
{
    size_t begin = out->size;
    int rc = payload_template_fill(types_of(definition)->input, text, input->data, input->size, max,
                                   out, err);
    if (rc == ERR_INVALID) {
        struct err inner = *err;
        rc = err_set(err, ERR_INVALID, "input: %s \"%s\" cannot be made of it: %s", field, text,
                     inner.msg);
        (void)snprintf(err->field, sizeof err->field, "input%s%.80s", inner.field[0] ? "." : "",
                       inner.field);
    }
    if (rc)
        return rc;
    size_t size = out->size - begin;
    if (!size || !utf8_is_text((const char *)out->data + begin, size))
        return err_field(err, "input", "input: %s \"%s\" cannot be made of it: %s", field, text,
                         size ? "control characters are not allowed" : "it would be empty");
    buf_append(out, "", 1);
    return out->failed ? err_set(err, ERR_NOMEM, "%s: out of memory", field) : 0;
}

static int make_saga_id(const struct definition *definition, const struct bytes *input,
                        struct payload_start *start, struct err *err)
{
    int rc = fill_text(definition, "the key", definition->key_template, input, LIMIT_SAGA_ID_BYTES,
                       &start->made, err);
    const char *made = buf_cstr(&start->made);
    if (!rc && *start->saga_id && strcmp(start->saga_id, made) != 0)
        rc = err_field(err, "saga_id",
                       "saga_id: is \"%.100s\", but the definition makes \"%.100s\" of the input: "
                       "leave it out, or give that",
                       start->saga_id, made);
    return rc;
}

/* Labels that are given and those that are made, each name once. */
static int merge_labels(const struct definition *definition, struct arena *arena,
                        const struct bytes *input, const char *given, struct label *ret,
                        size_t *ret_count, struct err *err)
{
    struct label *before = NULL;
    size_t count = 0;
    int rc = labels_from_json(arena, given, &before, &count, err);
    for (size_t i = 0; !rc && i < count; i++)
        ret[i] = before[i];
    for (size_t i = 0; !rc && i < definition->label_count; i++) {
        const struct label_template *label = &definition->labels[i];
        struct buf value = { 0 };
        rc =
            fill_text(definition, label->name, label->value, input, LIMIT_LABEL_BYTES, &value, err);
        const char *made = rc ? NULL : arena_strdup(arena, buf_cstr(&value));
        buf_done(&value);
        if (!rc && !made)
            rc = err_set(err, ERR_NOMEM, "labels: out of memory");
        size_t same = 0;
        while (!rc && same < count && strcmp(ret[same].key, label->name) != 0)
            same++;
        if (!rc && same < count && strcmp(ret[same].value, made) != 0)
            rc = err_field(err, "labels", "labels: \"%s\" is made of the input by the definition",
                           label->name);
        if (!rc && same == LIMIT_LABELS)
            rc = err_field(err, "labels", "labels: more than %d with those of the definition",
                           LIMIT_LABELS);
        if (!rc && same == count)
            ret[count++] = (struct label){ label->name, made };
    }
    *ret_count = count;
    return rc;
}

static int make_labels(const struct definition *definition, const struct bytes *input,
                       struct payload_start *start, size_t *ret_at, struct err *err)
{
    struct arena arena = { 0 };
    struct label labels[LIMIT_LABELS];
    size_t count = 0;
    char *json = NULL;
    int rc = merge_labels(definition, &arena, input, start->labels, labels, &count, err);
    if (!rc)
        rc = labels_to_json(labels, count, &json, err);
    *ret_at = start->made.size;
    if (!rc && json)
        buf_append(&start->made, json, strlen(json) + 1);
    mem_free(json);
    arena_done(&arena);
    return rc;
}

/* So that no operation finds later that its key cannot be made. */
static int try_key(const struct definition *definition, const struct operation_rule *rule,
                   const struct bytes *input, struct err *err)
{
    struct buf key = { 0 };
    int rc = rule->key_template ? fill_text(definition, "the idempotency key", rule->key_template,
                                            input, LIMIT_IDEMPOTENCY_KEY_BYTES, &key, err)
                                : 0;
    buf_done(&key);
    return rc;
}

static int types_start(const struct definition *definition, const struct bytes *input,
                       struct payload_start *start, struct err *err)
{
    const struct definition_types *types = types_of(definition);
    size_t labels_at = 0;
    int rc = types->input ? payload_check(types->input, input->data, input->size, err) : 0;
    if (rc)
        return place_in("input", rc, err);
    for (size_t i = 0; !rc && i < definition->step_count; i++) {
        rc = try_key(definition, &definition->steps[i].action, input, err);
        if (!rc)
            rc = try_key(definition, &definition->steps[i].compensation, input, err);
    }
    if (!rc && definition->key_template)
        rc = make_saga_id(definition, input, start, err);
    if (!rc && definition->label_count)
        rc = make_labels(definition, input, start, &labels_at, err);
    if (!rc && start->made.failed)
        rc = err_set(err, ERR_NOMEM, "start: out of memory");
    if (!rc && definition->key_template)
        start->saga_id = buf_cstr(&start->made);
    if (!rc && definition->label_count)
        start->labels = buf_cstr(&start->made) + labels_at;
    return rc;
}

static int types_output(const struct definition *definition, size_t step, enum operation operation,
                        const struct bytes *output, struct err *err)
{
    const struct schema_message *type =
        types_of(definition)->outputs[step][operation == OPERATION_COMPENSATION];
    int rc = type ? payload_check(type, output->data, output->size, err) : 0;
    return rc ? place_in(definition->steps[step].signal ? "payload" : "output", rc, err) : 0;
}

static int types_fill(const struct definition *definition, const char *text,
                      const struct bytes *input, size_t max, struct buf *out, struct err *err)
{
    return payload_template_fill(types_of(definition)->input, text, input->data, input->size, max,
                                 out, err);
}

static void types_free(struct payload_types *base)
{
    struct definition_types *types = CONTAINER(base, struct definition_types, base);
    (void)schema_free(types->schema); /* always NULL */
    mem_free(types);
}

static const struct payload_types_ops ops = {
    .start = types_start,
    .output = types_output,
    .fill = types_fill,
    .free = types_free,
};

const struct schema_message *definition_input_type(const struct definition *definition,
                                                   const struct schema **ret_schema)
{
    if (!definition->types || definition->types->ops != &ops)
        return NULL;
    *ret_schema = types_of(definition)->schema;
    return types_of(definition)->input;
}

static int find(const struct schema *schema, const char *name, const struct schema_message **ret,
                struct err *err)
{
    *ret = name ? schema_message_find(schema, name) : NULL;
    return name && !*ret ? err_set(err, ERR_INTERNAL, "the stored descriptors lack %s", name) : 0;
}

static int find_all(const struct definition *definition, struct definition_types *types,
                    struct err *err)
{
    int rc = find(types->schema, definition->input_type, &types->input, err);
    for (size_t i = 0; !rc && i < definition->step_count; i++) {
        const struct step_rule *step = &definition->steps[i];
        rc = find(types->schema, step->action.output_type, &types->outputs[i][0], err);
        if (!rc)
            rc = find(types->schema, step->compensation.output_type, &types->outputs[i][1], err);
    }
    return rc;
}

int definition_types_add(struct definition *definition, const struct bytes *descriptors,
                         struct err *err)
{
    if (!descriptors->size)
        return 0;
    struct definition_types *types =
        mem_calloc(1, sizeof *types + definition->step_count * sizeof types->outputs[0]);
    if (!types)
        return err_set(err, ERR_NOMEM, "types of a definition");
    types->base.ops = &ops;
    int rc = schema_new(descriptors->data, descriptors->size, &types->schema, err);
    if (rc) { /* they were good, and within every limit, when they were stored */
        err->code = rc == ERR_INVALID ? ERR_INTERNAL : ERR_NOMEM;
        rc = err_wrap(err, "stored descriptors");
    }
    if (!rc)
        rc = find_all(definition, types, err);
    if (rc) {
        types_free(&types->base);
        return rc;
    }
    definition->types = &types->base;
    return 0;
}

int definition_decode_typed(const struct bytes *content, const struct bytes *descriptors,
                            struct definition **ret, struct err *err)
{
    CLEANUP(definition_free_p) struct definition *definition = NULL;
    int rc = definition_decode(content, &definition, err);
    if (!rc)
        rc = definition_types_add(definition, descriptors, err);
    if (!rc)
        *ret = TAKE(definition);
    return rc;
}
