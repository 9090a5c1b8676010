/* Owners: the objects that the calls of one code object belong to, each with the entries that serve
   its calls.

   Code that many objects share, a method or a wrapper, is compiled for each of them by itself: its
   limit counts the entries of one owner, and one that was seen before finds its own entries without
   asking the guards of others. An owner is only where the search begins: no entry runs unless its
   guards hold, and one that was made for another object serves where they do. Objects are held
   weakly. But for `owner_key_hold`, nothing here runs other code. */
#ifndef FUSEWRIGHT_OWNERS_H
#define FUSEWRIGHT_OWNERS_H

#include "entry.h"

#define OWNER_PARTS 3

/* Whose call a call is: the first object among its arguments, `self` as a rule; the first function
   among those behind it; and what its closure belongs to. Borrowed, and NULL where there is none;
   the key without any is that of all calls that belong to nobody. */
typedef struct {
    PyObject *parts[OWNER_PARTS];
    bool by_function; /* the last is the function that was called */
} OwnerKey;

typedef struct {
    OwnerKey key;                      /* only addresses */
    PyObject *references[OWNER_PARTS]; /* weak ones to the parts; owned */
    bool closed;                       /* gets no more entries */
    Py_ssize_t entry_count;
    Py_ssize_t last; /* the one used last: it is tried first, and then the next, as loops use them */
    Entry **entries; /* in the order of their first use; borrowed from whoever keeps the owners */
} Owner;

typedef struct {
    Owner **slots; /* open addressing by the key, at most half full */
    size_t slot_count;
    size_t count;
    bool functions_die; /* functions of this code were called and went: each call makes its own */
} Owners;

/* Whose call a call is. */
OwnerKey owner_key(const Owners *owners, const PendingCall *call);

/* Whether a key names an object. */
static inline bool owner_key_names_any(const OwnerKey *key)
{
    return key->parts[0] != NULL || key->parts[1] != NULL || key->parts[2] != NULL;
}

/* The owner of that key; NULL when there is none, without an exception. */
Owner *owners_find(const Owners *owners, const OwnerKey *key);

/* Weak references to the parts of a key. This may run any code; -1 with an exception. */
int owner_key_hold(const OwnerKey *key, PyObject *references[OWNER_PARTS]);
void owner_references_drop(PyObject *references[OWNER_PARTS]);

/* The owner of that key, made of those references when there is none; takes them over. NULL with an
   exception. */
Owner *owners_add(Owners *owners, const OwnerKey *key, PyObject *references[OWNER_PARTS]);

/* Whether an entry is one of an owner's. */
bool owner_has(const Owner *owner, const Entry *entry);

/* Note that an entry served an owner. -1 with an exception. */
int owner_use(Owner *owner, Entry *entry);

/* Take an entry away from all owners. */
void owners_forget(Owners *owners, Entry *entry);

/* Take the owners away of which an object is gone. -1 with an exception. */
int owners_drop_dead(Owners *owners);

void owners_clear(Owners *owners);

#endif
