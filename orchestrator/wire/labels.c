#include "wire/labels.h"

#include "base/mem.h"

#include <jansson.h>

static void json_decref_p(json_t **json)
{
    json_decref(*json);
}

int labels_to_json(const struct label *labels, size_t count, char **ret, struct err *err)
{
    if (!count) {
        *ret = NULL;
        return 0;
    }
    CLEANUP(json_decref_p) json_t *object = json_object();
    for (size_t i = 0; i < count; i++) {
        if (json_object_set_new(object, labels[i].key, json_string(labels[i].value)))
            return err_set(err, ERR_NOMEM, "labels");
    }
    size_t flags = JSON_COMPACT | JSON_SORT_KEYS;
    size_t size = json_dumpb(object, NULL, 0, flags);
    CLEANUP(mem_free_p) char *text = size ? mem_calloc(1, size + 1) : NULL;
    if (!text || json_dumpb(object, text, size, flags) != size)
        return err_set(err, ERR_NOMEM, "labels");
    *ret = TAKE(text);
    return 0;
}

int labels_from_json(struct arena *arena, const char *json, struct label **ret, size_t *ret_count,
                     struct err *err)
{
    if (!json) {
        *ret = NULL;
        *ret_count = 0;
        return 0;
    }
    CLEANUP(json_decref_p) json_t *object = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(object))
        return err_set(err, ERR_INTERNAL, "stored labels are not a JSON object");
    struct label *labels = arena_array(arena, json_object_size(object), sizeof *labels);
    if (!labels)
        return err_set(err, ERR_NOMEM, "labels");
    size_t count = 0;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (!json_is_string(value))
            return err_set(err, ERR_INTERNAL, "stored label '%s' is not text", key);
        labels[count].key = arena_strdup(arena, key);
        labels[count].value = arena_strdup(arena, json_string_value(value));
        if (!labels[count].key || !labels[count].value)
            return err_set(err, ERR_NOMEM, "labels");
        count++;
    }
    *ret = labels;
    *ret_count = count;
    return 0;
}
