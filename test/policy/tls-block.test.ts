import { describe, expect, it } from 'vitest';
import type { TlsMatchConfig } from '#contracts/policy/policy-document.js';
import type { CertificateFacts, ClientHello, HelloFacts, SeenCertificate } from '#contracts/service-plane/tls-facts.js';
import { matchTlsBlock, type TlsBlockMatch } from '#policy/evaluate/connection/tls-block.js';
import { normaliseTls } from '#policy/model/tls.js';

const hello: ClientHello = { kind: 'hello', sni: 'api.example.com', ech: false, alpn: [], offersTls13: true };
const nameless: ClientHello = { ...hello, sni: null };
const encrypted: ClientHello = { ...hello, ech: true };
const garbled: HelloFacts = { kind: 'unreadable', fault: 'malformed' };

const print = 'ab'.repeat(32);
const seen: SeenCertificate = {
  kind: 'seen',
  subject: 'CN=api.example.com,O=Example,C=DE',
  commonNames: ['api.example.com', 'Second Name'],
  dnsNames: ['api.example.com', '*.api.example.com', 'www.example.com'],
  fingerprint: print,
  isTrusted: (anchors) => anchors === null || anchors.includes('good'),
};
const untrusted: SeenCertificate = { ...seen, isTrusted: () => false };
const unasked: CertificateFacts = { kind: 'unasked' };
const unreadable: CertificateFacts = { kind: 'unreadable' };
const by13: CertificateFacts = { kind: 'hidden', by: 'tls13' };
const byTicket: CertificateFacts = { kind: 'hidden', by: 'resumption' };

const matchBlock = (
  tls: TlsMatchConfig,
  helloFacts: HelloFacts,
  certificate: CertificateFacts = unasked,
): TlsBlockMatch => matchTlsBlock(normaliseTls(tls), { hello: helloFacts, certificate });

type Row = readonly [TlsMatchConfig, HelloFacts, CertificateFacts, TlsBlockMatch];

describe('`matchTlsBlock` with a ClientHello', () => {
  const rows: readonly Row[] = [
    [{}, hello, unasked, 'yes'],
    [{}, nameless, unasked, 'yes'],
    [{}, encrypted, unasked, 'yes'],
    [{}, garbled, unasked, 'malformed'],
    [{ sni: ['api.example.com'] }, hello, unasked, 'yes'],
    [{ sni: ['API.Example.com.'] }, hello, unasked, 'yes'],
    [{ sni: ['other.example.com', 'api.example.com'] }, hello, unasked, 'yes'],
    [{ sni: ['example.com'] }, hello, unasked, 'no'],
    [{ sni: ['*.example.com'] }, hello, unasked, 'yes'],
    [{ sni: { exact: ['*.Example.com.'] } }, hello, unasked, 'yes'],
    [{ sni: ['*.api.example.com'] }, hello, unasked, 'no'],
    [{ sni: ['*'] }, hello, unasked, 'yes'],
    [{ sni: ['*'] }, nameless, unasked, 'no_server_name'],
    [{ sni: ['b\u00fccher.example'] }, { ...hello, sni: 'xn--bcher-kva.example' }, unasked, 'yes'],
    [{ sni: ['api.example.com'] }, nameless, unasked, 'no_server_name'],
    [{ sni: ['api.example.com'] }, encrypted, unasked, 'yes'],
    [{ sni: ['other.example.com'] }, encrypted, unasked, 'no'],
    [{ sni: ['api.example.com'] }, garbled, unasked, 'malformed'],
    [{ ech: 'present' }, encrypted, unasked, 'yes'],
    [{ ech: 'present' }, hello, unasked, 'no'],
    [{ ech: 'present' }, garbled, unasked, 'malformed'],
    [{ ech: 'absent' }, encrypted, unasked, 'no'],
    [{ ech: 'absent' }, hello, unasked, 'yes'],
    [{ ech: 'absent' }, nameless, unasked, 'yes'],
    [{ ech: 'absent' }, garbled, unasked, 'malformed'],
    [{ ech: 'absent', sni: ['api.example.com'] }, hello, unasked, 'yes'],
    [{ ech: 'absent', sni: ['api.example.com'] }, encrypted, unasked, 'no'],
    [{ ech: 'absent', sni: ['other.example.com'] }, hello, unasked, 'no'],
    [{ ech: 'absent', sni: ['api.example.com'] }, nameless, unasked, 'no_server_name'],
    [{ ech: 'present', sni: ['api.example.com'] }, nameless, unasked, 'no'],
    [{ sni: 'example' }, hello, unasked, 'yes'],
    [{ sni: '^example' }, hello, unasked, 'no'],
    [{ sni: '^API\\.' }, hello, unasked, 'yes'],
    [{ sni: { exact: ['api.example.com'] } }, hello, unasked, 'yes'],
    [{ sni: { regex: 'com$' } }, hello, unasked, 'yes'],
    [{ sni: { exact: ['api.example.com'], regex: 'com$' } }, hello, unasked, 'yes'],
    [{ sni: { exact: ['api.example.com'], regex: 'org$' } }, hello, unasked, 'no'],
    [{ sni: { exact: ['api.example.org'], regex: 'com$' } }, hello, unasked, 'no'],
    [{ sni: { exact: [], regex: 'com$' } }, hello, unasked, 'yes'],
    [{ fingerprint_sha256: [], trust_anchors_pem: [] }, hello, unasked, 'yes'],
  ];
  it.each(rows)(
    '`matchTlsBlock` compares the TLS attributes %j of a rule with the ClientHello %j and the certificate %j, and returns %s',
    (tls, helloFacts, certificate, match) => {
      expect(matchBlock(tls, helloFacts, certificate)).toBe(match);
    },
  );
});

