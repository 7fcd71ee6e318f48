import { describe, expect, it } from 'vitest';
import type { Problem } from '#contracts/policy/policy-problem.js';
import { validateEnvelope, validatePolicy } from '#policy/check/validation/validate.js';
import { MAX_PROBLEMS, type ValidationContext } from '#policy/check/validation/validation-context.js';

const context: ValidationContext = {
  form: 'singleton',
  integrations: new Set(['prod']),
  parseCertificate: (pem) => (pem.startsWith('-----BEGIN CERTIFICATE-----') ? undefined : 'no certificate inside'),
};
const RULE = '/source_groups/0/rules/0';
const MATCH = `${RULE}/match`;

function policyWith(match: unknown): unknown {
  return policyOf([{ id: 'r', action: 'allow', match }]);
}
function policyOf(rules: unknown): unknown {
  return { source_groups: [{ id: 'g', mode: 'enforce', sources: { ips: ['10.0.0.1'] }, rules }] };
}
function groupWith(sources: unknown): unknown {
  return { source_groups: [{ id: 'g', mode: 'enforce', sources }] };
}
/**
 * Returns the problems of a document. A string is parsed as JSON, because in an object literal `__proto__`
 * sets the prototype and is not a key.
 */
function problemsOf(document: unknown): Problem[] {
  return validatePolicy(typeof document === 'string' ? JSON.parse(document) : structuredClone(document), context);
}
function lines(problems: readonly Problem[]): string[] {
  return problems.map(({ pointer, code, message }) => `${code} ${pointer}: ${message}`);
}
function matchProblems(match: unknown): string[] {
  return lines(problemsOf(policyWith(match))).map((line) => line.replace(MATCH, '~'));
}
const digest = 'ab'.repeat(32);
const PEM = '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n';
const intercept = (request: unknown) => ({ tls: { mode: 'intercept', http: { request } } });

describe('`validatePolicy` of ids', () => {
  const PRINTABLE = 'An id has printable characters only.';
  it.each(['a\nb', '\u001b[31mred', 'a\u0000', 'a\u202eb', 'a\u2028b', '\u007f'])(
    '`validatePolicy` refuses %j as id of a group and as id of a rule',
    (id) => {
      const rules = [{ id, action: 'allow', match: {} }];
      const document = { source_groups: [{ id, mode: 'enforce', sources: { ips: ['10.0.0.1'] }, rules }] };
      expect(lines(problemsOf(document))).toEqual([
        `invalid_id /source_groups/0/id: ${PRINTABLE}`,
        `invalid_id ${RULE}/id: ${PRINTABLE}`,
      ]);
      expect(validatePolicy(document, { ...context, isStored: true })).toEqual([]);
    },
  );

  it('`validatePolicy` accepts ids with printable characters of any script, and blanks', () => {
    expect(problemsOf(policyOf([{ id: 'B\u00fcro 1/\u65e5\u672c', action: 'allow', match: {} }]))).toEqual([]);
  });
});

describe('`validatePolicy` of a name that can never match', () => {
  const LOOKUP = ['dns_hostname'];
  const LISTS = ['sni', 'host', 'server_san'];
  const forms: readonly (readonly [string, readonly string[], string])[] = [
    ['.example.com', [...LOOKUP, ...LISTS], 'a name has no empty label; write "*.example.com"'],
    [
      '*example.com',
      [...LOOKUP, 'sni', 'host'],
      '"*" stands alone or as "*." before a name; write a regular expression for anything else; write "*.example.com"',
    ],
    ['example.com ', [...LOOKUP, ...LISTS], 'no name has a blank; write "example.com"'],
    ['example.com:443', [...LOOKUP, ...LISTS], 'no name has the character ":"; write "example.com"'],
    [
      'https://example.com/a?b',
      LISTS,
      'a list has names; write { "regex": "https://example.com/a?b" } for a regular expression; write "example.com"',
    ],
    ['https://*.example.com/', LISTS, 'no name has the character ":"; write "*.example.com"'],
    [
      'https://b\u00fccher.example/',
      [...LOOKUP, ...LISTS],
      'no name has the character ":"; write "b\u00fccher.example"',
    ],
    ['user@example.com', [...LOOKUP, ...LISTS], 'no name has the character "@"; write "example.com"'],
    ['-bad.example', [...LOOKUP, ...LISTS], 'a label does not begin with "-"; write "bad.example"'],
    ['a..b', [...LOOKUP, ...LISTS], 'a name has no empty label'],
    [`${'a'.repeat(64)}.test`, [...LOOKUP, ...LISTS], 'a label has at most 63 characters'],
    ['a.test, b.test', [...LOOKUP, ...LISTS], 'no name has the character ","'],
    ['a\u00a0b.test', [...LOOKUP, ...LISTS], 'no name has a blank'],
    ['^a\\.test$', LISTS, 'a list has names; write { "regex": "^a\\\\.test$" } for a regular expression'],
    ['host.5', [...LOOKUP, ...LISTS], 'the last label of a name is not a number'],
    ['1.2.3.4', LOOKUP, 'an address is not looked up; write it in dst_ips'],
    ['1.2.3.4', ['sni'], 'a client sends no address as server name; write it in dst_ips'],
    ['spiffe://a/b', ['server_san'], 'no name has the character ":"; write "a"'],
  ];
  const matchOf = (field: string, text: string): unknown => {
    if (field === 'dns_hostname') return { dns_hostname: text };
    return field === 'host' ? intercept({ host: { exact: [text] } }) : { tls: { [field]: [text] } };
  };
  const placeOf = (field: string) =>
    ({ dns_hostname: '~/dns_hostname', host: '~/tls/http/request/host/exact/0' })[field] ?? `~/tls/${field}/0`;

  it.each(forms.flatMap(([text, fields, fault]) => fields.map((field) => [field, text, fault] as const)))(
    '`validatePolicy` refuses in the field %s the name %j for the reason: %s',
    (field, text, fault) => {
      expect(matchProblems(matchOf(field, text))).toEqual([
        `invalid_hostname ${placeOf(field)}: No name matches ${JSON.stringify(text)}: ${fault}.`,
      ]);
    },
  );

  it.each<readonly [string, string]>([
    ['server_cn', 'https://example.com'],
    ['server_cn', 'Second Name'],
    ['server_san', 'f*.example.com'],
    ['server_san', '192.0.2.7'],
    ['host', '192.0.2.7'],
    ['host', '[2001:db8::1]'],
    ...[
      'b\u00fccher.example',
      '*.b\u00fccher.example',
      '*.example.com',
      '*',
      '_a.test',
      'a-.test',
      'localhost',
    ].flatMap((text) => [...LOOKUP, ...LISTS, 'server_cn'].map((field) => [field, text] as const)),
  ])('`validatePolicy` accepts in the field %s the name %j', (field, text) => {
    expect(matchProblems(matchOf(field, text))).toEqual([]);
  });

  it('`validatePolicy` refuses a name with a star, or one that can never match, where a regular expression is expected', () => {
    expect(matchProblems({ tls: { sni: '*.example.com', server_san: { regex: 'example.com:443' } } })).toEqual([
      'invalid_regex ~/tls/sni: A string is a regular expression, and this is none; write a list for names: ["*.example.com"].',
      'invalid_hostname ~/tls/server_san/regex: No name matches "example.com:443": no name has the character ":"; write "example.com".',
    ]);
  });

  it('`validatePolicy` accepts in a stored policy a name that an older version accepted', () => {
    const stored = { ...context, isStored: true };
    for (const [text, fields] of forms.slice(2)) {
      for (const field of fields) {
        if (field === 'dns_hostname' && /a\.\.b|a{64}/.test(text)) continue;
        expect([field, text, validatePolicy(policyWith(matchOf(field, text)), stored)]).toEqual([field, text, []]);
      }
    }
  });
});

