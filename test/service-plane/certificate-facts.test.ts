import { createHash } from 'node:crypto';
import { rootCertificates } from 'node:tls';
import { afterAll, describe, expect, it } from 'vitest';
import type { CertificateFacts, SeenCertificate } from '#contracts/service-plane/tls-facts.js';
import { type CertificateOptions, readCertificateFacts } from '#service-plane/certificate/certificate-facts.js';
import { TrustAnchors } from '#service-plane/certificate/trust-anchors.js';
import { ProgressClock } from '#test/progress-clock.js';
import { AUTHORITY, type Issued, Issuer, type Order } from './certificate/issued.js';

const issuer = new Issuer();
afterAll(() => issuer.close());

const DAY_MS = 86_400_000;
const RSA_2048 = ['rsa:2048'];
const issue = (order: Order): Issued => issuer.issue(order);
const authority = (order: Order): Issued =>
  issue({ ...order, extensions: [...AUTHORITY, ...(order.extensions ?? [])] });
const named = (name: string): string => `subjectAltName=DNS:${name}`;

const root = authority({ subject: '/O=Weir/CN=Root' });
const other = authority({ subject: '/O=Weir/CN=Other' });
const middle = authority({ subject: '/O=Weir/CN=Middle', by: root });
const leaf = issue({ subject: '/CN=api.example.com', by: middle, extensions: [named('api.example.com')] });

const UNTRUSTING: CertificateOptions = { roots: () => new TrustAnchors([]) };
const factsOf = (chain: readonly Issued[], options: Partial<CertificateOptions> = {}): CertificateFacts =>
  readCertificateFacts(
    chain.map(({ der }) => der),
    { ...UNTRUSTING, ...options },
  );
const seen = (chain: readonly Issued[], options: Partial<CertificateOptions> = {}): SeenCertificate => {
  const facts = factsOf(chain, options);
  if (facts.kind !== 'seen') throw new Error(`${facts.kind}`);
  return facts;
};
const anchorsOf = (anchors: readonly Issued[]): string[] => anchors.map(({ pem }) => pem);
const isTrusted = (chain: readonly Issued[], anchors: readonly Issued[] = [root]): boolean =>
  seen(chain).isTrusted(anchorsOf(anchors));

