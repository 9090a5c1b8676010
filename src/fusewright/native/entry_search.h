/* The search for the entry that stands for a call. */
#ifndef FUSEWRIGHT_ENTRY_SEARCH_H
#define FUSEWRIGHT_ENTRY_SEARCH_H

#include "code_records.h"

/* The entry of the record whose guards hold, a new reference, moved to the front; NULL when there
   is none. Those of the call's owner are asked first. */
Entry *entry_search(CodeRecords *records, const PendingCall *call, CodeRecord *record);

#endif
