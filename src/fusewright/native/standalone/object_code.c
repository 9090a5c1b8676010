/* A loader of ELF object files. Kernels are compiled for the small code model: what they refer to is
   reached by an offset of 32 bits from the instruction. What is outside (functions of the C library's
   mathematics) may lie farther away: its addresses are in the global offset table, and calls of it
   go to a jump through that. Offsets of 64 bits, which the large code model has, are taken as well.

   Memory is one mapping: code with these jumps, then constants with the table, then data. It is
   written to once, and protected before anything is run. Every offset in the file is checked: a
   damaged one is refused. */
#define _GNU_SOURCE
#include "object_code.h"

#include "dynamic_linking.h"
#include <elf.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CODE, CONSTANTS, DATA, KINDS };

#define JUMP 8 /* bytes of a jump to an address in the global offset table, and two behind it */

struct ObjectCode {
    uint8_t *memory;
    size_t size;
    size_t begin[KINDS + 1]; /* where each kind of memory begins, in whole pages */
    size_t count;
    struct {
        char *name;
        void *address;
    } *symbols;
};

/* A file that is being loaded. */
typedef struct {
    const uint8_t *file;
    size_t size;
    const Elf64_Shdr *sections;
    size_t section_count;
    const Elf64_Sym *symbols;
    size_t symbol_count;
    const char *names;
    size_t names_size;
    size_t *places; /* by section: where it lies in memory; SIZE_MAX: nowhere */
    size_t jumps;   /* where jumps to symbols outside lie, `JUMP` bytes for each symbol */
    size_t table;   /* where the global offset table lies, an entry for each symbol */
    ObjectCode *code;
    char *message;
    size_t message_size;
} Loading;

static bool refuse(Loading *loading, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(loading->message, loading->message_size, format, arguments);
    va_end(arguments);
    return false;
}

static bool damaged(Loading *loading)
{
    return refuse(loading, "the object code is damaged");
}

/* Whether `count` items of `bytes` each lie within the file from `offset`, aligned. */
static bool lies_within(const Loading *loading, uint64_t offset, uint64_t count, uint64_t bytes)
{
    return offset <= loading->size && bytes != 0 && count <= (loading->size - offset) / bytes &&
           ((uintptr_t)(loading->file + offset)) % 8 == 0;
}

/* Reading ------------------------------------------------------------------------------------ */

static bool read_header(Loading *loading)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)loading->file;
    if (!lies_within(loading, 0, 1, sizeof *header) ||
        memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_type != ET_REL) {
        return damaged(loading);
    }
#ifdef __x86_64__
    bool is_ours = header->e_machine == EM_X86_64;
#else
    bool is_ours = false;
#endif
    if (!is_ours) {
        return refuse(loading, "the object code is for another processor");
    }
    if (header->e_shentsize != sizeof(Elf64_Shdr) ||
        !lies_within(loading, header->e_shoff, header->e_shnum, sizeof(Elf64_Shdr))) {
        return damaged(loading);
    }
    loading->sections = (const Elf64_Shdr *)(loading->file + header->e_shoff);
    loading->section_count = header->e_shnum;
    return true;
}

static bool read_symbols(Loading *loading)
{
    for (size_t i = 0; i < loading->section_count; i++) {
        const Elf64_Shdr *section = &loading->sections[i];
        if (section->sh_type != SHT_SYMTAB) {
            continue;
        }
        size_t count = section->sh_size / sizeof(Elf64_Sym);
        if (section->sh_link >= loading->section_count ||
            !lies_within(loading, section->sh_offset, count, sizeof(Elf64_Sym))) {
            return damaged(loading);
        }
        const Elf64_Shdr *names = &loading->sections[section->sh_link];
        if (names->sh_size == 0 || names->sh_offset > loading->size ||
            names->sh_size > loading->size - names->sh_offset ||
            loading->file[names->sh_offset + names->sh_size - 1] != 0) {
            return damaged(loading);
        }
        loading->symbols = (const Elf64_Sym *)(loading->file + section->sh_offset);
        loading->symbol_count = count;
        loading->names = (const char *)loading->file + names->sh_offset;
        loading->names_size = names->sh_size;
        return true;
    }
    return damaged(loading);
}

static bool is_loaded(const Elf64_Shdr *section)
{
    return (section->sh_flags & SHF_ALLOC) != 0 && section->sh_size != 0;
}