describe('`matchTlsBlock` if the service plane has read the server certificate', () => {
  const rows: readonly (readonly [TlsMatchConfig, CertificateFacts, TlsBlockMatch])[] = [
    [{ server_dn: 'CN=api.example.com,O=Example,C=DE' }, seen, 'yes'],
    [{ server_dn: 'cn=api.example.com,O=Example,C=DE' }, seen, 'no'],
    [{ server_dn: 'CN=api.example.com' }, seen, 'no'],
    [{ server_san: ['WWW.example.com'] }, seen, 'yes'],
    [{ server_san: ['*.api.example.com'] }, seen, 'yes'],
    [{ server_san: ['b.api.example.com'] }, seen, 'no'],
    [{ server_san: ['*.example.com'] }, { ...seen, dnsNames: ['a.example.com'] }, 'yes'],
    [{ server_san: ['*.example.com'] }, { ...seen, dnsNames: ['example.com'] }, 'no'],
    [{ server_san: ['f*.example.com'] }, { ...seen, dnsNames: ['f*.example.com'] }, 'yes'],
    [{ server_san: ['f*.example.com'] }, { ...seen, dnsNames: ['foo.example.com'] }, 'no'],
    [{ server_cn: ['*.example.com'] }, seen, 'yes'],
    [{ server_cn: ['*.example.com'] }, { ...seen, commonNames: ['*.Example.com'] }, 'yes'],
    [{ server_cn: ['*.api.example.com'] }, seen, 'no'],
    [{ server_cn: ['API.example.com'] }, seen, 'yes'],
    [{ server_cn: ['b\u00fccher.example'] }, { ...seen, commonNames: ['xn--bcher-kva.example'] }, 'yes'],
    [{ server_cn: ['xn--bcher-kva.example'] }, { ...seen, commonNames: ['B\u00fccher.example'] }, 'yes'],
    [{ server_san: 'WWW' }, seen, 'yes'],
    [{ server_san: { exact: ['www.example.com'], regex: '^api' } }, seen, 'no'],
    [{ server_cn: ['Second Name'] }, seen, 'yes'],
    [{ server_cn: ['second name'] }, seen, 'no'],
    [{ server_cn: '^Second' }, seen, 'yes'],
    [{ server_cn: '^second' }, seen, 'no'],
    [{ server_cn: '(?i)^second' }, seen, 'yes'],
    [{ server_cn: ['x'] }, { ...seen, commonNames: [] }, 'no'],
    [{ fingerprint_sha256: [print.toUpperCase()] }, seen, 'yes'],
    [{ fingerprint_sha256: [print.replace(/..(?=.)/g, '$&:')] }, seen, 'yes'],
    [{ fingerprint_sha256: ['cd'.repeat(32)] }, seen, 'no'],
    [{ trust_anchors_pem: ['good'] }, seen, 'yes'],
    [{ trust_anchors_pem: ['bad'] }, seen, 'no'],
    [{ trust_anchors_pem: ['bad'], server_san: ['www.example.com'] }, seen, 'certificate_untrusted'],
    [{ trust_anchors_pem: ['bad'], server_san: ['x.example.com'] }, seen, 'no'],
    [{ trust_anchors_pem: ['good'], server_san: ['www.example.com'] }, seen, 'yes'],
    [{ trust_anchors_pem: ['bad'], fingerprint_sha256: [print] }, seen, 'no'],
    [{ server_san: ['www.example.com'] }, untrusted, 'certificate_untrusted'],
    [{ server_cn: ['api.example.com'] }, untrusted, 'certificate_untrusted'],
    [{ server_dn: seen.subject }, untrusted, 'certificate_untrusted'],
    [{ server_san: ['x.example.com'] }, untrusted, 'no'],
    [{ fingerprint_sha256: [print] }, untrusted, 'yes'],
    [{ fingerprint_sha256: [print], server_san: ['www.example.com'] }, untrusted, 'yes'],
    [
      { fingerprint_sha256: [print], trust_anchors_pem: ['good'], server_cn: ['Second Name'] },
      untrusted,
      'certificate_untrusted',
    ],
    [{ trust_anchors_pem: ['good'] }, untrusted, 'no'],
  ];
  it.each(rows)(
    '`matchTlsBlock` compares the TLS attributes %j of a rule with the certificate %j that the service plane has read, and returns %s',
    (tls, certificate, match) => {
      expect(matchBlock(tls, hello, certificate)).toBe(match);
    },
  );
});

