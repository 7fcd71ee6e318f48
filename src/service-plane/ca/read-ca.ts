import { createPrivateKey, type KeyObject, randomBytes, X509Certificate } from 'node:crypto';
import { duplexPair } from 'node:stream';
import { connect, DEFAULT_CIPHERS, TLSSocket } from 'node:tls';
import { append } from '#arrays/append.js';
import { readCertificate } from '#service-plane/certificate/certificate.js';
import { type UntrustedReason, untrustedReason } from '#service-plane/upstream/untrusted-reason.js';
import { certificatesIn, type InterceptCa, interceptCaOf, outsideCertificates } from './intercept-ca.js';
import { LeafContexts } from './leaf-contexts.js';
import { CURVES } from './signed-certificate.js';

/** A fault in the operator's input. The message contains no content of the private key. */
type CaFault = { readonly pointer: '/cert_pem' | '/key_pem'; readonly message: string };
type CaWarning = 'ca_not_valid_yet' | 'ca_bound_to_names';
export type CaReading =
  | { readonly kind: 'ca'; readonly ca: InterceptCa; readonly warnings: readonly CaWarning[] }
  | { readonly kind: 'faulty'; readonly faults: readonly CaFault[] };

const MAX_CERTIFICATES = 10;
const NO_CA = 'Must be the certificate of a CA: basic constraints with CA:TRUE, and keyCertSign if it has a key usage.';

/**
 * Reads a CA from PEM texts. `certPem` contains the CA certificate and then its issuers in order; `keyPem`
 * contains the key. Accepts the CA if an OpenSSL client that trusts the CA accepts a leaf certificate in a
 * trial TLS handshake. Also accepts, with a warning, a CA that is not valid yet (without the trial) or that
 * may sign only some names.
 */
export async function readCa(certPem: string, keyPem: string, now: Date = new Date()): Promise<CaReading> {
  const key = readKey(keyPem);
  const chain = readChain(certPem);
  const faults: CaFault[] = [];
  if ('fault' in key) faults.push({ pointer: '/key_pem', message: key.fault });
  if ('fault' in chain) faults.push({ pointer: '/cert_pem', message: chain.fault });
  if ('fault' in key || 'fault' in chain) return { kind: 'faulty', faults };

  const [certificate, ...above] = chain.certificates;
  const ca = interceptCaOf(certificate.pem, above.map(({ pem }) => pem).join(''), key);
  append(faults, faultsOf(certificate.read, key, ca, now));
  if (faults.length > 0) return { kind: 'faulty', faults };
  if (now < ca.notBefore) return { kind: 'ca', ca, warnings: ['ca_not_valid_yet'] };
  const found = await tryCa(ca, now);
  if (found === 'name_not_permitted') return { kind: 'ca', ca, warnings: ['ca_bound_to_names'] };
  if (found !== null) return { kind: 'faulty', faults: [{ pointer: '/cert_pem', message: TRIED[found] ?? OTHERWISE }] };
  return { kind: 'ca', ca, warnings: [] };
}

/**
 * The error message for each reason why the client of the trial handshake rejects a leaf certificate of this
 * CA.
 */
const TRIED: Readonly<Partial<Record<UntrustedReason, string>>> = {
  expired: 'A certificate of the chain has expired.',
  not_yet_valid: 'A certificate of the chain is not valid yet.',
  weak_signature: 'A certificate of the chain is signed with a digest that is too weak, such as SHA-1.',
  weak_key: 'A certificate of the chain has a key that is too short.',
  wrong_purpose:
    'The CA may not sign server certificates: its extended key usage, or a certificate of its chain, forbids this.',
  not_a_ca: 'A certificate of the chain may not sign certificates.',
  path_too_long: 'A certificate above the CA has a path length that permits no further CA below it.',
  bad_signature: 'A certificate of the chain is not signed by the next certificate.',
};
const OTHERWISE = 'A client that trusts this CA rejects the certificates that it signs.';

