/* A table of owners by the addresses of their objects. A dead one, whose address another object may
   have by now, is never found; it goes when the table grows, or when it is in the way. */
#include "owners.h"

/* An object that may own calls: one of a class written in Python, or a function. Tensors are data.
   What cannot be held weakly would have to be kept alive, or be taken for another one later. */
static bool may_own(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (PyFunction_Check(object)) {
        return true;
    }
    return PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) && type->tp_weaklistoffset != 0 &&
           !tensor_access_is_tensor(object);
}

/* The object behind an argument or a variable: that of a bound method, the first of `*args`. NULL:
   it is none that may own calls. */
static PyObject *owner_behind(PyObject *object)
{
    if (object != NULL && PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) > 0) {
        object = PyTuple_GET_ITEM(object, 0);
    }
    if (object != NULL && PyMethod_Check(object)) {
        object = PyMethod_GET_SELF(object);
    }
    return object != NULL && may_own(object) ? object : NULL;
}

/* Whether a parameter has no name in the program: what a resume function is given of the stack, and
   the iterator of a comprehension. */
static bool is_nameless(PyCodeObject *code, int index)
{
    PyObject *name = PyTuple_GET_ITEM(code->co_localsplusnames, index);
    return PyUnicode_GET_LENGTH(name) > 0 && PyUnicode_READ_CHAR(name, 0) == '.';
}

/* Fill in the arguments that own the call: those that have names come before the others. */
static void find_owning_arguments(const PendingCall *call, OwnerKey *key)
{
    int count = code_parameter_count(call->code);
    for (int nameless = 0; nameless < 2; nameless++) {
        for (int i = 0; i < count; i++) {
            PyObject *given = call->locals[i], *found = owner_behind(given);
            if (found == NULL || is_nameless(call->code, i) != nameless) {
                continue;
            }
            bool first = key->parts[0] == NULL;
            key->parts[0] = first ? found : key->parts[0];
            found = PyMethod_Check(given) ? PyMethod_GET_FUNCTION(given) : found;
            if ((!first || found != key->parts[0]) && PyFunction_Check(found)) {
                key->parts[1] = found;
                return;
            }
        }
    }
}