describe('`validatePolicy` on a node that enforces IPv6 policies', () => {
  const WORDS = 'up to eight words of one to four hexadecimal digits, and "::" at most once for words of zeros.';
  const ZONE = 'a zone id names an interface of one machine, so a policy has none.';
  const mapped = (text: string) => `No packet has an IPv4-mapped address; write "${text}".`;
  it.each<[unknown, string[]]>([
    [
      { dst_cidrs: ['::/0', '2001:DB8::/32', '2001:db8::1', '10.0.0.0/8', '2002::/16'], dst_ips: ['::1', '10.0.0.1'] },
      [],
    ],
    [{ proto: 'icmpv6', icmp_types: [128] }, []],
    [{ proto: 'ICMPv6' }, []],
    [{ proto: 58, icmp_codes: [0] }, []],
    [
      { dst_cidrs: ['2001:db8::/129'] },
      [`invalid_cidr ~/dst_cidrs/0: Write a network of IPv6 such as "2001:db8::/32": ${WORDS}`],
    ],
    [
      { dst_ips: ['2001:db8:::1'] },
      [`invalid_address ~/dst_ips/0: Write an address of IPv6 such as "2001:db8::7": ${WORDS}`],
    ],
    [
      { dst_ips: ['fe80::1%eth0'] },
      [`invalid_address ~/dst_ips/0: Write an address of IPv6 such as "2001:db8::7": ${ZONE}`],
    ],
    [
      { dst_ips: ['[2001:db8::1]'] },
      [`invalid_address ~/dst_ips/0: Write an address of IPv6 such as "2001:db8::7": ${WORDS}`],
    ],
    [
      { dst_ips: ['2001:db8::/64'] },
      ['invalid_address ~/dst_ips/0: Write an IPv6 address such as "2001:db8::7": a network goes into cidrs.'],
    ],
    [{ dst_ips: ['::ffff:192.0.2.7'] }, [`invalid_address ~/dst_ips/0: ${mapped('192.0.2.7')}`]],
    [{ dst_cidrs: ['::ffff:c000:200/120'] }, [`invalid_cidr ~/dst_cidrs/0: ${mapped('192.0.2.0/24')}`]],
    [{ proto: 'icmpv6', dst_ports: [1] }, ['icmp_with_ports ~/dst_ports: An ICMP rule has no ports.']],
    [
      { proto: 17, icmp_types: [1] },
      ['icmp_needs_icmp ~/icmp_types: ICMP types and codes need the protocol icmp, icmpv6 or any.'],
    ],
  ])('the problems of the match %j are %j', (match, expected) => {
    const at = '/source_groups/0/rules/0/match';
    const found = validatePolicy(policyWith(match), { ...context, ipv6: true });
    expect(found.map(({ pointer, code, message }) => `${code} ${pointer.replace(at, '~')}: ${message}`)).toEqual(
      expected,
    );
  });
});