static int kind_of(const Elf64_Shdr *section)
{
    bool is_code = (section->sh_flags & SHF_EXECINSTR) != 0;
    return is_code ? CODE : (section->sh_flags & SHF_WRITE) != 0 ? DATA : CONSTANTS;
}

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Memory ------------------------------------------------------------------------------------- */

static bool place_sections(Loading *loading)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), end = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        end = round_up(end, page);
        loading->code->begin[kind] = end;
        if (kind == CODE) {
            loading->jumps = end;
            end += loading->symbol_count * JUMP;
        }
        if (kind == CONSTANTS) {
            loading->table = end;
            end += loading->symbol_count * sizeof(uint64_t);
        }
        for (size_t i = 0; i < loading->section_count; i++) {
            const Elf64_Shdr *section = &loading->sections[i];
            if (!is_loaded(section) || kind_of(section) != kind) {
                continue;
            }
            uint64_t align = section->sh_addralign == 0 ? 1 : section->sh_addralign;
            bool has_bytes = section->sh_type != SHT_NOBITS;
            if ((align & (align - 1)) != 0 || align > page || section->sh_size > UINT32_MAX ||
                (section->sh_flags & SHF_TLS) != 0 ||
                (has_bytes && (section->sh_offset > loading->size ||
                               section->sh_size > loading->size - section->sh_offset))) {
                return damaged(loading);
            }
            loading->places[i] = round_up(end, align);
            end = loading->places[i] + section->sh_size;
        }
    }
    loading->code->size = loading->code->begin[KINDS] = round_up(end, page);
    return true;
}

static bool copy_sections(Loading *loading)
{
    ObjectCode *code = loading->code;
    void *memory =
        mmap(NULL, code->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return refuse(loading, "there is no memory for the object code");
    }
    code->memory = memory;
    for (size_t i = 0; i < loading->section_count; i++) {
        const Elf64_Shdr *section = &loading->sections[i];
        if (loading->places[i] != SIZE_MAX && section->sh_type != SHT_NOBITS) {
            memcpy(code->memory + loading->places[i], loading->file + section->sh_offset,
                   section->sh_size);
        }
    }
    return true;
}

static bool protect(Loading *loading)
{
    static const int protections[KINDS] = {PROT_READ | PROT_EXEC, PROT_READ,
                                           PROT_READ | PROT_WRITE};
    ObjectCode *code = loading->code;
    for (int kind = 0; kind < KINDS; kind++) {
        size_t size = code->begin[kind + 1] - code->begin[kind];
        if (size != 0 &&
            mprotect(code->memory + code->begin[kind], size, protections[kind]) != 0) {
            return refuse(loading, "the system does not let object code be run");
        }
    }
    return true;
}

/* Symbols ------------------------------------------------------------------------------------ */

static void *find_outside(const char *name)
{
    void *address = dlsym(RTLD_DEFAULT, name);
    if (address == NULL) {
        void *mathematics = dlopen("libm.so.6", RTLD_NOW);
        address = mathematics == NULL ? NULL : dlsym(mathematics, name);
    }
    return address;
}

/* The address of a symbol, into `address`. */
static bool resolve(Loading *loading, size_t index, uint64_t *address)
{
    const Elf64_Sym *symbol = &loading->symbols[index];
    if (symbol->st_name >= loading->names_size) {
        return damaged(loading);
    }
    const char *name = loading->names + symbol->st_name;
    uint64_t memory = (uint64_t)(uintptr_t)loading->code->memory;
    if (strcmp(name, "_GLOBAL_OFFSET_TABLE_") == 0) {
        *address = memory + loading->table;
        return true;
    }
    if (symbol->st_shndx == SHN_UNDEF) {
        *address = *name == 0 ? 0 : (uint64_t)(uintptr_t)find_outside(name);
        if (*name != 0 && *address == 0) {
            return refuse(loading, "the object code calls %s, which this process lacks", name);
        }
        return true;
    }
    if (symbol->st_shndx == SHN_ABS) { /* the name of the source file */
        *address = symbol->st_value;
        return true;
    }
    if (symbol->st_shndx >= loading->section_count) {
        return damaged(loading);
    }
    size_t place = loading->places[symbol->st_shndx];
    if (place == SIZE_MAX) { /* of a section that is not loaded, or is empty */
        *address = 0;
        return true;
    }
    if (symbol->st_value > loading->sections[symbol->st_shndx].sh_size) {
        return damaged(loading);
    }
    *address = memory + place + symbol->st_value;
    return true;
}

