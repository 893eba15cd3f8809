/* CLONES: a function compiled for several instruction sets; the loader picks. Only gcc has it for C; under TSan
 * the picking crashes. */
#ifndef KFIT_CLONES_H
#define KFIT_CLONES_H

#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && !defined __SANITIZE_THREAD__
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif

#endif