describe('`validatePolicy` of a match', () => {
  it('refuses ICMPv6 by its name, and its types by its number, on a node without IPv6 policies', () => {
    expect(problemsOf(policyWith({ proto: 'icmpv6', icmp_types: [128] })).map(({ code }) => code)).toEqual([
      'ipv6_not_enabled',
    ]);
    expect(problemsOf(policyWith({ proto: 58, icmp_types: [128] })).map(({ code }) => code)).toEqual([
      'icmp_needs_icmp',
    ]);
    expect(problemsOf(policyWith({ proto: 58 }))).toEqual([]);
  });

  const EMPTY_TEXT = 'An empty text matches nothing.';
  const CIDR = 'Write an IPv4 network such as "192.0.2.0/24": four decimal octets, "/", and 0 to 32.';
  const NOT_REGEX = 'Invalid regular expression: missing closing ) at character 2.';
  const HEADER = 'A header name is a token such as "content-type".';
  it.each<[string, unknown, unknown, string[]]>([
    [
      'a bad CIDR',
      { dst_cidrs: ['10.0.0.0/33', '10.0.0.0/8'] },
      { dst_cidrs: ['10.0.0.0/32', '10.0.0.1'] },
      [`invalid_cidr ~/dst_cidrs/0: ${CIDR}`],
    ],
    [
      'a bad address',
      { dst_ips: ['10.0.0.01'] },
      { dst_ips: ['10.0.0.1'] },
      [
        'invalid_address ~/dst_ips/0: Write an IPv4 address such as "192.0.2.7": four decimal octets without leading zeros.',
      ],
    ],
    [
      'a network among addresses',
      { dst_ips: ['10.0.0.0/8'] },
      { dst_ips: [] },
      ['invalid_address ~/dst_ips/0: Write an IPv4 address such as "192.0.2.7": a network goes into cidrs.'],
    ],
    [
      'IPv6 networks and IPv6 addresses',
      { dst_cidrs: ['2001:db8::/32'], dst_ips: ['::1'] },
      {},
      [
        'ipv6_not_enabled ~/dst_cidrs/0: A policy with IPv6 needs dataplane.ipv6: enforce in the configuration of this node; without it, write an IPv4 network such as "192.0.2.0/24".',
        'ipv6_not_enabled ~/dst_ips/0: A policy with IPv6 needs dataplane.ipv6: enforce in the configuration of this node; without it, write an IPv4 address such as "192.0.2.7".',
      ],
    ],
    [
      'a misspelled or incomplete field name',
      { fingerprint: 0, dstIps: 0, tls: { mode: 'intercept', http: { request: { query: { keys: 0, header: 0 } } } } },
      { tls: { mode: 'intercept', http: { request: { query: { keys_present: ['a'] } } } } },
      [
        'unknown_field ~/tls/http/request/query/keys: There is no field "keys" here (did you mean "keys_present"?).',
        'unknown_field ~/tls/http/request/query/header: There is no field "header" here.',
        'unknown_field ~/fingerprint: There is no field "fingerprint" here.',
        'unknown_field ~/dstIps: There is no field "dstIps" here (did you mean "dst_ips"?).',
      ],
    ],
    [
      'a star inside a hostname',
      { dns_hostname: 'a.*.com' },
      { dns_hostname: '*.a.com' },
      [
        'invalid_hostname ~/dns_hostname: No name matches "a.*.com": "*" stands alone or as "*." before a name; write a regular expression for anything else.',
      ],
    ],
    ['an empty hostname', { dns_hostname: '' }, { dns_hostname: 'a' }, [`empty_matcher ~/dns_hostname: ${EMPTY_TEXT}`]],
    [
      'a hostname that is not valid RE2',
      { dns_hostname: '^(a' },
      { dns_hostname: '^(a)$' },
      [`invalid_regex ~/dns_hostname: ${NOT_REGEX}`],
    ],
    [
      'a regular expression above 1,024 bytes',
      { dns_hostname: `^${'a'.repeat(1024)}` },
      { dns_hostname: `^${'é'.repeat(511)}` },
      ['regex_too_long ~/dns_hostname: Invalid regular expression: longer than 1024 bytes.'],
    ],
    [
      'an unknown protocol',
      { proto: 'sctp' },
      { proto: 'TCP' },
      ['invalid_protocol ~/proto: A protocol is "tcp", "udp", "icmp", "any" or a number.'],
    ],
    [
      'a protocol number in quotes',
      { proto: '6' },
      { proto: 6 },
      [
        'invalid_protocol ~/proto: A protocol is "tcp", "udp", "icmp", "any" or a number; write the number without quotes: 6.',
      ],
    ],
    [
      'a protocol named like a member of Object',
      { proto: 'constructor' },
      { proto: 'any' },
      ['invalid_protocol ~/proto: A protocol is "tcp", "udp", "icmp", "any" or a number.'],
    ],
    ['a protocol above 255', { proto: 256 }, { proto: 255 }, ['out_of_range ~/proto: Must be at most 255.']],
    ['a negative protocol', { proto: -1 }, { proto: 0 }, ['out_of_range ~/proto: Must be at least 0.']],
    [
      'a fractional protocol',
      { proto: 6.5 },
      { proto: 6 },
      ['invalid_type ~/proto: Must be an integer, not a fraction.'],
    ],
    [
      'a list of protocols',
      { proto: ['tcp'] },
      { proto: 'tcp' },
      ['invalid_type ~/proto: Must be a string or an integer, not an array.'],
    ],
    [
      'a port above 65535',
      { dst_ports: [80, 65536] },
      { dst_ports: [0, 65535] },
      ['out_of_range ~/dst_ports/1: Must be at most 65535.'],
    ],
    [
      'a range with a start above its end',
      { src_ports: ['20-10'] },
      { src_ports: ['10-10'] },
      ['invalid_port ~/src_ports/0: Invalid port: the range begins at 20, above its end 10.'],
    ],
    [
      'a range above 65535',
      { dst_ports: ['1-65536'] },
      { dst_ports: ['0-65535'] },
      ['invalid_port ~/dst_ports/0: Invalid port: a port is 0 to 65535.'],
    ],
    [
      'a port that is not a number',
      { dst_ports: ['http'] },
      { dst_ports: ['80'] },
      ['invalid_port ~/dst_ports/0: Invalid port: write a port ("443") or a range ("8000-8100") in decimal.'],
    ],
    [
      'a range with spaces',
      { dst_ports: ['1 - 2'] },
      { dst_ports: ['1-2'] },
      ['invalid_port ~/dst_ports/0: Invalid port: write a port ("443") or a range ("8000-8100") in decimal.'],
    ],
    [
      'a port that is an object',
      { dst_ports: [{ low: 1 }] },
      { dst_ports: [] },
      ['invalid_type ~/dst_ports/0: Must be an integer or a string, not an object.'],
    ],
    [
      'an ICMP type above 255',
      { icmp_types: [256] },
      { icmp_types: [255] },
      ['out_of_range ~/icmp_types/0: Must be at most 255.'],
    ],
    [
      'an ICMP code below 0',
      { icmp_codes: [-1] },
      { icmp_codes: [0] },
      ['out_of_range ~/icmp_codes/0: Must be at least 0.'],
    ],
    [
      'ICMP types with tcp',
      { proto: 'tcp', icmp_types: [8] },
      { proto: 'any', icmp_types: [8] },
      ['icmp_needs_icmp ~/icmp_types: ICMP types and codes need the protocol icmp or any.'],
    ],
    [
      'ICMP codes with udp',
      { proto: 17, icmp_codes: [0] },
      { proto: 1, icmp_codes: [0] },
      ['icmp_needs_icmp ~/icmp_codes: ICMP types and codes need the protocol icmp or any.'],
    ],
    [
      'ports of an ICMP rule',
      { proto: 'ICMP', dst_ports: [80] },
      { proto: 'ICMP', dst_ports: [] },
      ['icmp_with_ports ~/dst_ports: An ICMP rule has no ports.'],
    ],
    [
      'ports together with ICMP types',
      { icmp_types: [8], src_ports: [1], dst_ports: [2] },
      { icmp_types: [8] },
      [
        'icmp_with_ports ~/src_ports: An ICMP rule has no ports.',
        'icmp_with_ports ~/dst_ports: An ICMP rule has no ports.',
      ],
    ],
    [
      'tls with udp',
      { proto: 'udp', tls: {} },
      { proto: 'tcp', tls: {} },
      ['tls_needs_tcp ~/tls: A rule with tls needs the protocol tcp or any.'],
    ],
    [
      'tls with a protocol number',
      { proto: 132, tls: {} },
      { proto: 6, tls: {} },
      ['tls_needs_tcp ~/tls: A rule with tls needs the protocol tcp or any.'],
    ],
    [
      'an unknown field',
      { dst_port: [443] },
      {},
      ['unknown_field ~/dst_port: There is no field "dst_port" here (did you mean "dst_ports"?).'],
    ],
    [
      'an unknown TLS mode',
      { tls: { mode: 'peek' } },
      { tls: { mode: 'metadata' } },
      ['invalid_value ~/tls/mode: Must be "metadata" or "intercept".'],
    ],
    [
      'http without intercept',
      { tls: { http: { request: { methods: ['GET'] } } } },
      intercept({ methods: ['GET'] }),
      ['http_needs_intercept ~/tls/http: HTTP can be matched only with "mode": "intercept".'],
    ],
    [
      'intercept without http',
      { tls: { mode: 'intercept' } },
      { tls: {} },
      ['intercept_needs_http ~/tls: The mode intercept requires http: without http there is nothing to match.'],
    ],
    [
      'metadata matchers in a TLS block with mode intercept',
      {
        tls: {
          mode: 'intercept',
          sni: ['a'],
          ech: 'present',
          server_dn: 'CN=a',
          fingerprint_sha256: [digest],
          trust_anchors_pem: [PEM],
          http: { request: { methods: ['GET'] } },
        },
      },
      {
        tls: {
          mode: 'intercept',
          fingerprint_sha256: [],
          trust_anchors_pem: [],
          http: { request: { methods: ['GET'] } },
        },
      },
      ['sni', 'ech', 'server_dn', 'fingerprint_sha256', 'trust_anchors_pem'].map(
        (field) => `intercept_with_metadata ~/tls/${field}: The mode intercept does not take ${field}; match http.`,
      ),
    ],
    [
      'http without request and response',
      { tls: { mode: 'intercept', http: {} } },
      { tls: { mode: 'intercept', http: { response: { headers: { deny_present: ['x'] } } } } },
      ['http_empty ~/tls/http: http needs request or response.'],
    ],
    [
      'an empty regular expression for the SNI',
      { tls: { sni: '' } },
      { tls: { sni: '.' } },
      ['empty_matcher ~/tls/sni: Invalid regular expression: an empty expression matches everything.'],
    ],
    [
      'an empty SNI list',
      { tls: { sni: [] } },
      { tls: { sni: ['a'] } },
      ['empty_matcher ~/tls/sni: An empty list of names matches nothing.'],
    ],
    [
      'an empty SNI object',
      { tls: { sni: {} } },
      { tls: { sni: { regex: 'a' } } },
      ['empty_matcher ~/tls/sni: A name matcher needs exact or regex.'],
    ],
    [
      'an SNI object with an empty list',
      { tls: { server_san: { exact: [] } } },
      { tls: { server_san: { exact: ['a'] } } },
      ['empty_matcher ~/tls/server_san: A name matcher needs exact or regex.'],
    ],
    [
      'an empty name in a list',
      { tls: { server_cn: ['a', ''] } },
      { tls: { server_cn: ['a', 'b'] } },
      [`empty_matcher ~/tls/server_cn/1: ${EMPTY_TEXT}`],
    ],
    [
      'a number in a list of names',
      { tls: { sni: ['a', 5] } },
      { tls: { sni: ['a', 'b5'] } },
      ['invalid_type ~/tls/sni/1: Must be a string, not a number.'],
    ],
    [
      'an unknown field of a name object',
      { tls: { sni: { prefix: ['a'] } } },
      { tls: { sni: { exact: ['a'] } } },
      ['unknown_field ~/tls/sni/prefix: There is no field "prefix" here.'],
    ],
    [
      'a name object whose fields have wrong types',
      { tls: { sni: { exact: 'a', regex: 1 } } },
      { tls: { sni: { exact: ['a'], regex: '1' } } },
      [
        'invalid_type ~/tls/sni/exact: Must be an array, not a string.',
        'invalid_type ~/tls/sni/regex: Must be a string, not a number.',
      ],
    ],
    [
      'a matcher of ECH that is no word',
      { tls: { ech: true } },
      { tls: { ech: 'present' } },
      ['invalid_value ~/tls/ech: Must be "present" or "absent".'],
    ],
    [
      'an SNI that is a number',
      { tls: { sni: 5 } },
      { tls: { sni: '5' } },
      ['invalid_type ~/tls/sni: Must be a string or an array or an object, not a number.'],
    ],
    [
      'a regular expression for the SNI that is not valid RE2',
      { tls: { sni: 'a(' } },
      { tls: { sni: 'a()' } },
      [`invalid_regex ~/tls/sni: ${NOT_REGEX}`],
    ],
    [
      'an empty server_dn',
      { tls: { server_dn: '' } },
      { tls: { server_dn: 'CN=a' } },
      ['empty_matcher ~/tls/server_dn: An empty name matches nothing.'],
    ],
    [
      'a short fingerprint',
      { tls: { fingerprint_sha256: [digest.slice(2)] } },
      { tls: { fingerprint_sha256: [digest, Array(32).fill('AB').join(':')] } },
      [
        'invalid_fingerprint ~/tls/fingerprint_sha256/0: A fingerprint is 64 hex digits, with or without colons between pairs.',
      ],
    ],
    [
      'a fingerprint with a colon between the two digits of a byte',
      { tls: { fingerprint_sha256: [`a:b${digest.slice(2)}`] } },
      { tls: {} },
      [
        'invalid_fingerprint ~/tls/fingerprint_sha256/0: A fingerprint is 64 hex digits, with or without colons between pairs.',
      ],
    ],
    [
      'a trust anchor that does not parse',
      { tls: { trust_anchors_pem: ['x'] } },
      { tls: { trust_anchors_pem: [PEM] } },
      ['invalid_trust_anchor ~/tls/trust_anchors_pem/0: Invalid certificate in PEM: no certificate inside.'],
    ],
    [
      'a wrong word for tls13_uninspectable',
      { tls: { tls13_uninspectable: 'drop' } },
      { tls: { tls13_uninspectable: 'DENY' } },
      ['invalid_action ~/tls/tls13_uninspectable: tls13_uninspectable must be "allow" or "deny".'],
    ],
    [
      'an empty request',
      intercept({ methods: [] }),
      intercept({ methods: ['get'] }),
      ['empty_matcher ~/tls/http/request: A request matcher needs host, methods, path, query or headers.'],
    ],
    [
      'an empty response',
      { tls: { mode: 'intercept', http: { response: {} } } },
      { tls: { mode: 'intercept', http: { response: { headers: { require_present: ['x'] } } } } },
      ['empty_matcher ~/tls/http/response: A response matcher needs headers.'],
    ],
    [
      'a method that is not a token',
      intercept({ methods: ['GET', 'A B'] }),
      intercept({ methods: ['GET', 'M-SEARCH'] }),
      ['invalid_method ~/tls/http/request/methods/1: A method is a token such as "GET".'],
    ],
    [
      'a path that no request has',
      intercept({ path: { exact: ['a/b', '/a?b', '/a#b', '/a\\b'], prefix: ['/a%00', '/a%', '/%2525252F'] } }),
      intercept({ path: { exact: ['/a b', '/a%3Fb', '/a%23b', '/a%5Cb', '*'], prefix: ['/', '/a%252F'] } }),
      [
        'invalid_path ~/tls/http/request/path/exact/0: A path begins with "/": write "/a/b".',
        'invalid_path ~/tls/http/request/path/exact/1: A path has no query: use request.query, or write "%3F" for the character "?".',
        'invalid_path ~/tls/http/request/path/exact/2: A request has no fragment: write "%23" for the character "#".',
        'invalid_path ~/tls/http/request/path/exact/3: A request with "\\" in its path is refused: write "/", or "%5C" for the character.',
        ...[0, 1, 2].map(
          (index) =>
            `invalid_path ~/tls/http/request/path/prefix/${index}: An allow rule matches no path with an incomplete escape, "%00", or escapes that are nested more than three times: write "%25" for the character "%".`,
        ),
      ],
    ],
    [
      'an empty host',
      intercept({ host: {} }),
      intercept({ host: { exact: ['a'] } }),
      ['empty_matcher ~/tls/http/request/host: A name matcher needs exact or regex.'],
    ],
    [
      'an empty path',
      intercept({ path: { exact: [] } }),
      intercept({ path: { exact: ['/'] } }),
      ['empty_matcher ~/tls/http/request/path: A path matcher needs exact, prefix or regex.'],
    ],
    [
      'an empty prefix',
      intercept({ path: { prefix: [''] } }),
      intercept({ path: { prefix: ['/'] } }),
      [`empty_matcher ~/tls/http/request/path/prefix/0: ${EMPTY_TEXT}`],
    ],
    [
      'a regular expression for the path that is not valid RE2',
      intercept({ path: { regex: 'a(' } }),
      intercept({ path: { regex: 'a' } }),
      [`invalid_regex ~/tls/http/request/path/regex: ${NOT_REGEX}`],
    ],
    [
      'an empty query',
      intercept({ query: { key_values_exact: {} } }),
      intercept({ query: { key_values_exact: { a: [''] } } }),
      [
        'empty_matcher ~/tls/http/request/query: A query matcher needs keys_present, key_values_exact or key_values_regex.',
      ],
    ],
    [
      'an empty query key',
      intercept({ query: { key_values_exact: { '': ['a'] } } }),
      intercept({ query: { keys_present: ['a'] } }),
      ['invalid_key ~/tls/http/request/query/key_values_exact/: A query key is not empty.'],
    ],
    [
      'a query key without values',
      intercept({ query: { key_values_exact: { 'a/b': [] } } }),
      intercept({ query: { key_values_exact: { 'a/b': ['c'] } } }),
      ['empty_matcher ~/tls/http/request/query/key_values_exact/a~1b: An empty list of values matches nothing.'],
    ],
    [
      'a regular expression for a query value that is not valid RE2',
      intercept({ query: { key_values_regex: { a: 'a(' } } }),
      intercept({ query: { key_values_regex: { a: 'a' } } }),
      [`invalid_regex ~/tls/http/request/query/key_values_regex/a: ${NOT_REGEX}`],
    ],
    [
      'empty headers',
      intercept({ headers: { require_present: [] } }),
      intercept({ headers: { require_present: ['a'] } }),
      [
        'empty_matcher ~/tls/http/request/headers: A header matcher needs require_present, deny_present, exact or regex.',
      ],
    ],
    [
      'header names that are not tokens',
      intercept({
        headers: { require_present: ['a b'], deny_present: [''], exact: { é: ['a'] }, regex: { 'a:': 'a' } },
      }),
      intercept({ headers: { deny_present: ['x-a'], exact: { constructor: ['a'] } } }),
      ['/require_present/0', '/deny_present/0', '/exact/é', '/regex/a:'].map(
        (at) => `invalid_header_name ~/tls/http/request/headers${at}: ${HEADER}`,
      ),
    ],
    [
      'a header twice in different case',
      intercept({ headers: { exact: { 'X-A': ['1'], 'x-a': ['2'] } } }),
      intercept({ headers: { exact: { 'X-A': ['1'] }, regex: { 'x-a': '2' } } }),
      ['duplicate_header ~/tls/http/request/headers/exact/x-a: This header is repeated here in different case.'],
    ],
    [
      'a header value that is not a list',
      intercept({ headers: { exact: { a: 'b' } } }),
      intercept({ headers: { exact: { a: ['b'] } } }),
      ['invalid_type ~/tls/http/request/headers/exact/a: Must be an array, not a string.'],
    ],
  ])(
    '`validatePolicy` rejects a rule with an invalid match (%s), and accepts the corrected match',
    (_, refused, accepted, expected) => {
      expect(matchProblems(refused)).toEqual(expected);
      expect(matchProblems(accepted)).toEqual([]);
    },
  );
});