describe('`matchTlsBlock` if the service plane has not read a server certificate', () => {
  const one = { sni: ['api.example.com'], server_san: ['www.example.com'] };
  const rows: readonly Row[] = [
    [one, hello, unasked, 'needs_certificate'],
    [{ fingerprint_sha256: [print] }, nameless, unasked, 'needs_certificate'],
    [{ ...one, ech: 'absent' }, hello, unasked, 'needs_certificate'],
    [{ ...one, ech: 'present' }, hello, unasked, 'no'],
    [{ ...one, ech: 'present' }, encrypted, by13, 'hidden'],
    [one, nameless, unasked, 'no_server_name'],
    [one, encrypted, unasked, 'needs_certificate'],
    [one, encrypted, by13, 'hidden'],
    [{ ...one, sni: ['other'] }, hello, unasked, 'no'],
    [one, hello, by13, 'hidden'],
    [one, hello, byTicket, 'hidden'],
    [{ trust_anchors_pem: ['good'] }, nameless, by13, 'hidden'],
    [one, nameless, by13, 'no_server_name'],
    [{ ...one, sni: ['other'] }, hello, by13, 'no'],
    [one, garbled, by13, 'malformed'],
    [one, hello, unreadable, 'certificate_unreadable'],
    [one, nameless, unreadable, 'no_server_name'],
    [one, nameless, untrusted, 'no_server_name'],
    [one, garbled, unreadable, 'malformed'],
    [{ ...one, sni: ['other'] }, hello, unreadable, 'no'],
    [{ sni: ['api.example.com'] }, hello, unreadable, 'yes'],
    [{ sni: ['api.example.com'] }, hello, by13, 'yes'],
    [one, nameless, seen, 'no_server_name'],
    [{ ...one, server_san: ['other'] }, nameless, seen, 'no'],
  ];
  it.each(rows)(
    '`matchTlsBlock` compares the TLS attributes %j of a rule with the ClientHello %j and the unread certificate %j, and returns %s',
    (tls, helloFacts, certificate, match) => {
      expect(matchBlock(tls, helloFacts, certificate)).toBe(match);
    },
  );
});

describe('`matchTlsBlock`', () => {
  it('`matchTlsBlock` verifies the certificate chain only if the result depends on the chain, and uses the trust anchors in the TLS attributes of the rule', () => {
    const asked: (readonly string[] | null)[] = [];
    const certificate: SeenCertificate = { ...seen, isTrusted: (anchors) => asked.push(anchors) > 0 };
    matchBlock({ server_san: ['no.example.com'] }, hello, certificate);
    matchBlock({ fingerprint_sha256: [print], server_san: ['www.example.com'] }, hello, certificate);
    expect(asked).toEqual([]);
    matchBlock({ server_san: ['www.example.com'] }, hello, certificate);
    matchBlock({ trust_anchors_pem: ['mine'] }, hello, certificate);
    expect(asked).toEqual([null, ['mine']]);
  });

  it('`matchTlsBlock` throws for a regular expression that does not compile', () => {
    expect(() => matchTlsBlock({ sni: '(' }, { hello, certificate: unasked })).toThrow('does not compile');
  });
});
