#include "base/sha256.h"

#include <openssl/evp.h>
#include <pthread.h>

/* Fetched once: EVP_sha256() makes libcrypto look the algorithm up on every use. */
static EVP_MD *method;
static pthread_once_t method_once = PTHREAD_ONCE_INIT;

static void method_fetch(void)
{
    method = EVP_MD_fetch(NULL, "SHA256", NULL);
}

/* struct sha256_sum is libcrypto's context under a name of ours. */
static EVP_MD_CTX *context_of(struct sha256_sum *sum)
{
    return (EVP_MD_CTX *)(void *)sum;
}

static void sum_free_p(struct sha256_sum **sum)
{
    *sum = sha256_sum_free(*sum);
}

struct sha256_sum *sha256_sum_new(void)
{
    (void)pthread_once(&method_once, method_fetch);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    struct sha256_sum *sum = (struct sha256_sum *)(void *)context;
    if (!method || !context || EVP_DigestInit_ex2(context, method, NULL) != 1)
        return sha256_sum_free(sum);
    return sum;
}

struct sha256_sum *sha256_sum_free(struct sha256_sum *sum)
{
    EVP_MD_CTX_free(context_of(sum)); /* NULL is fine */
    return NULL;
}

int sha256_sum_add(struct sha256_sum *sum, const void *data, size_t size)
{
    return !size || EVP_DigestUpdate(context_of(sum), data, size) == 1 ? 0 : -1;
}

int sha256_sum_end(struct sha256_sum *sum, uint8_t ret_digest[32])
{
    return EVP_DigestFinal_ex(context_of(sum), ret_digest, NULL) == 1 ? 0 : -1;
}

int sha256(const struct sha256_part *parts, size_t count, uint8_t ret_digest[32])
{
    CLEANUP(sum_free_p) struct sha256_sum *sum = sha256_sum_new();
    if (!sum)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (sha256_sum_add(sum, parts[i].data, parts[i].size) != 0)
            return -1;
    return sha256_sum_end(sum, ret_digest);
}