describe('`validatePolicy` of a document', () => {
  const prod = { integration: 'prod', node_selector: {} };
  const SELECTOR = 'A Kubernetes source sets exactly one of pod_selector and node_selector.';
  const VALUE = 'A label value has at most 63 letters, digits, "-", "_" and ".", a letter or digit at both ends.';
  const rule = (more: object) => policyOf([{ id: 'r', action: 'allow', match: {}, ...more }]);
  it.each<[string, unknown, unknown, string[]]>([
    ['an array in place of the document', [], {}, ['invalid_type : Must be an object, not an array.']],
    ['null in place of the document', 'null', {}, ['invalid_type : Must be an object, not null.']],
    [
      'an unknown word of default_policy',
      { default_policy: 'drop' },
      { default_policy: 'DENY' },
      ['invalid_action /default_policy: default_policy must be "allow" or "deny".'],
    ],
    [
      'null in place of an optional field',
      { default_policy: null },
      {},
      ['invalid_type /default_policy: Must be a string, not null.'],
    ],
    [
      'groups that are not a list',
      { source_groups: {} },
      { source_groups: [] },
      ['invalid_type /source_groups: Must be an array, not an object.'],
    ],
    [
      'an unknown field',
      { default_polcy: 'deny' },
      {},
      ['unknown_field /default_polcy: There is no field "default_polcy" here (did you mean "default_policy"?).'],
    ],
    [
      'a field __proto__',
      '{"__proto__": {"default_policy": "allow"}}',
      {},
      ['unknown_field /__proto__: There is no field "__proto__" here.'],
    ],
    [
      'a field constructor',
      { constructor: {} },
      {},
      ['unknown_field /constructor: There is no field "constructor" here.'],
    ],
    [
      'a group without id, mode and sources',
      { source_groups: [{}] },
      groupWith({ ips: ['10.0.0.1'] }),
      [
        'required /source_groups/0/id: This field is required.',
        'mode_required /source_groups/0/mode: In the singleton form a source group needs a mode.',
        'required /source_groups/0/sources: This field is required.',
      ],
    ],
    [
      'a disabled group',
      { source_groups: [{ id: 'g', mode: 'disabled', sources: { ips: ['10.0.0.1'] } }] },
      { source_groups: [{ id: 'g', mode: 'audit', sources: { ips: ['10.0.0.1'] } }] },
      ['invalid_value /source_groups/0/mode: Must be "audit" or "enforce".'],
    ],
    [
      'a group without sources',
      groupWith({}),
      groupWith({ kubernetes: [prod] }),
      ['empty_sources /source_groups/0/sources: A source group needs a source: cidrs, ips or kubernetes.'],
    ],
    [
      'a group with only empty lists of sources',
      groupWith({ cidrs: [], ips: [], kubernetes: [] }),
      groupWith({ cidrs: ['10.0.0.0/8'], ips: [] }),
      ['empty_sources /source_groups/0/sources: A source group needs a source: cidrs, ips or kubernetes.'],
    ],
    [
      'sources of a wrong type, with only one problem',
      groupWith({ cidrs: '10.0.0.0/8' }),
      groupWith({ cidrs: ['0.0.0.0/0'] }),
      ['invalid_type /source_groups/0/sources/cidrs: Must be an array, not a string.'],
    ],
    [
      'a source address that is a number',
      groupWith({ ips: [167772161] }),
      groupWith({ ips: ['10.0.0.1'] }),
      ['invalid_type /source_groups/0/sources/ips/0: Must be a string, not a number.'],
    ],
    [
      'a Kubernetes source with both selectors',
      groupWith({ kubernetes: [{ ...prod, pod_selector: {} }] }),
      groupWith({ kubernetes: [prod] }),
      [`selector_count /source_groups/0/sources/kubernetes/0: ${SELECTOR}`],
    ],
    [
      'a Kubernetes source without a selector',
      groupWith({ kubernetes: [{ integration: 'prod' }] }),
      groupWith({ kubernetes: [{ integration: 'prod', pod_selector: {} }] }),
      [`selector_count /source_groups/0/sources/kubernetes/0: ${SELECTOR}`],
    ],
    [
      'a Kubernetes source without an integration',
      groupWith({ kubernetes: [{ pod_selector: {} }] }),
      groupWith({ kubernetes: [prod] }),
      ['required /source_groups/0/sources/kubernetes/0/integration: This field is required.'],
    ],
    [
      'an unknown integration',
      groupWith({ kubernetes: [{ ...prod, integration: 'Prod' }] }),
      groupWith({ kubernetes: [prod] }),
      ['unknown_integration /source_groups/0/sources/kubernetes/0/integration: There is no integration named "Prod".'],
    ],
    [
      'an empty namespace',
      groupWith({ kubernetes: [{ integration: 'prod', pod_selector: { namespace: '' } }] }),
      groupWith({ kubernetes: [{ integration: 'prod', pod_selector: { namespace: 'shop' } }] }),
      [
        'invalid_label /source_groups/0/sources/kubernetes/0/pod_selector/namespace: A namespace is 1 to 63 lower-case letters, digits and "-".',
      ],
    ],
    [
      'an invalid label key and an invalid label value',
      groupWith({ kubernetes: [{ integration: 'prod', node_selector: { match_labels: { 'a/b/c': 'x', ok: '-' } } }] }),
      groupWith({
        kubernetes: [{ integration: 'prod', node_selector: { match_labels: { 'a.b/c': '', constructor: 'x' } } }],
      }),
      [
        'invalid_label /source_groups/0/sources/kubernetes/0/node_selector/match_labels/a~1b~1c: A label key is a name of at most 63 letters, digits, "-", "_" and ".", after an optional "domain/".',
        `invalid_label /source_groups/0/sources/kubernetes/0/node_selector/match_labels/ok: ${VALUE}`,
      ],
    ],
    [
      'an empty rule',
      policyOf([{}]),
      rule({}),
      ['id', 'action', 'match'].map((field) => `required ${RULE}/${field}: This field is required.`),
    ],
    [
      'an unknown action',
      rule({ action: 'reject' }),
      rule({ action: 'Deny' }),
      [`invalid_action ${RULE}/action: action must be "allow" or "deny".`],
    ],
    [
      'an unknown rule mode',
      rule({ mode: 'Audit' }),
      rule({ mode: 'audit' }),
      [`invalid_value ${RULE}/mode: Must be "audit" or "enforce".`],
    ],
    [
      'a negative priority',
      rule({ priority: -1 }),
      rule({ priority: 0 }),
      [`out_of_range ${RULE}/priority: Must be at least 0.`],
    ],
    [
      'a priority beyond 32 bits',
      rule({ priority: 4294967296 }),
      rule({ priority: 4294967295 }),
      [`out_of_range ${RULE}/priority: Must be at most 4294967295.`],
    ],
    [
      'a priority in quotes',
      rule({ priority: '1' }),
      rule({ priority: 1 }),
      [`invalid_type ${RULE}/priority: Must be an integer, not a string.`],
    ],
    [
      'a fractional priority',
      rule({ priority: 1.5 }),
      rule({ priority: 1.0 }),
      [`invalid_type ${RULE}/priority: Must be an integer, not a fraction.`],
    ],
    ['an empty rule id', rule({ id: '' }), rule({ id: ' ' }), [`empty_id ${RULE}/id: An id is not empty.`]],
    ['a rule that is null', policyOf([null]), policyOf([]), [`invalid_type ${RULE}: Must be an object, not null.`]],
  ])(
    '`validatePolicy` rejects an invalid policy document (%s), and accepts the corrected document',
    (_, refused, accepted, expected) => {
      expect(lines(problemsOf(refused))).toEqual(expected);
      expect(lines(problemsOf(accepted))).toEqual([]);
    },
  );

  it('`validatePolicy` rejects duplicate rule ids within a group and duplicate group ids, and accepts equal rule ids in different groups', () => {
    const group = (id: string, ...rules: string[]) => ({
      id,
      mode: 'audit',
      sources: { ips: ['10.0.0.1'] },
      rules: rules.map((rule) => ({ id: rule, action: 'allow', match: {} })),
    });
    expect(lines(problemsOf({ source_groups: [group('a', 'x', 'y'), group('b', 'x'), group('c', 'X', 'x')] }))).toEqual(
      [],
    );
    expect(
      lines(problemsOf({ source_groups: [group('a', 'x', 'y', 'x'), group('', 'x'), group('a', '', '')] })),
    ).toEqual([
      'duplicate_id /source_groups/0/rules/2/id: Another rule of this group has this id: /source_groups/0/rules/0.',
      'empty_id /source_groups/1/id: An id is not empty.',
      'duplicate_id /source_groups/2/id: Another source group has this id: /source_groups/0.',
      'empty_id /source_groups/2/rules/0/id: An id is not empty.',
      'empty_id /source_groups/2/rules/1/id: An id is not empty.',
    ]);
  });

  it('`validatePolicy` rejects the key __proto__ in every object whose keys the user chooses', () => {
    const maps = JSON.stringify(
      intercept({ query: { key_values_exact: 0, key_values_regex: 0 }, headers: { exact: 0, regex: 0 } }),
    );
    const text = JSON.stringify(policyWith('MATCH')).replace(
      '"MATCH"',
      maps.replaceAll(':0', ':{"__proto__":{"polluted":1}}'),
    );
    const message = 'A key cannot be "__proto__".';
    expect(lines(problemsOf(text))).toEqual(
      ['query/key_values_exact', 'query/key_values_regex', 'headers/exact', 'headers/regex'].map(
        (map) => `invalid_key ${MATCH}/tls/http/request/${map}/__proto__: ${message}`,
      ),
    );
    const selector = '{"integration": "prod", "pod_selector": {"match_labels": {"__proto__": {"polluted": 1}}}}';
    const sources = JSON.stringify(groupWith({ kubernetes: ['S'] })).replace('"S"', selector);
    expect(problemsOf(sources).map(({ pointer, code }) => [pointer, code])).toEqual([
      ['/source_groups/0/sources/kubernetes/0/pod_selector/match_labels/__proto__', 'invalid_label'],
      ['/source_groups/0/sources/kubernetes/0/pod_selector/match_labels/__proto__', 'invalid_label'],
    ]);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });

  it('`validatePolicy` rejects more than 100,000 rules and more than 100,000 groups', () => {
    const rules = (count: number) =>
      Array.from({ length: count }, (_, id) => ({ id: `${id}`, action: 'deny', match: {} }));
    const [half, group] = [rules(50_000), { mode: 'enforce', sources: { ips: ['10.0.0.1'] } }];
    expect(
      problemsOf({
        source_groups: [
          { id: 'a', ...group, rules: half },
          { id: 'b', ...group, rules: half },
        ],
      }),
    ).toEqual([]);
    expect(
      lines(
        problemsOf({
          source_groups: [
            { id: 'a', ...group, rules: half },
            { id: 'b', ...group, rules: rules(50_001) },
          ],
        }),
      ),
    ).toEqual(['too_many /source_groups: A policy has at most 100000 rules; this policy has 100001.']);
    const groups = Array.from({ length: 100_001 }, (_, id) => ({ id: `${id}`, ...group }));
    expect(lines(problemsOf({ source_groups: groups }))).toEqual([
      'too_many /source_groups: A policy has at most 100000 source groups.',
    ]);
    expect(problemsOf({ source_groups: groups.slice(1) })).toEqual([]);
  });
});

