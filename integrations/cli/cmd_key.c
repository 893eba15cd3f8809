/* kfit key new, show; kfit cache sign. */
#include <stdlib.h>
#include <string.h>

#include "signing.h"

static int key_new(int argc, char **argv)
{
    const char *name = NULL;
    struct cli_list args = {0};
    struct kfit_public_key key;
    struct kfit_error err = {0};
    char text[KFIT_PUBLIC_KEY_TEXT_MAX];
    const struct cli_option options[] = {
        {"name", 'n', CLI_TEXT, &name, "TEXT", "whose it is, for people (default: you)"},
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "FILE",
                  .doc =
                      "Makes a key: FILE has the private part, readable for you alone; FILE.pub the public "
                      "one, for KFIT_TRUST on the servers.",
                  .options = options,
                  .min = 1,
                  .max = 1},
              &args);
    enum kfit_status s = kfit_secret_key_make(args.item[0], name ? name : cli_user(), &key, &err);
    if (s != KFIT_OK)
        return cli_failed(NULL, s, &err);
    kfit_public_key_format(&key, text);
    printf("%s\n", SAFE(text));
    cli_say("%s is private: keep a copy where nobody else can read it; %s.pub goes to the servers",
            cli_str(args.item[0]), cli_str(args.item[0]));
    return CLI_OK;
}

static int key_show(int argc, char **argv)
{
    struct cli_list args = {0};
    const struct cli_option options[] = {{0}};
    cli_parse(argc, argv,
              &(struct cli_usage){.args = "FILE",
                                  .doc = "Prints the public key of a private one, or the keys of a file as "
                                         "KFIT_TRUST would read it.",
                                  .options = options,
                                  .min = 1,
                                  .max = 1},
              &args);
    struct kfit_secret_key secret;
    struct kfit_trust t = {0};
    struct kfit_error err = {0};
    char text[KFIT_PUBLIC_KEY_TEXT_MAX];
    enum kfit_status s = kfit_secret_key_read(args.item[0], &secret, &err);
    if (s == KFIT_OK) {
        t.count = 1;
        t.key[0] = secret.public_key;
        kfit_secret_key_finish(&secret);
    } else if (s == KFIT_E_FORMAT && kfit_trust_read(args.item[0], &t, NULL) == KFIT_OK) {
        s = KFIT_OK; /* a list of public ones */
    }
    if (s != KFIT_OK)
        return cli_failed(NULL, s, &err);
    for (unsigned i = 0; i < t.count; i++) {
        kfit_public_key_format(&t.key[i], text);
        printf("%s\n", SAFE(text));
    }
    return CLI_OK;
}

int cli_cache_sign(int argc, char **argv)
{
    const char *cache = NULL, *keyfile = NULL;
    struct cli_list args = {0};
    struct cli_signer signer;
    struct kfit_error err = {0};
    char dir[4096], *end, text[KFIT_PUBLIC_KEY_TEXT_MAX];
    const struct cli_option options[] = {CLI_OPTION_CACHE(&cache), CLI_OPTION_SIGN(&keyfile), {0}};
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "N",
                  .doc =
                      "Signs generation N as it is, in place of an older signature. Look at it before: your "
                      "signature lets servers run what is in it.",
                  .options = options,
                  .min = 1,
                  .max = 1},
              &args);
    const unsigned long long number = strtoull(args.item[0], &end, 10);
    if (!number || *end || *args.item[0] < '1' || *args.item[0] > '9')
        return cli_usage_error(argv, "\"%s\" is not the number of a generation", cli_str(args.item[0]));
    if (!keyfile)
        return cli_usage_error(argv, "name your private key with --sign KEYFILE");
    cli_cache_dir(cache, dir, sizeof dir);
    if (!cli_signer_open(&signer, keyfile, dir, NULL))
        return CLI_FAILED;
    enum kfit_status s = kfit_generation_sign(dir, number, cli_signer_key(&signer), &err);
    kfit_public_key_format(&signer.key.public_key, text);
    cli_signer_close(&signer);
    if (s != KFIT_OK)
        return cli_failed(dir, s, &err);
    printf("generation %llu is signed by %s\n", number, SAFE(text));
    return CLI_OK;
}

const struct cli_command cli_key_commands[] = {
    {"new", key_new, NULL, "a key that signs generations"},
    {"show", key_show, NULL, "the public part"},
    {0},
};