static PyObject *owning_variable(PyObject *closure)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(closure); i++) {
        PyObject *found = owner_behind(PyCell_GET(PyTuple_GET_ITEM(closure, i)));
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

OwnerKey owner_key(const Owners *owners, const PendingCall *call)
{
    OwnerKey key = {{NULL}, false};
    find_owning_arguments(call, &key);
    PyObject *closure = call->function->func_closure;
    if (closure == NULL || PyTuple_GET_SIZE(closure) == 0) {
        return key;
    }
    /* Where each call makes the function anew, as it does a resume function, it has no identity of
       its own: what it closes over does. */
    key.by_function = call->continuation == NULL && !owners->functions_die;
    key.parts[2] = key.by_function ? (PyObject *)call->function : owning_variable(closure);
    return key;
}

static size_t hash_key(const OwnerKey *key)
{
    size_t hash = 0;
    for (size_t i = 0; i < OWNER_PARTS; i++) {
        hash = (hash ^ ((size_t)key->parts[i] >> 4)) * (size_t)0x9E3779B97F4A7C15u;
    }
    return hash >> (sizeof hash * 4);
}

static bool same_parts(const OwnerKey *one, const OwnerKey *other)
{
    return memcmp(one->parts, other->parts, sizeof one->parts) == 0;
}

static bool is_dead(const Owner *owner)
{
    for (size_t i = 0; i < OWNER_PARTS; i++) {
        PyObject *reference = owner->references[i];
        if (reference != NULL && ((PyWeakReference *)reference)->wr_object == Py_None) {
            return true;
        }
    }
    return false;
}

/* Where the owner of a key is, or would be; the table must have room. */
static Owner **slot_of(const Owners *owners, const OwnerKey *key)
{
    size_t slot = hash_key(key) & (owners->slot_count - 1);
    while (owners->slots[slot] != NULL && !same_parts(&owners->slots[slot]->key, key)) {
        slot = (slot + 1) & (owners->slot_count - 1);
    }
    return &owners->slots[slot];
}

Owner *owners_find(const Owners *owners, const OwnerKey *key)
{
    Owner *owner = owners->count > 0 ? *slot_of(owners, key) : NULL;
    return owner != NULL && !is_dead(owner) ? owner : NULL;
}

void owner_references_drop(PyObject *references[OWNER_PARTS])
{
    for (size_t i = 0; i < OWNER_PARTS; i++) {
        Py_CLEAR(references[i]);
    }
}

/* Let go of what an owner refers to. */
static void empty_owner(Owner *owner)
{
    owner_references_drop(owner->references);
    for (Py_ssize_t i = 0; i < owner->entry_count; i++) {
        owner->entries[i]->owner_count--;
    }
    PyMem_Free(owner->entries);
    owner->entries = NULL;
    owner->entry_count = owner->last = 0;
    owner->closed = false;
}

static void free_owner(Owner *owner)
{
    empty_owner(owner);
    PyMem_Free(owner);
}

/* Move the living owners to a table with room for one more, and drop the others. */
static int rebuild(Owners *owners)
{
    size_t living = 0, slot_count = 8;
    for (size_t i = 0; i < owners->slot_count; i++) {
        living += owners->slots[i] != NULL && !is_dead(owners->slots[i]);
    }
    while (slot_count < 4 * (living + 1)) {
        slot_count *= 2;
    }
    Owners next = {PyMem_Calloc(slot_count, sizeof *next.slots), slot_count, living,
                   owners->functions_die};
    if (next.slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < owners->slot_count; i++) {
        Owner *owner = owners->slots[i];
        if (owner != NULL && is_dead(owner)) {
            next.functions_die |= owner->key.by_function;
            free_owner(owner);
        } else if (owner != NULL) {
            *slot_of(&next, &owner->key) = owner;
        }
    }
    PyMem_Free(owners->slots);
    *owners = next;
    return 0;
}

int owner_key_hold(const OwnerKey *key, PyObject *references[OWNER_PARTS])
{
    memset(references, 0, OWNER_PARTS * sizeof *references);
    for (size_t i = 0; i < OWNER_PARTS; i++) {
        if (key->parts[i] != NULL &&
            (references[i] = PyWeakref_NewRef(key->parts[i], NULL)) == NULL) {
            owner_references_drop(references);
            return -1;
        }
    }
    return 0;
}

/* A slot of its own for an owner that is not there. NULL with an exception. */
static Owner *new_owner(Owners *owners, const OwnerKey *key)
{
    if (2 * (owners->count + 1) > owners->slot_count && rebuild(owners) < 0) {
        return NULL;
    }
    Owner **slot = slot_of(owners, key);
    if (*slot != NULL) { /* of an object that had the address before */
        owners->functions_die |= (*slot)->key.by_function;
        empty_owner(*slot);
        return *slot;
    }
    *slot = PyMem_Calloc(1, sizeof **slot);
    if (*slot == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    owners->count++;
    return *slot;
}

Owner *owners_add(Owners *owners, const OwnerKey *key, PyObject *references[OWNER_PARTS])
{
    Owner *owner = owners_find(owners, key);
    if (owner != NULL || (owner = new_owner(owners, key)) == NULL) {
        owner_references_drop(references);
        return owner;
    }
    owner->key = *key;
    memcpy(owner->references, references, sizeof owner->references);
    return owner;
}

/* Where an entry stands among an owner's; -1 when it does not. */
static Py_ssize_t position_of(const Owner *owner, const Entry *entry)
{
    for (Py_ssize_t i = 0; i < owner->entry_count; i++) {
        if (owner->entries[i] == entry) {
            return i;
        }
    }
    return -1;
}

bool owner_has(const Owner *owner, const Entry *entry)
{
    return position_of(owner, entry) >= 0;
}

int owner_use(Owner *owner, Entry *entry)
{
    owner->last = position_of(owner, entry);
    if (owner->last >= 0) {
        return 0;
    }
    owner->last = 0;
    Entry **entries = PyMem_Realloc(owner->entries,
                                    (size_t)(owner->entry_count + 1) * sizeof *owner->entries);
    if (entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    owner->entries = entries;
    owner->last = owner->entry_count++;
    entries[owner->last] = entry;
    entry->owner_count++;
    return 0;
}

void owners_forget(Owners *owners, Entry *entry)
{
    for (size_t i = 0; i < owners->slot_count && entry->owner_count > 0; i++) {
        Owner *owner = owners->slots[i];
        Py_ssize_t position = owner ? position_of(owner, entry) : -1;
        if (position >= 0) {
            owner->entry_count--;
            owner->last = 0;
            memmove(owner->entries + position, owner->entries + position + 1,
                    (size_t)(owner->entry_count - position) * sizeof *owner->entries);
            entry->owner_count--;
        }
    }
}

int owners_drop_dead(Owners *owners)
{
    for (size_t i = 0; i < owners->slot_count; i++) {
        if (owners->slots[i] != NULL && is_dead(owners->slots[i])) {
            return rebuild(owners);
        }
    }
    return 0;
}

void owners_clear(Owners *owners)
{
    for (size_t i = 0; i < owners->slot_count; i++) {
        if (owners->slots[i] != NULL) {
            free_owner(owners->slots[i]);
        }
    }
    PyMem_Free(owners->slots);
    *owners = (Owners){0};
}