describe('`validatePolicy` of a document with several problems', () => {
  it('`validatePolicy` returns the problems of wrong types and of wrong values together', () => {
    const document = {
      default_policy: 5,
      source_groups: [
        { id: 'g', mode: 'enforce', sources: { ips: ['1.2.3'] }, rules: 'none' },
        {
          id: 'g',
          mode: 'enforce',
          sources: { cidr: ['10.0.0.0/8'] },
          rules: [
            { id: 'a', action: 1, match: { proto: 'tcp', icmp_types: [8], dst_ports: [true, '9-1'] } },
            7,
            { id: 'a', action: 'allow', match: { tls: { mode: 5, http: { request: { host: 4 } } } } },
          ],
        },
      ],
    };
    expect(problemsOf(document).map(({ pointer, code }) => `${code} ${pointer}`)).toEqual([
      'invalid_type /default_policy',
      'invalid_type /source_groups/0/rules',
      'unknown_field /source_groups/1/sources/cidr',
      'invalid_type /source_groups/1/rules/0/action',
      'invalid_type /source_groups/1/rules/0/match/dst_ports/0',
      'invalid_type /source_groups/1/rules/1',
      'invalid_value /source_groups/1/rules/2/match/tls/mode',
      'invalid_type /source_groups/1/rules/2/match/tls/http/request/host',
      'invalid_address /source_groups/0/sources/ips/0',
      'duplicate_id /source_groups/1/id',
      'invalid_port /source_groups/1/rules/0/match/dst_ports/1',
      'icmp_needs_icmp /source_groups/1/rules/0/match/icmp_types',
      'icmp_with_ports /source_groups/1/rules/0/match/dst_ports',
      'duplicate_id /source_groups/1/rules/2/id',
    ]);
  });

  it('`validatePolicy` returns at most 1,000 problems, and one more problem with the number of omitted problems', () => {
    const problems = problemsOf({
      source_groups: [{ id: 'g', mode: 'audit', sources: { ips: Array(MAX_PROBLEMS + 7).fill('x') } }],
    });
    expect(problems.length).toBe(MAX_PROBLEMS + 1);
    expect(problems.at(-1)).toEqual({ pointer: '', code: 'more_problems', message: 'There are 7 more problems.' });
  });
});