describe('readCertificateFacts', () => {
  it('`readCertificateFacts` returns the subject, common names, DNS names and SHA-256 fingerprint of a leaf certificate', () => {
    const names = [
      named('WWW.Example.com'),
      'DNS:*.example.com',
      'DNS:dot.example.com.',
      'IP:192.0.2.1',
      'email:a@b.c',
    ];
    const one = issue({ subject: '/C=DE/O=Example/CN=First/CN=Second', extensions: [names.join(',')] });
    expect({ ...seen([one]), isTrusted: undefined }).toEqual({
      kind: 'seen',
      subject: 'CN=Second,CN=First,O=Example,C=DE',
      commonNames: ['First', 'Second'],
      dnsNames: ['www.example.com', '*.example.com', 'dot.example.com'],
      fingerprint: createHash('sha256').update(one.der).digest('hex'),
      isTrusted: undefined,
    });
  });

  it('`readCertificateFacts` accepts a leaf certificate whose subject has no common name or is empty', () => {
    const { subject, commonNames, dnsNames } = seen([issue({ subject: '/O=Example' })]);
    expect({ subject, commonNames, dnsNames }).toEqual({ subject: 'O=Example', commonNames: [], dnsNames: [] });
    const empty = seen([issue({ subject: '/', by: root, extensions: ['subjectAltName=critical,DNS:a.test'] })]);
    expect([empty.subject, empty.commonNames, empty.dnsNames]).toEqual(['', [], ['a.test']]);
  });

  it('`readCertificateFacts` returns all DNS names of a leaf certificate with 1,000 names', () => {
    const names = Array.from({ length: 1_000 }, (_, index) => `n${index}.example.com`);
    const one = issue({
      subject: '/CN=many',
      extensions: [`subjectAltName=${names.map((n) => `DNS:${n}`).join(',')}`],
    });
    expect(seen([one]).dnsNames).toEqual(names);
  });

  const subjects = [
    '/C=DE/ST=Bayern/L=München/street=Am Wehr 1/O=Example, Inc./OU=#1/CN=a\\+b',
    '/CN= leading and trailing ',
    '/CN=#hash/OU=semi;colon/O="quoted"/L=<angle>/ST=back\\\\slash',
    '/CN=one+OU=two+O=three/DC=example/DC=com/UID=7',
    '/serialNumber=HRB 1/businessCategory=Private/jurisdictionC=DE/emailAddress=a@b.example/GN=G/SN=S/title=T',
    '/CN=日本語 🌊/O=Ünïcode\u0085control/OU=del\x7fctrl\x01',
    '/CN=a=b/O= /OU=##',
    '/1.2.3.4.5=unknown/CN=x',
    '/organizationIdentifier=VATDE-1/postalCode=80331/dnQualifier=q/initials=I/generationQualifier=Jr./pseudonym=P/name=N/description=D',
  ];
  it.each(subjects)('`readCertificateFacts` formats the subject %s exactly as OpenSSL does', (subject) => {
    const one = issue({ subject, more: ['-nameopt', 'utf8'] });
    expect(seen([one]).subject).toBe(issuer.subjectOf(one));
  });

  it('`readCertificateFacts` returns unreadable for a NUL byte in a common name or DNS name', () => {
    const one = issue({ subject: '/CN=good.testXevil', extensions: [named('good.testYevil')] });
    const patched = (from: string): CertificateFacts => {
      const der = Buffer.from(one.der);
      der[der.indexOf(from) + 'good.test'.length] = 0;
      der[der.lastIndexOf(from) + 'good.test'.length] = 0;
      return readCertificateFacts([der], UNTRUSTING);
    };
    expect(patched('good.testX')).toEqual({ kind: 'unreadable' });
    expect(patched('good.testY')).toEqual({ kind: 'unreadable' });
  });

  it('`readCertificateFacts` returns unreadable without certificates, for more than 10 certificates or 100 KiB, and for a malformed leaf certificate', () => {
    const unreadable = { kind: 'unreadable' };
    expect(readCertificateFacts([], UNTRUSTING)).toEqual(unreadable);
    expect(readCertificateFacts([Buffer.from('garbage')], UNTRUSTING)).toEqual(unreadable);
    expect(readCertificateFacts([leaf.der.subarray(0, -1)], UNTRUSTING)).toEqual(unreadable);
    expect(readCertificateFacts([Buffer.concat([leaf.der, Buffer.alloc(1)])], UNTRUSTING)).toEqual(unreadable);
    expect(factsOf(new Array<Issued>(11).fill(leaf))).toEqual(unreadable);
    expect(readCertificateFacts([leaf.der, Buffer.alloc(102_400)], UNTRUSTING)).toEqual(unreadable);
    expect(factsOf([leaf, middle]).kind).toBe('seen');
    expect(readCertificateFacts([leaf.der, Buffer.from('garbage')], UNTRUSTING).kind).toBe('seen');
  });
});

