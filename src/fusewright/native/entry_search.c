/* Finds entries by the guards that hold for a call. */
#include "entry_search.h"

/* Guards may run user code (an attribute with a getter), which may change the entries or free the
   record: nothing of it is used after a check without looking again. */

/* Whether an entry holds for a call, for which it then serves. */
static bool serves(Entry *entry, const PendingCall *call)
{
    bool holds = entry_holds(entry, call);
    if (holds) {
        entry->served = true;
        entry->passed_over = 0;
    }
    return holds;
}

/* The entry that holds among those that have served the owner of a call. */
static Entry *find_of_owner(CodeRecords *records, const PendingCall *call, const OwnerKey *key)
{
    Owner *owner = code_records_find_owner(records, call->code, key);
    Py_ssize_t position = owner ? owner->last : 0;
    for (Py_ssize_t tried = 0; owner != NULL && tried < owner->entry_count; tried++, position++) {
        position = position < owner->entry_count ? position : 0;
        Entry *entry = (Entry *)Py_NewRef(owner->entries[position]);
        bool holds = serves(entry, call);
        if (holds && tried == 0) {
            return entry;
        }
        owner = code_records_find_owner(records, call->code, key);
        if (holds) {
            if (owner != NULL && position < owner->entry_count &&
                owner->entries[position] == entry) {
                owner->last = position;
            }
            return entry;
        }
        Py_DECREF(entry);
    }
    return NULL;
}

/* The entry that holds among all of a code, and where it was found. */
static Entry *find_of_code(CodeRecords *records, const PendingCall *call, CodeRecord *record,
                           Py_ssize_t *position)
{
    for (Py_ssize_t i = 0; record != NULL && i < record->entry_count; i++) {
        Entry *entry = (Entry *)Py_NewRef(record->entries[i]);
        bool holds = serves(entry, call);
        record = i > 0 || !holds ? code_records_find(records, call->code) : NULL;
        if (holds) {
            if (record != NULL && i < record->entry_count && record->entries[i] == entry) {
                memmove(record->entries + 1, record->entries, (size_t)i * sizeof *record->entries);
                record->entries[0] = entry;
            }
            *position = i;
            return entry;
        }
        Py_DECREF(entry);
    }
    return NULL;
}

/* Have an owner find an entry at once from now on, if the entry is still there. */
static void remember(CodeRecords *records, PyCodeObject *code, const OwnerKey *key, Entry *entry)
{
    Owner *owner = code_records_add_owner(records, code, key);
    CodeRecord *record = code_records_find(records, code);
    for (Py_ssize_t i = 0; owner != NULL && record != NULL && i < record->entry_count; i++) {
        if (record->entries[i] == entry) {
            owner_use(owner, entry);
            break;
        }
    }
    PyErr_Clear(); /* memory is short: it is searched for again */
}

Entry *entry_search(CodeRecords *records, const PendingCall *call, CodeRecord *record)
{
    Py_ssize_t position = 0;
    if (record->entry_count <= 1) {
        return find_of_code(records, call, record, &position);
    }
    OwnerKey key = owner_key(&record->owners, call);
    bool owned = owner_key_names_any(&key);
    Entry *entry = owned ? find_of_owner(records, call, &key) : NULL;
    Owner *owner =
        owned && entry == NULL ? code_records_find_owner(records, call->code, &key) : NULL;
    if (entry != NULL || (owner != NULL && owner->closed)) {
        return entry;
    }
    record = code_records_find(records, call->code);
    entry = find_of_code(records, call, record, &position);
    if (entry != NULL && owned && position > 0) {
        remember(records, call->code, &key, entry);
    }
    return entry;
}