describe('`validateEnvelope`', () => {
  const group = { id: 'g', sources: { ips: ['10.0.0.1'] } };
  const check = (envelope: unknown) =>
    lines(validateEnvelope(structuredClone(envelope), { ...context, form: 'envelope' }));

  it('`validateEnvelope` accepts an envelope (document around a policy) with a mode, a name, and groups without a mode', () => {
    expect(check({ mode: 'disabled', name: '  Büro 1 ', policy: { source_groups: [group] } })).toEqual([]);
    expect(check({ mode: 'audit', policy: {} })).toEqual([]);
  });

  it('`validateEnvelope` rejects an envelope (document around a policy) without the fields mode and policy', () => {
    expect(check({})).toEqual(['required /mode: This field is required.', 'required /policy: This field is required.']);
  });

  it('`validateEnvelope` reports one problem for all fields of an envelope (document around a policy) that only a stored record has', () => {
    const record = { id: 'x', form: 'envelope', revision: 3, created_at: '', updated_at: '', updated_by: '' };
    expect(check({ ...record, active: true, warnings: [], mode: 'audit', name: 'a', policy: {}, extra: 1 })).toEqual([
      'unknown_field /id: Only responses contain id, form, revision, created_at, updated_at, updated_by, active, warnings: send only mode, name and policy.',
      'unknown_field /extra: There is no field "extra" here.',
    ]);
  });

  it('`validateEnvelope` rejects an envelope (document around a policy) with an unknown mode', () => {
    expect(check({ mode: 'on', policy: {} })).toEqual([
      'invalid_value /mode: Must be "disabled" or "audit" or "enforce".',
    ]);
  });

  it('`validateEnvelope` rejects an envelope (document around a policy) whose groups have a mode, and returns pointers into the body', () => {
    expect(check({ mode: 'enforce', policy: { source_groups: [{ ...group, mode: 'audit' }, group] } })).toEqual([
      'mode_not_allowed /policy/source_groups/0/mode: In the envelope form a source group has no mode; the mode of the envelope applies.',
      'duplicate_id /policy/source_groups/1/id: Another source group has this id: /policy/source_groups/0.',
    ]);
  });

  it.each([['   '], ['a\nb'], ['a\u200bb'], ['x'.repeat(254)]])(
    '`validateEnvelope` rejects an envelope (document around a policy) with the name %j',
    (name) => {
      expect(check({ mode: 'enforce', name, policy: {} })).toEqual([
        'invalid_name /name: A name has 1 to 253 printable characters; white space around it is removed.',
      ]);
    },
  );
});