describe('a certificate chain', () => {
  const client = ['extendedKeyUsage=clientAuth'];
  const weak = issue({ subject: '/CN=weak', by: root, key: ['rsa:1024'] });
  const notAuthority = issue({ subject: '/CN=No authority', by: root });
  const short = authority({ subject: '/CN=Short', by: root, extensions: [] });
  const shortest = issue({
    subject: '/CN=Shortest',
    by: root,
    extensions: ['basicConstraints=critical,CA:TRUE,pathlen:0', 'keyUsage=critical,keyCertSign'],
  });
  const below = authority({ subject: '/CN=Below', by: shortest });
  const selfIssued = authority({ subject: '/CN=Shortest', by: shortest });
  const noSign = issue({
    subject: '/CN=No sign',
    by: root,
    extensions: ['basicConstraints=CA:TRUE', 'keyUsage=digitalSignature'],
  });
  const clientAuthority = authority({ subject: '/CN=Clients', by: root, extensions: client });
  const constrained = authority({
    subject: '/CN=Constrained',
    by: root,
    extensions: ['nameConstraints=critical,permitted;DNS:example.com'],
  });
  const rsaRoot = authority({ subject: '/CN=RSA root', key: RSA_2048 });
  const selfSigned = issue({ subject: '/CN=alone', extensions: [named('alone')] });
  const impostor = authority({ subject: '/O=Weir/CN=Root' });
  const by = (issuedBy: Issued, order: Partial<Order> = {}): Issued =>
    issue({ subject: '/CN=leaf', by: issuedBy, ...order });
  const pss = ['-sigopt', 'rsa_padding_mode:pss'];

  type Row = readonly [says: string, trusted: boolean, chain: readonly Issued[], anchors?: readonly Issued[]];
  const rows: readonly Row[] = [
    ['leads to a trusted root and does not contain the root', true, [leaf, middle]],
    ['leads to a trusted root and contains the root', true, [leaf, middle, root]],
    ['contains the issuers in another order', true, [leaf, root, middle]],
    ['also contains unrelated certificates', true, [leaf, other, short, middle]],
    ['lacks the intermediate certificate', false, [leaf]],
    ['lacks the intermediate certificate and contains the root', false, [leaf, root]],
    ['leads to a root other than the anchor', false, [leaf, middle, root], [other]],
    ['leads to one of two anchors', true, [leaf, middle], [other, root]],
    ['is checked without anchors', false, [leaf, middle, root], []],
    ['leads to an anchor that is not a root', true, [leaf], [middle]],
    ['consists of the anchor only', true, [selfSigned], [selfSigned]],
    ['consists of a self-signed certificate', false, [selfSigned]],
    ['does not lead to the anchor, which has the name of the root', false, [leaf, middle], [impostor]],
    ['leads to one of two anchors with the same name', true, [leaf, middle], [impostor, root]],
    ['is signed by another root with the name of the anchor', false, [by(impostor), impostor]],
    ['has an issuer that is not a CA', false, [by(notAuthority), notAuthority]],
    ['has an issuer that may not sign', false, [by(noSign), noSign]],
    ['is as long as the path length permits', true, [by(shortest), shortest]],
    ['is longer than the path length permits', false, [by(below), below, shortest]],
    ['exceeds the path length only by a self-issued certificate', true, [by(selfIssued), selfIssued, shortest]],
    ['has a leaf for TLS clients only', false, [by(root, { extensions: client })]],
    ['is for servers and clients', true, [by(root, { extensions: ['extendedKeyUsage=clientAuth,serverAuth'] })]],
    ['has anyExtendedKeyUsage', false, [by(root, { extensions: ['extendedKeyUsage=anyExtendedKeyUsage'] })]],
    ['has a CA for TLS clients only', false, [by(clientAuthority), clientAuthority]],
    ['has key usage keyEncipherment', true, [by(root, { extensions: ['keyUsage=critical,keyEncipherment'] })]],
    ['has key usage keyCertSign only', false, [by(root, { extensions: ['keyUsage=keyCertSign'] })]],
    ['has an RSA key of 1024 bits', false, [weak]],
    ['has an RSA key of 2048 bits', true, [by(root, { key: RSA_2048 })]],
    ['has a curve of 192 bits', false, [by(root, { key: ['ec', '-pkeyopt', 'ec_paramgen_curve:P-192'] })]],
    ['has a curve of 384 bits', true, [by(root, { key: ['ec', '-pkeyopt', 'ec_paramgen_curve:P-384'] })]],
    ['has an Ed25519 key', true, [by(root, { key: ['ed25519'] })]],
    ['is signed with SHA-1', false, [by(rsaRoot, { digest: 'sha1' })], [rsaRoot]],
    ['is signed with MD5', false, [by(rsaRoot, { digest: 'md5' })], [rsaRoot]],
    ['is signed with SHA-384', true, [by(rsaRoot, { digest: 'sha384' })], [rsaRoot]],
    ['is signed with RSA-PSS', true, [by(rsaRoot, { more: pss })], [rsaRoot]],
    ['is signed with RSA-PSS and SHA-1', false, [by(rsaRoot, { more: pss, digest: 'sha1' })], [rsaRoot]],
    ['has an unknown critical extension', false, [by(root, { extensions: ['1.2.3.4=critical,DER:0500'] })]],
    ['has an unknown extension that is not critical', true, [by(root, { extensions: ['1.2.3.4=DER:0500'] })]],
    ['has a critical list of policies', true, [by(root, { extensions: ['certificatePolicies=critical,1.2.3.4'] })]],
  ];
  const cases = rows.map(([says, trusted, chain, anchors = [root]]) => ({ says, trusted, chain, anchors }));
  it.each(cases)(
    'the function `isTrusted` for a certificate chain that $says returns $trusted, as OpenSSL does',
    ({ trusted, chain, anchors }) => {
      expect(isTrusted(chain, anchors)).toBe(trusted);
      expect(issuer.verifies(anchors, chain)).toBe(trusted);
    },
  );

  it('a certificate chain with a name constraints extension is not trusted', () => {
    const inside = by(constrained, { extensions: [named('a.example.com')] });
    expect(isTrusted([inside, constrained])).toBe(false);
  });

  it('a certificate chain is trusted during its validity period, and not before or after', () => {
    const at = (nowMs: number): boolean => seen([leaf, middle], { nowMs: () => nowMs }).isTrusted([root.pem]);
    expect([-1, 0.5, 29, 31].map((days) => at(Date.now() + days * DAY_MS))).toEqual([false, true, true, false]);
  });

  it('a certificate chain is checked against the clock at each call of `isTrusted`, and is untrusted when a certificate has expired', () => {
    let nowMs = Date.now();
    const facts = seen([leaf, middle], { nowMs: () => nowMs });
    expect(facts.isTrusted([root.pem])).toBe(true);
    nowMs += 31 * DAY_MS;
    expect(facts.isTrusted([root.pem])).toBe(false);
  });

  it('a certificate chain is checked against the root certificates of the system if `isTrusted` gets no anchors', () => {
    const roots = (): TrustAnchors => new TrustAnchors([root.pem]);
    expect(seen([leaf, middle], { roots }).isTrusted(null)).toBe(true);
    expect(seen([leaf, middle]).isTrusted(null)).toBe(false);
  });

  it('a certificate chain with an invalid signature on the leaf certificate is not trusted', () => {
    const der = Buffer.from(leaf.der);
    der.writeUInt8(der.readUInt8(der.length - 1) ^ 1, der.length - 1);
    expect(isTrusted([{ ...leaf, der }, middle])).toBe(false);
  });

  it('a certificate chain of ten certificates with one name and one key is rejected within one second', () => {
    const ring = Array.from({ length: 10 }, () => authority({ subject: '/CN=Ring', withKeyOf: root }));
    const clock = new ProgressClock();
    expect(isTrusted(ring, [other])).toBe(false);
    expect(clock.ms()).toBeLessThan(1_000);
  });
});

describe('trust anchors', () => {
  it('every root certificate that Node contains can be read as a trust anchor', () => {
    const anchors = new TrustAnchors(rootCertificates);
    expect(anchors.isEmpty).toBe(false);
    const unreadable = rootCertificates.filter((pem) => new TrustAnchors([pem]).isEmpty);
    expect(unreadable).toEqual([]);
  });
});
