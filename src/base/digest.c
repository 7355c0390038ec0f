/* SPDX-License-Identifier: MIT */
#include "base/digest.h"

#include <openssl/evp.h>
#include <stdatomic.h>

/*
 * The algorithm, fetched once: OpenSSL would otherwise look it up by name, under a lock, for every message. Threads
 * that come first at the same time may each fetch it; one of them wins. Never freed. A fetch that failed is tried
 * again.
 */
static EVP_MD *sha256(void)
{
    static _Atomic(EVP_MD *) fetched;
    EVP_MD *algorithm = atomic_load_explicit(&fetched, memory_order_acquire);
    if (algorithm)
        return algorithm;
    EVP_MD *mine = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (!mine || atomic_compare_exchange_strong(&fetched, &algorithm, mine))
        return mine;
    EVP_MD_free(mine);
    return algorithm;
}

bool digest_sha256(struct bytes message, unsigned char ret_digest[DIGEST_SIZE])
{
    const EVP_MD *algorithm = sha256();
    return algorithm && EVP_Digest(message.data, message.length, ret_digest, NULL, algorithm, NULL) == 1;
}
