/* sagactl where: every saga of a key, and what each one waits for. */
#include "base/mem.h"
#include "base/uuid.h"
#include "ctl/ctl.h"
#include "ctl/verbs.h"

#include <stdio.h>

static const struct ctl_option options[] = {
    { "definition", "NAME", false, "only sagas of this definition" },
    { NULL, NULL, false, NULL },
};

static int get_full(struct ctl *ctl, const char *uid, Saga__V1__Saga **ret)
{
    Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
    Saga__V1__GetSagaRequest request = SAGA__V1__GET_SAGA_REQUEST__INIT;
    ref.uid = (char *)uid;
    request.saga = &ref;
    request.view = SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL;
    return ctl_call(ctl, "/saga.v1.SagaService/GetSaga", &request.base, &saga__v1__saga__descriptor,
                    ret);
}

static int add_json(json_t *sagas, const Saga__V1__Saga *saga)
{
    Saga__V1__ListSagasResponse page = SAGA__V1__LIST_SAGAS_RESPONSE__INIT;
    Saga__V1__Saga *only[] = { (Saga__V1__Saga *)saga };
    struct err err;
    page.sagas = only;
    page.n_sagas = 1;
    return ctl_add_page(sagas, &page.base, "sagas", &err) == 0 ? 0 : ctl_print_error(&err);
}

/* All of them, in the order of `uids`. */
static int show(struct ctl *ctl, const char *const *uids, size_t count)
{
    const struct where_view view = ctl_where_view(ctl);
    CLEANUP(buf_done) struct buf text = { 0 };
    json_t *sagas = json_array();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
        rc = get_full(ctl, uids[i], &saga);
        if (rc == 0 && ctl->json)
            rc = add_json(sagas, saga);
        else if (rc == 0) {
            buf_text(&text, i ? "\n" : "");
            where_write(saga, &view, &text);
        }
    }
    if (rc != 0 || !ctl->json) {
        json_decref(sagas);
        return rc != 0 ? rc : ctl_print_text(&text);
    }
    return ctl_print_json(json_pack("{s:o}", "sagas", sagas));
}

static int nothing_found(const struct ctl *ctl, const char *key)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    buf_text(&text, "sagactl: no saga has the key ");
    screen_text(&text, key);
    if (ctl->namespace_)
        buf_printf(&text, " in namespace %s", ctl->namespace_);
    buf_text(&text, "\n  sagactl list --prefix ");
    screen_shell_word(&text, key);
    buf_text(&text, " shows keys that begin like it; keys are compared to the letter\n");
    (void)fputs(buf_cstr(&text), stderr);
    return CTL_EXIT_FAILED;
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    const char *key = arguments->positional[0];
    const char *definition = ctl_option(arguments, "definition");
    struct uuid uid;
    CLEANUP(ctl_message_free_p) Saga__V1__ListSagasResponse *found = NULL;
    int rc = ctl_sagas_of_key(ctl, ctl->namespace_ ? ctl->namespace_ : "-",
                              definition ? definition : "", key, &found);
    if (rc != 0)
        return rc;
    if (found->n_sagas == 0)
        return uuid_parse(key, &uid) ? show(ctl, &key, 1) : nothing_found(ctl, key);
    const char **uids = mem_calloc(found->n_sagas, sizeof *uids);
    if (!uids) {
        (void)fputs("sagactl: out of memory\n", stderr);
        return CTL_EXIT_FAILED;
    }
    for (size_t i = 0; i < found->n_sagas; i++)
        uids[i] = found->sagas[i]->uid;
    rc = show(ctl, uids, found->n_sagas);
    mem_free(uids);
    return rc;
}

const struct ctl_verb verb_where = {
    "where",
    "KEY",
    1,
    1,
    options,
    "where an operation stands: every saga of a key, its steps, what it waits for\n"
    "\n"
    "Looks in every definition, every run and, without --namespace, in every namespace. Says what\n"
    "each step did, what the saga waits for now and until when, and the command to try next.",
    run,
};
