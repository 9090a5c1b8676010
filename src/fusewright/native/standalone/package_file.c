/* The file of a package, which packages/container.py states: mapped, and whole or refused. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checksum.h"
#include "package_plan.h"
#include "sha256.h"

void package_fail(Reader *reader, const char *format, ...)
{
    if (reader->failed) {
        return;
    }
    reader->failed = true;
    int begin = snprintf(reader->message, reader->message_size, "%s: ", reader->package->path);
    if (begin > 0 && (size_t)begin < reader->message_size) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(reader->message + begin, reader->message_size - (size_t)begin, format,
                  arguments);
        va_end(arguments);
    }
}

enum { MAGIC_BYTES = 14, HEAD_BYTES = 64, TABLE_BEGIN = 96, ALIGNMENT = 64, CHECKSUM_BYTES = 64 };

static uint64_t word_at(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

static bool map_file(Reader *reader)
{
    FusewrightPackage *package = reader->package;
    int file = open(package->path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0) {
        package_fail(reader, "it cannot be opened");
    } else if (status.st_size < TABLE_BEGIN) {
        package_fail(reader, "it is no package, or was cut off");
    } else {
        package->size = (size_t)status.st_size;
        void *memory =
            mmap(NULL, package->size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        package->memory = memory == MAP_FAILED ? NULL : memory;
        if (package->memory == NULL) {
            package_fail(reader, "it cannot be mapped");
        }
    }
    if (file >= 0) {
        close(file);
    }
    return !reader->failed;
}

static bool check_head(Reader *reader)
{
    const FusewrightPackage *package = reader->package;
    const uint8_t *memory = package->memory;
    uint64_t table = word_at(memory + 16), size = word_at(memory + 24);
    if (memcmp(memory, "fusewright pkg", MAGIC_BYTES) != 0) {
        package_fail(reader, "it is no package");
    } else if (memory[14] != 3 || memory[15] != 0) {
        package_fail(reader, "it is of another format");
    } else if (size != package->size || table > size - TABLE_BEGIN) {
        package_fail(reader, "it was cut off");
    } else {
        uint8_t digest[SHA256_BYTES];
        sha256_of_two(memory, HEAD_BYTES, memory + TABLE_BEGIN, (size_t)table, digest);
        if (memcmp(digest, memory + HEAD_BYTES, sizeof digest) != 0) {
            package_fail(reader, "its table is damaged");
        }
    }
    return !reader->failed;
}

/* The next `"name":"…","size":…,"sha256":"…","checksum":"…","offset":…` from `text` on; what follows
   it, or NULL. The table's digest was right, so that it is as it was written. */
static const char *read_row(const char *text, const char *end, Row *row)
{
    static const char name[] = "{\"name\":\"", size[] = "\",\"size\":", sums[] = "\"checksum\":\"",
                      offset[] = "\"offset\":";
    const char *at = memmem(text, (size_t)(end - text), name, sizeof name - 1);
    if (at == NULL) {
        return NULL;
    }
    row->name = at + sizeof name - 1;
    const char *behind = memmem(row->name, (size_t)(end - row->name), size, sizeof size - 1);
    if (behind == NULL) {
        return NULL;
    }
    row->name_size = (size_t)(behind - row->name);
    row->size = strtoull(behind + sizeof size - 1, NULL, 10);
    at = memmem(behind, (size_t)(end - behind), sums, sizeof sums - 1);
    if (at == NULL || end - at < CHECKSUM_BYTES * 2) {
        return NULL;
    }
    row->checksum = at + sizeof sums - 1;
    at = memmem(at, (size_t)(end - at), offset, sizeof offset - 1);
    if (at == NULL) {
        return NULL;
    }
    row->offset = strtoull(at + sizeof offset - 1, NULL, 10);
    return at;
}

static const char *first_row(const FusewrightPackage *package, const char **end)
{
    static const char sections[] = "\"sections\":[";
    const char *table = (const char *)package->memory + TABLE_BEGIN;
    *end = table + word_at(package->memory + 16);
    return memmem(table, (size_t)(*end - table), sections, sizeof sections - 1);
}

static size_t aligned(uint64_t size)
{
    return (size_t)((size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

static bool is_whole(const FusewrightPackage *package, const Row *row)
{
    if (row->offset > package->size || row->size > package->size ||
        aligned(row->size) > package->size - row->offset || row->offset % ALIGNMENT != 0) {
        return false;
    }
    const uint8_t *bytes = package->memory + row->offset;
    size_t most = (size_t)(row->size / ALIGNMENT * ALIGNMENT);
    uint32_t sums[2 * CHECKSUM_LANES];
    checksum(bytes, most, sums);
    checksum(bytes + most, aligned(row->size) - most, sums + CHECKSUM_LANES);
    char text[CHECKSUM_BYTES + 1];
    for (size_t i = 0; i < sizeof sums; i++) {
        snprintf(text + 2 * i, 3, "%02x", ((const uint8_t *)sums)[i]);
    }
    return memcmp(text, row->checksum, CHECKSUM_BYTES) == 0;
}

static bool check_sections(Reader *reader)
{
    const FusewrightPackage *package = reader->package;
    const char *end, *at = first_row(package, &end);
    uint64_t begin = TABLE_BEGIN + word_at(package->memory + 16);
    Row row;
    while (at != NULL && (at = read_row(at, end, &row)) != NULL) {
        for (uint64_t i = begin; i < row.offset && i < package->size; i++) {
            if (package->memory[i] != 0) {
                package_fail(reader, "it is damaged between its sections");
                return false;
            }
        }
        if (!is_whole(package, &row)) {
            package_fail(reader, "its section '%.*s' is damaged", (int)row.name_size, row.name);
            return false;
        }
        begin = row.offset + aligned(row.size);
    }
    return true;
}

bool package_find_section(const FusewrightPackage *package, const char *name, Row *row)
{
    const char *end, *at = first_row(package, &end);
    while (at != NULL && (at = read_row(at, end, row)) != NULL) {
        if (row->name_size == strlen(name) && memcmp(row->name, name, row->name_size) == 0) {
            return true;
        }
    }
    return false;
}

bool package_open(Reader *reader)
{
    return map_file(reader) && check_head(reader) && check_sections(reader);
}
