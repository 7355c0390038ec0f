/* SPDX-License-Identifier: MIT */
#include "base/digest.h"

#include <limits.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdatomic.h>

/*
 * Returns the algorithm, fetched once: otherwise OpenSSL looks it up by name, under a lock, for every message. Several
 * threads may fetch it at the same time at first; one result is kept. Never freed. A failed fetch is retried by the
 * next call.
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

bool digest_hmac_sha256(struct bytes key, struct bytes message, unsigned char ret_digest[DIGEST_SIZE])
{
    const EVP_MD *algorithm = sha256();
    return algorithm && key.length <= INT_MAX &&
           HMAC(algorithm, key.data, (int)key.length, (const unsigned char *)message.data, message.length, ret_digest,
                NULL);
}
