import { createPrivateKey, type KeyObject } from 'node:crypto';
import { CURVES } from './signed-certificate.js';

const KEY_BLOCK = /-----BEGIN ((?:RSA |EC |ENCRYPTED )?PRIVATE KEY)-----[\s\S]+?-----END \1-----/g;
/** The PEM block that `openssl ecparam -genkey` writes before the key block. */
const EC_PARAMETERS = /-----BEGIN EC PARAMETERS-----[^-]+-----END EC PARAMETERS-----/;
const LEAST_RSA_BITS = 2048;

/**
 * Reads a private key from a PEM text. Returns a fault if the text is not exactly one unencrypted private
 * key, or if clients do not accept a CA with this kind of key. The fault contains no content of the key.
 */
export function readKey(pem: string): KeyObject | { readonly fault: string } {
  const blocks = pem.match(KEY_BLOCK) ?? [];
  const rest = pem.replace(KEY_BLOCK, '').replace(EC_PARAMETERS, '').trim();
  const [block] = blocks;
  if (block === undefined || blocks.length > 1 || rest !== '')
    return { fault: 'Must be one private key in PEM, and nothing else.' };
  if (block.includes('ENCRYPTED'))
    return { fault: 'Must not be encrypted: decrypt the key with its passphrase first.' };
  let key: KeyObject;
  try {
    key = createPrivateKey(block);
  } catch {
    return { fault: 'Is not a private key that OpenSSL can read.' };
  }
  const fault = faultOf(key);
  return fault === null ? key : { fault };
}

function faultOf({ asymmetricKeyType: type, asymmetricKeyDetails: details }: KeyObject): string | null {
  switch (type) {
    case 'rsa': {
      const bits = details?.modulusLength ?? 0;
      return bits >= LEAST_RSA_BITS ? null : `Must have at least ${LEAST_RSA_BITS} bits; this RSA key has ${bits}.`;
    }
    case 'ec': {
      const curve = details?.namedCurve ?? 'no named curve';
      return CURVES.includes(curve) ? null : `Must be on P-256, P-384 or P-521; this key is on ${curve}.`;
    }
    default:
      return `Must be RSA or EC: browsers accept no CA with a key of the type ${type ?? 'unknown'}.`;
  }
}
