import type { TlsMatchConfig, TlsNameMatch } from '#contracts/policy/policy-document.js';
import type { ClientHello, HelloFault, SeenCertificate, TlsFacts } from '#contracts/service-plane/tls-facts.js';
import { hostnameListTest } from '#policy/model/names/hostname.js';
import { compileRegex, type RegexOptions } from '#policy/model/names/regex.js';
import { isNameList } from '#policy/model/tls.js';

/**
 * The result of matching the TLS matchers of a rule against a connection (D22a). `hidden`: all visible
 * properties match, but the certificate is hidden. `needs_certificate`: all known properties match, and the
 * certificate was not requested yet. Any other result: the matchers are undecidable, and this is the cause.
 */
export type TlsBlockMatch = Match | 'hidden' | 'needs_certificate';

/**
 * Why TLS matchers are undecidable. `no_server_name`: the ClientHello has no SNI. `certificate_unreadable`:
 * the certificate cannot be read. `certificate_untrusted`: the certificate has the names of the rule, and its
 * chain leads to no trusted certificate.
 */
export type UndecidableCause = HelloFault | 'no_server_name' | 'certificate_unreadable' | 'certificate_untrusted';

/**
 * Matches the properties of a connection against normalised TLS matchers. If one matcher fails, the result is
 * `no`, even if other matchers are undecidable. The names in a certificate are reliable if its chain is
 * trusted. They are also reliable if the rule pins the fingerprint of the certificate and has no trust
 * anchors. If unreliable names match, the result is `certificate_untrusted`.
 *
 * @throws Error for an invalid regular expression; validation rejects such expressions.
 */
export function matchTlsBlock(tls: TlsMatchConfig, { hello, certificate }: TlsFacts): TlsBlockMatch {
  if (hello.kind === 'unreadable') return hello.fault;
  const block = compiledOf(tls);
  const visible = both(matchEch(block, hello), matchSni(block, hello));
  if (visible === 'no' || !block.looksAtCertificate) return visible;
  switch (certificate.kind) {
    case 'seen':
      return both(visible, matchCertificate(block, certificate));
    case 'unreadable':
      return both(visible, 'certificate_unreadable');
    case 'hidden':
      return visible === 'yes' ? 'hidden' : visible;
    case 'unasked':
      return visible === 'yes' ? 'needs_certificate' : visible;
  }
}

type Match = 'yes' | 'no' | UndecidableCause;
type NameTest = (name: string) => boolean;

type TlsBlock = {
  readonly sni: NameTest | null;
  readonly ech: boolean | null;
  readonly dn: string | null;
  readonly san: NameTest | null;
  readonly cn: NameTest | null;
  readonly fingerprints: ReadonlySet<string> | null;
  readonly anchors: readonly string[] | null;
  readonly looksAtNames: boolean;
  readonly looksAtCertificate: boolean;
};

function both(one: Match, other: Match): Match {
  if (one === 'no' || other === 'no') return 'no';
  return one === 'yes' ? other : one;
}

function matchEch({ ech }: TlsBlock, hello: ClientHello): Match {
  return ech === null || ech === hello.ech ? 'yes' : 'no';
}

function matchSni({ sni }: TlsBlock, hello: ClientHello): Match {
  if (sni === null) return 'yes';
  if (hello.sni === null) return 'no_server_name';
  return sni(hello.sni) ? 'yes' : 'no';
}

function matchCertificate(block: TlsBlock, certificate: SeenCertificate): Match {
  const { dn, san, cn, fingerprints, anchors, looksAtNames } = block;
  const { subject, dnsNames, commonNames, fingerprint } = certificate;
  if (fingerprints !== null && !fingerprints.has(fingerprint)) return 'no';
  if (dn !== null && dn !== subject) return 'no';
  if (san !== null && !dnsNames.some(san)) return 'no';
  if (cn !== null && !commonNames.some(cn)) return 'no';
  if (anchors === null && (fingerprints !== null || !looksAtNames)) return 'yes';
  if (certificate.isTrusted(anchors)) return 'yes';
  return looksAtNames ? 'certificate_untrusted' : 'no';
}

/**
 * Caches the compiled form of each configuration object. The cache is correct because configuration objects
 * do not change.
 */
const compiled = new WeakMap<TlsMatchConfig, TlsBlock>();

function compiledOf(tls: TlsMatchConfig): TlsBlock {
  const known = compiled.get(tls);
  if (known !== undefined) return known;
  const block = compile(tls);
  compiled.set(tls, block);
  return block;
}

/**
 * Compiles the TLS matchers of a rule. An empty list of fingerprints or trust anchors has the same effect as
 * a missing list.
 */
function compile(tls: TlsMatchConfig): TlsBlock {
  const { fingerprint_sha256: fingerprints = [], trust_anchors_pem: anchors = [] } = tls;
  const names = {
    dn: tls.server_dn ?? null,
    san: nameTest(tls.server_san, { caseInsensitive: true }),
    cn: nameTest(tls.server_cn, {}),
  };
  const looksAtNames = names.dn !== null || names.san !== null || names.cn !== null;
  return {
    ...names,
    sni: nameTest(tls.sni, { caseInsensitive: true }),
    ech: tls.ech === undefined ? null : tls.ech === 'present',
    fingerprints: fingerprints.length === 0 ? null : new Set(fingerprints),
    anchors: anchors.length === 0 ? null : anchors,
    looksAtNames,
    looksAtCertificate: looksAtNames || fingerprints.length > 0 || anchors.length > 0,
  };
}

function nameTest(matcher: TlsNameMatch | undefined, options: RegexOptions): NameTest | null {
  if (matcher === undefined) return null;
  if (typeof matcher === 'string') return regexTest(matcher, options);
  if (isNameList(matcher)) return hostnameListTest(matcher);
  const { exact = [], regex } = matcher;
  const tests = [
    ...(exact.length === 0 ? [] : [hostnameListTest(exact)]),
    ...(regex === undefined ? [] : [regexTest(regex, options)]),
  ];
  return (name) => tests.every((test) => test(name));
}

function regexTest(source: string, options: RegexOptions): NameTest {
  const compiled = compileRegex(source, options);
  if (!compiled.ok) throw new Error(`a validated regular expression does not compile: ${compiled.fault}`);
  return (name) => compiled.regex.test(name);
}
