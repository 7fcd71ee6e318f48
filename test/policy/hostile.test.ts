import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PROBLEM_CODES, WARNING_CODES } from '#contracts/policy/policy-problem.js';
import { type ReadContext, readPolicy } from '#policy/check/read-policy.js';

const context: ReadContext = {
  form: 'singleton',
  integrations: new Set(['prod']),
  parseCertificate: (pem) => (pem === 'PEM' ? undefined : 'not a certificate'),
  dns: false,
  servicePlane: false,
  recordMode: 'enforce',
  fallback: 'deny',
};

const complete = {
  default_policy: 'deny',
  source_groups: [
    {
      id: 'g',
      mode: 'enforce',
      priority: 3,
      sources: {
        cidrs: ['10.0.0.0/8'],
        ips: ['192.0.2.1'],
        kubernetes: [
          { integration: 'prod', pod_selector: { namespace: 'a', match_labels: { app: 'web' } } },
          { integration: 'prod', node_selector: { match_labels: { zone: 'x' } } },
        ],
      },
      rules: [
        {
          id: 'a',
          priority: 1,
          action: 'allow',
          mode: 'audit',
          match: {
            dst_cidrs: ['10.0.0.0/8'],
            dst_ips: ['1.2.3.4'],
            proto: 'tcp',
            src_ports: [1, '2-3'],
            dst_ports: ['4'],
          },
        },
        { id: 'b', action: 'deny', match: { dns_hostname: '^a\\.test$', proto: 17 } },
        { id: 'c', action: 'deny', match: { proto: 'icmp', icmp_types: [8], icmp_codes: [0] } },
        {
          id: 'd',
          action: 'allow',
          match: {
            tls: {
              sni: 'a',
              server_dn: 'CN=a',
              server_san: ['a'],
              server_cn: { exact: ['a'], regex: 'b' },
              fingerprint_sha256: ['a'.repeat(64)],
              trust_anchors_pem: ['PEM'],
              tls13_uninspectable: 'allow',
            },
          },
        },
        {
          id: 'e',
          action: 'allow',
          match: {
            tls: {
              mode: 'intercept',
              http: {
                request: {
                  host: { exact: ['a'] },
                  methods: ['GET'],
                  path: { exact: ['/'], prefix: ['/a'], regex: 'x' },
                  query: { keys_present: ['a'], key_values_exact: { a: ['b'] }, key_values_regex: { a: 'b' } },
                  headers: { require_present: ['a'], deny_present: ['b'], exact: { a: ['b'] }, regex: { a: 'b' } },
                },
                response: { headers: { deny_present: ['x'] } },
              },
            },
          },
        },
      ],
      default_action: 'deny',
    },
  ],
};

type Place = readonly (string | number)[];

function placesOf(value: unknown, at: Place = []): Place[] {
  if (typeof value !== 'object' || value === null) return [at];
  return [
    at,
    ...Object.keys(value).flatMap((key) =>
      placesOf((value as Record<string, unknown>)[key], [...at, Array.isArray(value) ? Number(key) : key]),
    ),
  ];
}

/** Returns the JSON text of the policy `complete` with the value at `place` replaced by `text`. */
function textWith(place: Place, text: string): string {
  const mark = 'b7c9f1d0';
  if (place.length === 0) return text;
  const copy = structuredClone(complete) as unknown;
  let parent = copy as Record<string | number, unknown>;
  for (const step of place.slice(0, -1)) parent = parent[step] as Record<string | number, unknown>;
  parent[place.at(-1) as string | number] = mark;
  return JSON.stringify(copy).replace(`"${mark}"`, () => text);
}

const known = new Set([...Object.keys(PROBLEM_CODES), ...Object.keys(WARNING_CODES)]);
const places = placesOf(complete);
const unexpectedValues = fc.constantFrom(
  'null',
  'true',
  '[]',
  '{}',
  '""',
  '0',
  '-0',
  '-1',
  '1e400',
  '0.5',
  '[null]',
  '[[]]',
  '[{}]',
  '"*"',
  '"("',
  '"\\u0000"',
  '"any"',
  '{"__proto__": {"polluted": 1}}',
  '{"constructor": 1}',
  '{"exact": [], "regex": ""}',
  '{"__proto__": null, "toString": "x"}',
  '"__proto__"',
  '"constructor"',
  '[5, "a"]',
  '{"a": [1]}',
  '99999999999999999999',
);

describe('`readPolicy` of a malicious body', () => {
  it('`readPolicy` accepts the policy from which the malicious bodies of this test are derived', () => {
    expect(readPolicy(JSON.stringify(complete), context)).toMatchObject({ ok: true });
  });

  it('`readPolicy` returns only documented problem and warning codes, and does not change Object.prototype, if one value of the policy is replaced', () => {
    fc.assert(
      fc.property(fc.constantFrom(...places), fc.oneof(unexpectedValues, fc.json({ maxDepth: 3 })), (place, text) => {
        const read = readPolicy(textWith(place, text), context);
        const reported = read.ok ? read.warnings : read.problems;
        expect(reported.filter(({ code, message }) => !known.has(code) || message === '')).toEqual([]);
        expect(read.ok || reported.length > 0).toBe(true);
        expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
      }),
      { numRuns: 3000 },
    );
  });

  it('`readPolicy` rejects random JSON values, and accepts the empty object', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 4 }), (text) => {
        const value: unknown = JSON.parse(text);
        const empty =
          typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length === 0;
        expect(readPolicy(text, context).ok).toBe(empty);
      }),
      { numRuns: 1000 },
    );
  });

  it('`readPolicy` rejects an unknown field in each object of the policy, with a pointer to the field', () => {
    const objects = places.filter((place) => {
      let value: unknown = complete;
      for (const step of place) value = (value as Record<string | number, unknown>)[step];
      const isMap = ['match_labels', 'key_values_exact', 'key_values_regex', 'exact', 'regex'].includes(
        String(place.at(-1)),
      );
      return typeof value === 'object' && !Array.isArray(value) && !isMap;
    });
    expect(objects.length).toBeGreaterThan(20);
    for (const place of objects) {
      const copy = structuredClone(complete) as unknown;
      let object = copy as Record<string | number, unknown>;
      for (const step of place) object = object[step] as Record<string | number, unknown>;
      object['a/b~'] = 1;
      const read = readPolicy(JSON.stringify(copy), context);
      expect(read.ok ? [] : read.problems).toEqual([
        {
          pointer: `${place.map((step) => `/${step}`).join('')}/a~1b~0`,
          code: 'unknown_field',
          message: 'There is no field "a/b~" here.',
        },
      ]);
    }
  });

  it('`readPolicy` rejects a policy text that is cut off at any position', () => {
    const text = JSON.stringify(complete);
    for (let length = 0; length < text.length; length++) {
      expect(readPolicy(text.slice(0, length), context)).toMatchObject({ ok: false, code: 'invalid_body' });
    }
  });
});
