/* Goal: what changed in payloads' types is told, once, whatever they are made of. Method: a message
 * for each kind of change in pairs of .proto files (golden/diff/), compared forwards and backwards;
 * each allocation failed in turn.
 *
 * SAGAD_GOLDEN_WRITE=1 writes what is expected anew: then read the diff. */
#include "definitions/sets.h"
#include "definitions/told.h"
#include "support/scratch.h"

#include "schema/diff.h"

#include <stdio.h>

#define B DIFF_BREAKING
#define W DIFF_WARNING
#define N DIFF_NOTE

static struct schema *compile(const char *proto)
{
    char out[SCRATCH_PATH_SIZE];
    struct err err;
    ASSERT_OK(scratch_path("set", out, &err), &err);
    run("%s -I %s --include_imports --descriptor_set_out=%s %s", PROTOC, TOLD_GOLDEN, out, proto);
    return schema_of(file_read(out));
}

/* A definition whose input and whose first step's request are of a type. */
struct typed {
    Saga__V1__SagaDefinition definition;
    Saga__V1__Step asks, last, *steps[2];
    Saga__V1__Operation action;
    Saga__V1__RequestShape request;
    char type[64], asks_name[8], last_name[8];
};

static void typed_fill(struct typed *typed, const char *type)
{
    *typed = (struct typed){
        .definition = SAGA__V1__SAGA_DEFINITION__INIT,
        .asks = SAGA__V1__STEP__INIT,
        .last = SAGA__V1__STEP__INIT,
        .steps = { &typed->asks, &typed->last },
        .action = SAGA__V1__OPERATION__INIT,
        .request = SAGA__V1__REQUEST_SHAPE__INIT,
        .asks_name = "asks",
        .last_name = "last",
    };
    (void)snprintf(typed->type, sizeof typed->type, "%s", type);
    typed->definition.input_type = typed->request.type = typed->type;
    typed->asks.name = typed->asks_name;
    typed->last.name = typed->last_name;
    typed->asks.action = &typed->action;
    typed->action.request = &typed->request;
    typed->definition.n_steps = ARRAY_LEN(typed->steps);
    typed->definition.steps = typed->steps;
}

static struct diff_counts diff_of_type(const char *type, const struct schema *was,
                                       const struct schema *is, struct buf *told)
{
    struct typed typed;
    typed_fill(&typed, type);
    buf_printf(told, "# %s\n", type);
    struct diff_counts counts = told_diff(&typed.definition, was, &typed.definition, is, told);
    buf_text(told, "\n");
    return counts;
}

static void test_types(void **state)
{
    (void)state;
    static const struct {
        enum diff_severity there, back;
        bool same;
        const char *type;
    } types[] = {
        { N, N, true, "t.Same" },       { N, N, true, "t.NotThere" },
        { B, N, false, "t.Kept" },      { N, B, false, "t.FieldAdded" },
        { B, B, false, "t.Kind" },      { B, B, false, "t.OtherMessage" },
        { B, B, false, "t.List" },      { B, B, false, "t.Grouped" },
        { W, W, false, "t.Named" },     { W, W, false, "t.JsonNamed" },
        { N, N, false, "t.Presence" },  { N, N, false, "t.Packed" },
        { B, B, false, "t.MapValue" },  { B, B, false, "t.NowMap" },
        { W, W, false, "t.Values" },    { B, B, false, "t.Deep" },
        { W, W, false, "t.OnlyOld" },   { W, W, false, "t.OnlyNew" },
        { B, B, false, "t2.Required" }, { B, B, false, "t2.RequiredAdded" },
        { W, W, false, "t2.Default" },  { N, B, false, "t2.Values" },
    };
    CLEANUP(schema_free_p) struct schema *old3 = compile("types_old.proto");
    CLEANUP(schema_free_p) struct schema *new3 = compile("types_new.proto");
    CLEANUP(schema_free_p) struct schema *old2 = compile("types2_old.proto");
    CLEANUP(schema_free_p) struct schema *new2 = compile("types2_new.proto");
    CLEANUP(buf_done_p) struct buf told = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        bool is_proto3 = strncmp(types[i].type, "t.", 2) == 0;
        const struct schema *was = is_proto3 ? old3 : old2, *is = is_proto3 ? new3 : new2;
        struct diff_counts there = diff_of_type(types[i].type, was, is, &told);
        struct diff_counts back = diff_of_type(types[i].type, is, was, &told);
        if (types[i].same != !told_total(&there) || types[i].same != !told_total(&back) ||
            told_gravest(&there) != types[i].there || told_gravest(&back) != types[i].back)
            fail_msg("%s: %s", types[i].type, buf_cstr(&told));
    }
    told_as_in(TOLD_GOLDEN "types.txt", buf_cstr(&told));
}

static void test_without_descriptors_types_are_names(void **state)
{
    (void)state;
    CLEANUP(schema_free_p) struct schema *schema = compile("types_old.proto");
    CLEANUP(buf_done_p) struct buf told = { 0 };
    struct diff_counts counts = diff_of_type("t.Deep", NULL, NULL, &told);
    assert_int_equal(told_total(&counts), 0);
    counts = diff_of_type("t.Deep", NULL, schema, &told); /* reached twice, told once */
    assert_int_equal(told_total(&counts), 1);
    assert_non_null(strstr(buf_cstr(&told), "descriptors of the old revision"));
    counts = diff_of_type("t.Deep", schema, NULL, &told);
    assert_int_equal(told_total(&counts), 1);
    assert_non_null(strstr(buf_cstr(&told), "descriptors of the new revision"));
}

static void ignore(void *ctx, enum diff_severity severity, const char *path, const char *text)
{
    (void)ctx;
    (void)severity;
    (void)path;
    (void)text;
}

static void test_memory_that_is_out_is_an_error(void **state)
{
    (void)state;
    CLEANUP(schema_free_p) struct schema *old = compile("types_old.proto");
    CLEANUP(schema_free_p) struct schema *new = compile("types_new.proto");
    struct typed was, is;
    typed_fill(&was, "t.Deep");
    typed_fill(&is, "t.Deep");
    is.steps[0] = &is.last; /* so that names of steps are told, too */
    is.steps[1] = &is.asks;
    int rc = ERR_NOMEM;
    unsigned failed = 0;
    for (; rc; failed++) {
        struct diff_revision a = { &was.definition, old }, b = { &is.definition, new };
        struct diff_counts counts = { { 0 } };
        struct err err;
        mem_fail_at(failed + 1, false);
        rc = schema_diff(&a, &b, ignore, NULL, &counts, &err);
        mem_fail_at(0, false);
        assert_true(rc == 0 || rc == ERR_NOMEM);
        assert_true((rc == 0) == (told_total(&counts) > 0)); /* untouched on failure */
    }
    assert_true(failed > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_without_descriptors_types_are_names),
        cmocka_unit_test(test_memory_that_is_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