type Read = { readonly pem: string; readonly read: X509Certificate };

function readChain(text: string): { readonly certificates: readonly [Read, ...Read[]] } | { readonly fault: string } {
  const blocks = certificatesIn(text);
  if (blocks.length === 0 || outsideCertificates(text).trim() !== '')
    return { fault: 'Must be a certificate in PEM, followed by the certificates of its issuers, and nothing else.' };
  if (blocks.length > MAX_CERTIFICATES) return { fault: `Must be at most ${MAX_CERTIFICATES} certificates.` };
  let certificates: Read[];
  try {
    certificates = blocks.map((pem) => ({ pem, read: new X509Certificate(pem) }));
    // Call `readCertificate` to reject BER, which `X509Certificate` (OpenSSL) accepts.
    for (const { read } of certificates) readCertificate(read.raw);
  } catch {
    return { fault: 'Contains a certificate that cannot be read.' };
  }
  const [first, ...above] = certificates;
  if (first === undefined) return { fault: 'Must be a certificate.' };
  const isInOrder = above.every(({ read }, at) => certificates[at]?.read.checkIssued(read) === true);
  return isInOrder
    ? { certificates: [first, ...above] }
    : { fault: 'Must begin with the CA; each certificate must be followed by its issuer.' };
}

function faultsOf(certificate: X509Certificate, key: KeyObject, ca: InterceptCa, now: Date): CaFault[] {
  const faults: CaFault[] = [];
  if (!certificate.checkPrivateKey(key))
    faults.push({ pointer: '/key_pem', message: 'Must be the key of the first certificate of `cert_pem`.' });
  if (!certificate.ca) faults.push({ pointer: '/cert_pem', message: NO_CA });
  if (now >= ca.notAfter)
    faults.push({ pointer: '/cert_pem', message: `Has expired on ${ca.notAfter.toISOString()}.` });
  return faults;
}

const TRIAL_NAME = 'weir-trial.invalid';

/**
 * Returns why a client that trusts the last certificate of the CA's chain would reject a leaf certificate;
 * null if the client accepts the leaf certificate. The handshake runs inside the process, without network
 * packets.
 */
async function tryCa(ca: InterceptCa, now: Date): Promise<UntrustedReason | null> {
  const contexts = new LeafContexts({ ticketKeys: randomBytes(48), now: () => now });
  contexts.use(ca);
  const secureContext = contexts.of(TRIAL_NAME);
  if (secureContext === null)
    throw new RangeError('check an intercept CA: its certificate has expired or is not valid yet');
  const [near, far] = duplexPair();
  const server = new TLSSocket(far, { isServer: true, secureContext });
  const client = connect({
    socket: near,
    servername: TRIAL_NAME,
    ca: certificatesIn(ca.certPem + ca.chainPem).at(-1),
    allowPartialTrustChain: true,
    ciphers: `${DEFAULT_CIPHERS}:@SECLEVEL=2`,
  });
  try {
    await new Promise<void>((resolve, reject) => {
      server.on('error', reject);
      client.on('error', reject).once('secureConnect', resolve);
    });
    return null;
  } catch (failure) {
    return untrustedReason(failure) ?? 'other';
  } finally {
    for (const end of [client, server, near, far]) end.destroy();
  }
}

const KEY_BLOCK = /-----BEGIN ((?:RSA |EC |ENCRYPTED )?PRIVATE KEY)-----[\s\S]+?-----END \1-----/g;
/** The PEM block that `openssl ecparam -genkey` writes before the key block. */
const EC_PARAMETERS = /-----BEGIN EC PARAMETERS-----[^-]+-----END EC PARAMETERS-----/;
const LEAST_RSA_BITS = 2048;

/**
 * Reads a private key from a PEM text. Returns a fault if the text is not exactly one unencrypted private
 * key, or if clients do not accept a CA with this kind of key. The fault contains no content of the key.
 */
function readKey(pem: string): KeyObject | { readonly fault: string } {
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