static bool fill_table(Loading *loading)
{
    uint64_t *table = (uint64_t *)(loading->code->memory + loading->table);
    for (size_t i = 0; i < loading->symbol_count; i++) {
        if (!resolve(loading, i, &table[i])) {
            return false;
        }
    }
    return true;
}

static bool is_outside(const Loading *loading, size_t index)
{
    return loading->symbols[index].st_shndx == SHN_UNDEF;
}

/* Write the jumps to symbols outside: `jmp *offset(%rip)`, the offset that of the symbol's entry in
   the table from the end of the instruction. Other symbols have none. */
static bool write_jumps(Loading *loading)
{
    static const uint8_t code[2] = {0xff, 0x25};
    for (size_t i = 0; i < loading->symbol_count; i++) {
        size_t jump = loading->jumps + i * JUMP, end = jump + sizeof code + sizeof(int32_t);
        size_t offset = loading->table + i * sizeof(uint64_t) - end;
        if (!is_outside(loading, i)) {
            continue;
        }
        if (offset > INT32_MAX) {
            return refuse(loading, "the object code is too large");
        }
        memcpy(loading->code->memory + jump, code, sizeof code);
        memcpy(loading->code->memory + jump + sizeof code, &(int32_t){(int32_t)offset},
               sizeof(int32_t));
    }
    return true;
}

static bool is_global(const Elf64_Sym *symbol)
{
    return ELF64_ST_BIND(symbol->st_info) == STB_GLOBAL && symbol->st_shndx != SHN_UNDEF &&
           ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
}

static bool keep_symbols(Loading *loading)
{
    ObjectCode *code = loading->code;
    const uint64_t *table = (const uint64_t *)(code->memory + loading->table);
    code->symbols = calloc(loading->symbol_count + 1, sizeof *code->symbols);
    if (code->symbols == NULL) {
        return refuse(loading, "there is no memory for the object code");
    }
    for (size_t i = 0; i < loading->symbol_count; i++) {
        const Elf64_Sym *symbol = &loading->symbols[i];
        if (is_global(symbol) && table[i] != 0) {
            char *name = strdup(loading->names + symbol->st_name);
            if (name == NULL) {
                return refuse(loading, "there is no memory for the object code");
            }
            code->symbols[code->count].name = name;
            code->symbols[code->count++].address = (void *)(uintptr_t)table[i];
        }
    }
    return true;
}

/* Relocations -------------------------------------------------------------------------------- */

/* The bytes that a relocation writes; 0: its type is unknown. */
static size_t width_of(uint64_t type)
{
    switch (type) {
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
        return sizeof(uint32_t);
    case R_X86_64_64:
    case R_X86_64_PC64:
    case R_X86_64_GOT64:
    case R_X86_64_GOTOFF64:
    case R_X86_64_PLTOFF64:
    case R_X86_64_GOTPC64:
        return sizeof(uint64_t);
    default:
        return 0;
    }
}

/* What a relocation writes at `place`; its type is known, and its symbol one of the file's. */
static uint64_t value_of(const Loading *loading, const Elf64_Rela *relocation, uint64_t place)
{
    uint64_t memory = (uint64_t)(uintptr_t)loading->code->memory;
    uint64_t index = ELF64_R_SYM(relocation->r_info), table = memory + loading->table;
    uint64_t symbol = ((const uint64_t *)(loading->code->memory + loading->table))[index];
    uint64_t entry = index * sizeof(uint64_t), addend = (uint64_t)relocation->r_addend;
    switch (ELF64_R_TYPE(relocation->r_info)) {
    case R_X86_64_64:
        return symbol + addend;
    case R_X86_64_PLT32:
        if (is_outside(loading, index)) {
            symbol = memory + loading->jumps + index * JUMP;
        }
        return symbol + addend - place;
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
        return table + entry + addend - place;
    case R_X86_64_GOT64:
        return entry + addend;
    case R_X86_64_GOTOFF64:
    case R_X86_64_PLTOFF64:
        return symbol + addend - table;
    case R_X86_64_GOTPC64:
        return table + addend - place;
    default: /* R_X86_64_PC32 and R_X86_64_PC64 */
        return symbol + addend - place;
    }
}

