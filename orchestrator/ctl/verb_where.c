/* sagactl where: every saga of a key, and what each one waits for; and what else is known of it. */
#include "base/mem.h"
#include "base/uuid.h"
#include "ctl/ctl.h"
#include "ctl/ctl_payload.h"
#include "ctl/kafka_server.h"
#include "ctl/verbs.h"
#include "ctl/where_known.h"
#include "wire/json.h"

#include <stdio.h>

static const struct ctl_option options[] = {
    { "definition", "NAME", false, "only sagas of this definition" },
    { NULL, NULL, false, NULL },
};

/* Adds the saga to the text, or to the list of JSON. */
static int show_one(struct ctl *ctl, const Saga__V1__Saga *saga, struct where_view *view,
                    json_t *sagas, struct buf *text)
{
    CLEANUP(revision_types_free_p) struct revision_types *types = ctl_types_of_saga(ctl, saga);
    json_t *value;
    struct err err;
    if (!ctl->json) {
        view->types = types;
        buf_text(text, text->size ? "\n" : "");
        where_write(saga, view, text);
        return 0;
    }
    if (ctl_saga_json(saga, types, &value, &err) != 0)
        return ctl_print_error(&err);
    if (json_array_append_new(sagas, value) == 0)
        return 0;
    (void)err_set(&err, ERR_NOMEM, "out of memory");
    return ctl_print_error(&err);
}

/* With -o json: {"sagas": .., "known": ..}; the list is consumed. */
static int print_json(json_t *sagas, const Saga__V1__LookUpKeyResponse *known)
{
    json_t *value;
    struct err err;
    if (wire_json_from_message(&known->base, &value, &err) == 0)
        return ctl_print_json(json_pack("{s:o, s:o}", "sagas", sagas, "known", value));
    json_decref(sagas);
    return ctl_print_error(&err);
}

/* All of them, in the order of `uids`. */
static int show(struct ctl *ctl, const char *const *uids, size_t count,
                const Saga__V1__LookUpKeyResponse *known)
{
    struct where_view view = ctl_where_view(ctl);
    CLEANUP(buf_done) struct buf text = { 0 };
    json_t *sagas = json_array();
    int rc = 0;
    view.payload_max = CTL_PAYLOAD_SHOWN;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        CLEANUP(ctl_message_free_p) Saga__V1__Saga *saga = NULL;
        Saga__V1__SagaRef ref = SAGA__V1__SAGA_REF__INIT;
        ref.uid = (char *)uids[i];
        rc = ctl_saga_get(ctl, &ref, SAGA__V1__SAGA_VIEW__SAGA_VIEW_FULL, &saga);
        if (rc == 0)
            rc = show_one(ctl, saga, &view, sagas, &text);
    }
    if (rc == 0 && ctl->json)
        return print_json(sagas, known);
    json_decref(sagas);
    buf_text(&text, known->n_dead_letters ? "\n" : "");
    where_write_letters(known, &view, &text);
    return rc != 0 ? rc : ctl_print_text(&text);
}

/* What is known of the key instead goes to stdout. */
static int nothing_found(const struct ctl *ctl, const char *key,
                         const Saga__V1__LookUpKeyResponse *known)
{
    CLEANUP(buf_done) struct buf text = { 0 };
    CLEANUP(buf_done) struct buf instead = { 0 };
    struct where_view view = ctl_where_view(ctl);
    if (known->now)
        view.now_ms = screen_time_ms(known->now);
    buf_text(&text, "sagactl: no saga has the key ");
    screen_text(&text, key);
    if (ctl->namespace_)
        buf_printf(&text, " in namespace %s", ctl->namespace_);
    buf_text(&text, where_has_known(known) ? " now\n" : "\n");
    if (!where_has_known(known)) {
        buf_text(&text, "  sagactl list --prefix ");
        screen_shell_word(&text, key);
        buf_text(&text, " shows keys that begin like it; keys are compared to the letter\n");
    }
    if (!ctl->json || !where_has_known(known))
        (void)fputs(buf_cstr(&text), stderr);
    where_write_known(known, &view, &instead);
    int rc = ctl->json ? print_json(json_array(), known) : ctl_print_text(&instead);
    return rc != 0 ? rc : where_has_known(known) ? 0 : CTL_EXIT_FAILED;
}

static int look_up(struct ctl *ctl, const char *definition, const char *key,
                   Saga__V1__LookUpKeyResponse **ret)
{
    Saga__V1__LookUpKeyRequest request = SAGA__V1__LOOK_UP_KEY_REQUEST__INIT;
    request.namespace_ = (char *)(ctl->namespace_ ? ctl->namespace_ : "-");
    if (definition)
        request.definition = (char *)definition;
    request.key = (char *)key;
    return kafka_call(ctl, KAFKA_SERVICE "LookUpKey", &request.base,
                      &saga__v1__look_up_key_response__descriptor, "", ret);
}

static int show_found(struct ctl *ctl, const Saga__V1__ListSagasResponse *found,
                      const Saga__V1__LookUpKeyResponse *known)
{
    const char **uids = mem_calloc(found->n_sagas, sizeof *uids);
    if (!uids) {
        (void)fputs("sagactl: out of memory\n", stderr);
        return CTL_EXIT_FAILED;
    }
    for (size_t i = 0; i < found->n_sagas; i++)
        uids[i] = found->sagas[i]->uid;
    int rc = show(ctl, uids, found->n_sagas, known);
    mem_free(uids);
    return rc;
}

static int run(struct ctl *ctl, const struct ctl_arguments *arguments)
{
    const char *key = arguments->positional[0];
    const char *definition = ctl_option(arguments, "definition");
    struct uuid uid;
    CLEANUP(ctl_message_free_p) Saga__V1__ListSagasResponse *found = NULL;
    CLEANUP(ctl_message_free_p) Saga__V1__LookUpKeyResponse *known = NULL;
    int rc = ctl_sagas_of_key(ctl, ctl->namespace_ ? ctl->namespace_ : "-",
                              definition ? definition : "", key, &found);
    if (rc == 0)
        rc = look_up(ctl, definition, key, &known);
    if (rc != 0)
        return rc;
    if (found->n_sagas)
        return show_found(ctl, found, known);
    if (uuid_parse(key, &uid) && !where_has_known(known))
        return show(ctl, &key, 1, known);
    return nothing_found(ctl, key, known);
}

const struct ctl_verb verb_where = {
    "where",
    "KEY",
    1,
    1,
    options,
    "where an operation stands: every saga of a key, its steps, what it waits for\n"
    "\n"
    "Looks in every definition, every run and, without --namespace, in every namespace; and, "
    "where\n"
    "no saga is there (any more), into what is remembered of the key, into dead letters, and "
    "which\n"
    "rules of Kafka are behind or stopped. Says what\n"
    "each step did, what the saga waits for now and until when, and the command to try next. Long\n"
    "payloads are cut: sagactl get --full.",
    run,
};
