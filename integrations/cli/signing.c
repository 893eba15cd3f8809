/* Whom this shell trusts, and the key with which it signs. */
#include <stdlib.h>
#include <string.h>

#include "signing.h"

const char *cli_trust(void)
{
    return getenv("KFIT_TRUST");
}

bool cli_trust_read(struct kfit_trust *t)
{
    struct kfit_error err = {0};
    enum kfit_status s = kfit_trust_read(cli_trust(), t, &err);
    if (s != KFIT_OK)
        cli_failed(NULL, s, &err);
    return s == KFIT_OK;
}

static bool has(const struct kfit_trust *t, const struct kfit_public_key *key)
{
    for (unsigned i = 0; i < t->count; i++)
        if (!memcmp(t->key[i].bytes, key->bytes, sizeof key->bytes))
            return true;
    return false;
}

static bool base_ok(const struct kfit_trust *t, const char *dir, const struct kfit_manifest *base)
{
    struct kfit_error err = {0};
    char path[4096 + 48];
    if (!base)
        return true;
    snprintf(path, sizeof path, "%s/generations/%llu.json", dir, (unsigned long long)base->number);
    if (kfit_manifest_trusted(base, t, path, NULL, &err) == KFIT_OK)
        return true;
    cli_fail(
        "generation %llu, on which the new one builds, is not to be trusted, and signing the new one would "
        "sign its records too: %s",
        (unsigned long long)base->number, SAFE(err.text));
    return false;
}

bool cli_signer_open(struct cli_signer *s, const char *keyfile, const char *dir,
                     const struct kfit_manifest *base)
{
    struct kfit_error err = {0};
    struct kfit_trust t = {0};
    char text[KFIT_PUBLIC_KEY_TEXT_MAX];
    *s = (struct cli_signer){0};
    if (!keyfile && cli_trust()) {
        cli_fail(
            "KFIT_TRUST is set: what is not signed would not be loaded; name your key with --sign KEYFILE");
        return false;
    }
    if (!keyfile) {
        if (base && base->is_signed)
            cli_say(
                "generation %llu is signed, the new one is not: servers with KFIT_TRUST will not load it; "
                "sign it with `kfit cache sign N --sign KEYFILE`",
                (unsigned long long)base->number);
        return true;
    }
    enum kfit_status st = kfit_secret_key_read(keyfile, &s->key, &err);
    if (st != KFIT_OK) {
        cli_failed(NULL, st, &err);
        return false;
    }
    s->on = true;
    kfit_public_key_format(&s->key.public_key, text);
    if (!cli_trust()) {
        t.count = 1;
        t.key[0] = s->key.public_key;
    } else if (!cli_trust_read(&t)) {
        goto bad;
    } else if (!has(&t, &s->key.public_key)) {
        cli_fail("%s: its public key, %s, is not in KFIT_TRUST: what it signs would not be loaded",
                 cli_str(keyfile), SAFE(text));
        goto bad;
    }
    if (base_ok(&t, dir, base))
        return true;
bad:
    cli_signer_close(s);
    return false;
}

const struct kfit_secret_key *cli_signer_key(const struct cli_signer *s)
{
    return s->on ? &s->key : NULL;
}

void cli_signer_close(struct cli_signer *s)
{
    kfit_secret_key_finish(&s->key);
    s->on = false;
}

const char *cli_signature(const struct kfit_manifest *m)
{
    struct kfit_trust t;
    struct kfit_public_key signer;
    struct kfit_error err = {0};
    char text[KFIT_PUBLIC_KEY_TEXT_MAX], line[sizeof text + 64];
    if (!m->is_signed)
        return "not signed";
    if (kfit_manifest_trusted(m, NULL, "signature", &signer, &err) != KFIT_OK)
        return SAFE(err.text);
    bool known = cli_trust() && kfit_trust_read(cli_trust(), &t, NULL) == KFIT_OK &&
                 kfit_manifest_trusted(m, &t, "", &signer, NULL) == KFIT_OK;
    kfit_public_key_format(&signer, text);
    snprintf(line, sizeof line, "signed by %s%s", text,
             known || !cli_trust() ? "" : ", which is not in KFIT_TRUST");
    return SAFE(line);
}
