/* kfit/hash.h - XXH3-64, https://xxhash.com (header-only build). */
#ifndef KFIT_HASH_H
#define KFIT_HASH_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#endif
