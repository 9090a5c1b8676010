/* Counts the calls that run as they are written. */
#include "written_calls.h"

/* A function in plain Python may be called a million times behind a graph break: after some answers
   that its calls hold nothing to compile, ever more calls pass between two questions. */
#define REFUSALS_WITHOUT_WAIT 8
#define MOST_DOUBLINGS 14

void written_calls_refuse(CodeRecord *record)
{
    int doublings = ++record->refusals - REFUSALS_WITHOUT_WAIT;
    if (doublings > 0) {
        record->waits = 1 << Py_MIN(doublings, MOST_DOUBLINGS);
    }
    record->refusals = Py_MIN(record->refusals, REFUSALS_WITHOUT_WAIT + MOST_DOUBLINGS);
}

bool written_calls_decline(CodeRecord *record)
{
    if (record->waits > 0) {
        record->waits--;
        return true;
    }
    return record->closed;
}

/* Where calls are faster as they are written, so that guards, too, are lost time, ever fewer of
   them are checked: another kind of call, which may be faster compiled, is noticed somewhat later.
 */
#define FIRST_UNCHECKED 31
#define MOST_UNCHECKED 255
#define MOST_PASSED_OVER 1000 /* calls as written, none of them its own, until an entry is idle */

static bool is_suspended(CodeRecord *record)
{
    for (Py_ssize_t i = 0; i < record->entry_count; i++) {
        if (record->entries[i]->trial != NULL) {
            return call_trial_is_suspended(record->entries[i]->trial);
        }
    }
    return false;
}

bool written_calls_are_unchecked(CodeRecord *record)
{
    if (record->unchecked == 0 || is_suspended(record)) {
        return false;
    }
    record->unchecked--;
    return true;
}

/* Whether calls that the entry serves run compiled, or may come to, and there are such calls. Told
   of one that it did not serve. */
static bool is_waited_for(Entry *entry)
{
    if (entry->trial != NULL && call_trial_is_lost(entry->trial)) {
        return false;
    }
    entry->passed_over = Py_MIN(entry->passed_over + 1, MOST_PASSED_OVER);
    return entry->passed_over < MOST_PASSED_OVER;
}

void written_calls_ran(CodeRecords *records, PyCodeObject *code)
{
    CodeRecord *record = code_records_find(records, code);
    if (record == NULL) {
        return;
    }
    bool waits = false;
    for (Py_ssize_t i = 0; i < record->entry_count; i++) {
        waits |= is_waited_for(record->entries[i]);
    }
    if (waits) {
        record->unchecked_next = 0;
        return;
    }
    record->unchecked = Py_MAX(record->unchecked_next, FIRST_UNCHECKED);
    record->unchecked_next = Py_MIN(2 * record->unchecked + 1, MOST_UNCHECKED);
}
