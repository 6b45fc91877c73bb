/* Goal: no text crashes the parser of filters; what is refused names the column, within the text,
 * and what is taken lies within the limits. Method: the first byte chooses the scope, the rest is
 * the text. */
#include "fuzz.h"
#include "wire/filter.h"

#include <string.h>

static void check_text(const char *text, size_t most)
{
    FUZZ_CHECK(!text || (*text && strlen(text) <= most));
}

static void check_taken(const struct saga_filter *filter, enum filter_scope scope)
{
    check_text(filter->namespace_, LIMIT_NAMESPACE_BYTES);
    check_text(filter->definition, LIMIT_DEFINITION_NAME_BYTES);
    check_text(filter->saga_id, LIMIT_SAGA_ID_BYTES);
    check_text(filter->saga_id_prefix, LIMIT_SAGA_ID_BYTES);
    check_text(filter->park_step, LIMIT_STEP_NAME_BYTES);
    check_text(filter->park_code, LIMIT_ERROR_CODE_BYTES);
    FUZZ_CHECK(!filter->saga_id || !filter->saga_id_prefix);
    FUZZ_CHECK(filter->label_count <= LIMIT_LABELS);
    for (size_t i = 0; i < filter->label_count; i++) {
        check_text(filter->labels[i].key, LIMIT_LABEL_BYTES);
        check_text(filter->labels[i].value, LIMIT_LABEL_BYTES);
    }
    bool of_effects = filter->step || filter->has_operation || span_is_set(&filter->dispatched) ||
                      span_is_set(&filter->sure) || span_is_set(&filter->possible) ||
                      span_is_set(&filter->first_us) || span_is_set(&filter->last_us);
    FUZZ_CHECK(!of_effects || scope == FILTER_EFFECTS);
    (void)saga_filter_wants_parked(filter); /* either */
}

static void check_refused(const struct err *err, size_t size)
{
    size_t column = 0;
    FUZZ_CHECK(err->code == ERR_INVALID && strcmp(err->field, "filter") == 0);
    if (sscanf(err->msg, "filter: column %zu: ", &column) == 1)
        FUZZ_CHECK(column >= 1 && column <= size + 1);
    else
        FUZZ_CHECK(size > FILTER_BYTES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script script = { data, size };
    enum filter_scope scope = script_choice(&script, 2) ? FILTER_EFFECTS : FILTER_SAGAS;
    struct arena arena = { 0 };
    struct saga_filter filter = { 0 };
    struct err err = { 0 };
    char *text = mem_calloc(1, script.left + 1); /* its own block: a read beyond the end is seen */
    FUZZ_CHECK(text);
    if (script.left)
        memcpy(text, script.data, script.left);
    size_t length = strlen(text);
    if (filter_parse(text, scope, &arena, &filter, &err))
        check_refused(&err, length);
    else
        check_taken(&filter, scope);
    mem_free(text);
    arena_done(&arena);
    return 0;
}
