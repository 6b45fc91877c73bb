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

static void context_free(EVP_MD_CTX **context)
{
    EVP_MD_CTX_free(*context);
}

int sha256(const struct sha256_part *parts, size_t count, uint8_t ret_digest[32])
{
    (void)pthread_once(&method_once, method_fetch);
    CLEANUP(context_free) EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (!method || !context || EVP_DigestInit_ex2(context, method, NULL) != 1)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (parts[i].size && EVP_DigestUpdate(context, parts[i].data, parts[i].size) != 1)
            return -1;
    return EVP_DigestFinal_ex(context, ret_digest, NULL) == 1 ? 0 : -1;
}
