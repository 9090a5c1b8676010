/* Keeps records by code object, in the extra slot that Python gives code objects. */
#include "code_records.h"

static Py_ssize_t extra_index = -1;

int code_records_prepare(void)
{
    if (extra_index >= 0) {
        return 0;
    }
    /* No free function: a record owns its code object, so that the slot of a dying code object is
       empty. */
    extra_index = PyUnstable_Eval_RequestCodeExtraIndex(NULL);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_ImportError,
                        "this Python has no extra slot on code objects left for fusewright");
        return -1;
    }
    return 0;
}

/* The first record of `code`, over all collections. */
static CodeRecord *first_record(PyCodeObject *code)
{
    void *record = NULL;
    PyUnstable_Code_GetExtra((PyObject *)code, extra_index, &record);
    return record;
}

CodeRecord *code_records_find(CodeRecords *records, PyCodeObject *code)
{
    CodeRecord *record = first_record(code);
    while (record != NULL && record->records != records) {
        record = record->next_of_code;
    }
    return record;
}

CodeRecord *code_records_add(CodeRecords *records, PyCodeObject *code)
{
    CodeRecord *record = PyMem_Calloc(1, sizeof *record);
    if (record == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    record->next_of_code = first_record(code);
    if (PyUnstable_Code_SetExtra((PyObject *)code, extra_index, record) < 0) {
        PyMem_Free(record);
        return NULL;
    }
    record->records = records;
    record->code = (PyCodeObject *)Py_NewRef(code);
    record->next = records->first;
    records->first = record;
    return record;
}

static void unlink_from_code(CodeRecord *record)
{
    CodeRecord *first = first_record(record->code);
    if (first == record) {
        PyUnstable_Code_SetExtra((PyObject *)record->code, extra_index, record->next_of_code);
        return;
    }
    while (first->next_of_code != record) {
        first = first->next_of_code;
    }
    first->next_of_code = record->next_of_code;
}

void code_records_clear(CodeRecords *records)
{
    while (records->first != NULL) {
        CodeRecord *record = records->first;
        records->first = record->next;
        records->entry_count -= record->entry_count;
        unlink_from_code(record);
        owners_clear(&record->owners);
        for (Py_ssize_t i = 0; i < record->entry_count; i++) {
            Py_DECREF(record->entries[i]);
        }
        Py_DECREF(record->code);
        PyMem_Free(record->entries);
        PyMem_Free(record);
    }
}

Owner *code_records_find_owner(CodeRecords *records, PyCodeObject *code, const OwnerKey *key)
{
    CodeRecord *record = code_records_find(records, code);
    return record ? owners_find(&record->owners, key) : NULL;
}

Owner *code_records_add_owner(CodeRecords *records, PyCodeObject *code, const OwnerKey *key)
{
    PyObject *references[OWNER_PARTS];
    if (owner_key_hold(key, references) < 0) {
        return NULL;
    }
    CodeRecord *record = code_records_find(records, code);
    if (record == NULL && (record = code_records_add(records, code)) == NULL) {
        owner_references_drop(references);
        return NULL;
    }
    return owners_add(&record->owners, key, references);
}

int code_record_add_entry(CodeRecord *record, Entry *entry)
{
    for (Py_ssize_t i = 0; i < record->entry_count; i++) {
        if (record->entries[i] == entry) {
            return 0;
        }
    }
    Entry **entries =
        PyMem_Realloc(record->entries, (size_t)(record->entry_count + 1) * sizeof *record->entries);
    if (entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memmove(entries + 1, entries, (size_t)record->entry_count * sizeof *entries);
    entries[0] = (Entry *)Py_NewRef(entry);
    record->entries = entries;
    record->entry_count++;
    record->records->entry_count++;
    return 0;
}

/* Move the entries that can never hold again to the list `dead`, and of those whose owners are all
   gone all but the last used: another object may be like one that is gone. */
static int take_dead_entries(CodeRecord *record, Py_ssize_t most_left_behind, PyObject *dead)
{
    int failed = owners_drop_dead(&record->owners);
    Py_ssize_t kept = 0, taken = 0, left_behind = 0;
    for (Py_ssize_t i = 0; i < record->entry_count; i++) {
        Entry *entry = record->entries[i];
        bool dies =
            entry_is_dead(entry) || (entry->owner_count == 0 && ++left_behind > most_left_behind);
        if (!failed && dies && (failed = PyList_Append(dead, (PyObject *)entry)) == 0) {
            owners_forget(&record->owners, entry);
            record->wasted_count += !entry->served;
            Py_DECREF(entry);
            taken++;
        } else {
            record->entries[kept++] = entry;
        }
    }
    record->entry_count -= taken;
    record->records->entry_count -= taken;
    return failed;
}

int code_records_drop_dead(CodeRecords *records, PyCodeObject *code, Py_ssize_t most_left_behind)
{
    PyObject *dead = PyList_New(0); /* let go last: that may run user code */
    int failed = dead == NULL ? -1 : 0;
    CodeRecord *record = records->first;
    for (; record != NULL && failed == 0; record = record->next) {
        if (code == NULL || record->code == code) {
            failed = take_dead_entries(record, most_left_behind, dead);
        }
    }
    Py_XDECREF(dead);
    return failed;
}
