/* Journals: what a check that held depended on, so that the next one need only see that it is
   unchanged. */
#ifndef FUSEWRIGHT_GUARD_JOURNAL_H
#define FUSEWRIGHT_GUARD_JOURNAL_H

#include "guard_program.h"

#define GUARD_JOURNAL_CREDIT 128 /* that a program begins with, and the most that it has */

typedef enum {
    JOURNAL_SILENT, /* no journal fits: all has to be checked */
    JOURNAL_HOLDS,
    JOURNAL_FAILS,
} JournalAnswer;

/* What the program's journals say of a check. May leave an exception set. */
JournalAnswer guard_journal_ask(GuardProgram *program, const GuardContext *context);

/* Keep a journal of a check that just held, where that is worth its time. */
void guard_journal_write(GuardProgram *program, const GuardContext *context);

void guard_journal_drop_all(GuardProgram *program);

#endif
