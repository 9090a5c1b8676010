/* dlopen, dlsym and dlerror, by the versions that every glibc has.

   glibc 2.34 moved them from libdl to libc and gave them a new version, so that what is linked with
   it asks for 2.34 or later. The old versions are still there: bound to them, a wheel runs with
   glibc 2.17. */
#ifndef FUSEWRIGHT_DYNAMIC_LINKING_H
#define FUSEWRIGHT_DYNAMIC_LINKING_H

#include <dlfcn.h>

#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 34) && defined(__x86_64__)
#define FUSEWRIGHT_OLD_VERSION "GLIBC_2.2.5"
#elif __GLIBC_PREREQ(2, 34) && defined(__aarch64__)
#define FUSEWRIGHT_OLD_VERSION "GLIBC_2.17"
#endif
#endif

#ifdef FUSEWRIGHT_OLD_VERSION
__asm__(".symver dlopen, dlopen@" FUSEWRIGHT_OLD_VERSION);
__asm__(".symver dlsym, dlsym@" FUSEWRIGHT_OLD_VERSION);
__asm__(".symver dlerror, dlerror@" FUSEWRIGHT_OLD_VERSION);
#endif

#endif