static bool relocate(Loading *loading, const Elf64_Rela *relocation, size_t section)
{
    uint64_t type = ELF64_R_TYPE(relocation->r_info), offset = relocation->r_offset;
    uint64_t bytes = loading->sections[section].sh_size;
    size_t width = width_of(type);
    if (width == 0) {
        return refuse(loading, "the object code has relocations of type %u", (unsigned)type);
    }
    if (ELF64_R_SYM(relocation->r_info) >= loading->symbol_count || bytes < width ||
        offset > bytes - width) {
        return damaged(loading);
    }
    uint8_t *target = loading->code->memory + loading->places[section] + offset;
    uint64_t value = value_of(loading, relocation, (uint64_t)(uintptr_t)target);
    if (width == sizeof(uint32_t) && (int64_t)value != (int32_t)value) {
        return refuse(loading, "the object code refers to what is too far away");
    }
    memcpy(target, &value, width);
    return true;
}

static bool relocate_sections(Loading *loading)
{
    for (size_t i = 0; i < loading->section_count; i++) {
        const Elf64_Shdr *section = &loading->sections[i];
        if (section->sh_type != SHT_RELA || section->sh_info >= loading->section_count ||
            loading->places[section->sh_info] == SIZE_MAX) {
            continue;
        }
        size_t count = section->sh_size / sizeof(Elf64_Rela);
        if (!lies_within(loading, section->sh_offset, count, sizeof(Elf64_Rela)) ||
            loading->sections[section->sh_info].sh_type == SHT_NOBITS) {
            return damaged(loading);
        }
        const Elf64_Rela *relocations = (const Elf64_Rela *)(loading->file + section->sh_offset);
        for (size_t j = 0; j < count; j++) {
            if (!relocate(loading, &relocations[j], section->sh_info)) {
                return false;
            }
        }
    }
    return true;
}

/* ---------------------------------------------------------------------------------------------- */

ObjectCode *object_code_load(const uint8_t *file, size_t size, char *message, size_t message_size)
{
    ObjectCode *code = calloc(1, sizeof *code);
    Loading loading = {.file = file,
                       .size = size,
                       .code = code,
                       .message = message,
                       .message_size = message_size};
    if (code == NULL) {
        refuse(&loading, "there is no memory for the object code");
        return NULL;
    }
    bool is_read = read_header(&loading) && read_symbols(&loading);
    if (is_read) {
        loading.places = malloc(loading.section_count * sizeof *loading.places + 1);
        is_read = loading.places != NULL || refuse(&loading, "there is no memory");
        for (size_t i = 0; is_read && i < loading.section_count; i++) {
            loading.places[i] = SIZE_MAX;
        }
    }
    bool is_whole = is_read && place_sections(&loading) && copy_sections(&loading) &&
                    fill_table(&loading) && write_jumps(&loading) &&
                    relocate_sections(&loading) && keep_symbols(&loading) && protect(&loading);
    free(loading.places);
    if (!is_whole) {
        object_code_free(code);
        return NULL;
    }
    return code;
}

void *object_code_symbol(const ObjectCode *code, const char *name)
{
    for (size_t i = 0; i < code->count; i++) {
        if (strcmp(code->symbols[i].name, name) == 0) {
            return code->symbols[i].address;
        }
    }
    return NULL;
}

void object_code_free(ObjectCode *code)
{
    for (size_t i = 0; i < code->count; i++) {
        free(code->symbols[i].name);
    }
    free(code->symbols);
    if (code->memory != NULL) {
        munmap(code->memory, code->size);
    }
    free(code);
}

/* Processors --------------------------------------------------------------------------------- */

int processor_has(const char *feature)
{
#ifdef __x86_64__
#define FEATURE(name)                                                                             \
    if (strcmp(feature, name) == 0) {                                                             \
        return __builtin_cpu_supports(name) != 0;                                                 \
    }
    __builtin_cpu_init();
    FEATURE("avx2")
    FEATURE("fma")
    FEATURE("bmi")
    FEATURE("bmi2")
    FEATURE("popcnt")
    FEATURE("f16c")
    FEATURE("lzcnt")
    FEATURE("movbe")
    FEATURE("avx512f")
    FEATURE("avx512cd")
    FEATURE("avx512bw")
    FEATURE("avx512dq")
    FEATURE("avx512vl")
#endif
    (void)feature;
    return -1;
}
