/* signing.h - keys on the command line: whom this shell trusts, and signing what it publishes. */
#ifndef CLI_SIGNING_H
#define CLI_SIGNING_H

#include "kfit/trust.h"
#include "outcome.h"

#define CLI_OPTION_SIGN(to)                                                                                  \
    {                                                                                                        \
        "sign", 's', CLI_TEXT, to, "KEYFILE", "sign it with this private key (`kfit key new`)"               \
    }

/* KFIT_TRUST, also an empty one (which trusts nobody); NULL: unset, signatures do not matter. */
const char *cli_trust(void);
bool cli_trust_read(struct kfit_trust *t); /* of KFIT_TRUST, which is set; says what is wrong with it */

struct cli_signer {
    bool on;
    struct kfit_secret_key key;
};

/* Before something is published that builds on generation base (NULL: on nothing). keyfile NULL: it will not be
 * signed, which is refused where KFIT_TRUST is set. A key is refused that KFIT_TRUST does not have; and so is
 * a base that is signed neither by this key nor by one of KFIT_TRUST, because its records would get a
 * signature that nobody has looked at them for. Says what is wrong. */
bool cli_signer_open(struct cli_signer *s, const char *keyfile, const char *dir,
                     const struct kfit_manifest *base);
const struct kfit_secret_key *cli_signer_key(const struct cli_signer *s); /* NULL: not to be signed */
void cli_signer_close(struct cli_signer *s);

/* "not signed", "signed by ed25519:... name" or "signature does not match ..."; text as cli_safe's. */
const char *cli_signature(const struct kfit_manifest *m);

#endif
