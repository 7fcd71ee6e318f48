import { generateKeyPairSync } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { calculateJwkThumbprint } from 'jose';
import { describe, expect, it } from 'vitest';
import { CLUSTER_RECORDS, NODE_RECORDS, REPLICATED_RECORDS } from '#cluster/records.js';
import { FINDING_RECORDS } from '#observe/findings/store/finding-records.js';
import { encodeJson } from '#store/records/json-value.js';
import type { RecordKind } from '#store/records/record-kind.js';
import { LAST_GOOD_LINE, RECORDS } from '#store/records/records.js';

const AT = '2026-01-02T03:04:05.000Z';
const HASH = 'a'.repeat(64);
const ROW = {
  ...{ id: 'p', name: null, form: 'envelope', mode: 'enforce', revision: 2 },
  ...{ created_at: AT, updated_at: AT, updated_by: 'ops', body_sha256: HASH },
};
const HEAD = {
  ...{ generation: 7, active: 'p', ever_activated: true, sequence: 4, commit: 'c' },
  pending: {
    ...{ id: 'c', generation: 7, terms: { kind: 'confirm', within_ms: 60_000 }, by: 'ops', at: AT },
    before: { generation: 6, row: ROW },
  },
  reverted: { generation: 5, at: AT, reason: 'it was not confirmed' },
};
const TOKEN = {
  ...{ id: 't', subject: 'ci', role: 'admin', created_at: AT, expires_at: null, revoked_at: AT },
};
const MEMBER = {
  ...{ id: 'n1', identity: 'i', boot: 'b', address: '10.0.0.1:7443', version: '1.0.0', since: AT, generation: 3 },
  certificates: [HASH],
};
const { boot: _, generation: __, ...NODE } = MEMBER;
const { publicKey } = generateKeyPairSync('ed25519');
const jwk = publicKey.export({ format: 'jwk' });
const FINDING = {
  ...{ type: 'l4_deny', firstMs: 1, lastMs: 2, count: 3 },
  ...{ source: '10.0.0.1', destination: null, rule: null, sourceGroup: null, policyId: null },
};
const REVISION = { revision: 2, updated_at: AT, updated_by: 'ops' };

/** The key and the value of a valid record of each kind. A kind without a row here fails the test. */
const SAMPLES: Readonly<Record<string, readonly [key: string, value: unknown]>> = {
  'store head': ['head', HEAD],
  'store policy': ['policy/p', ROW],
  'store history': ['history/p/000000000002', ROW],
  'store parts': [`parts/${HASH}`, [{ sha256: HASH, bytes: 5 }]],
  'store sweptLists': ['history-sweep/s', [HASH]],
  'store integration': [
    'integration/k',
    {
      ...{ name: 'k', kind: 'kubernetes', api_server_url: 'https://k', ca_cert_pem: 'pem', sealed_token: 's' },
      ...{ created_at: AT, ...REVISION },
    },
  ],
  'store performanceMode': ['setting/performance_mode', { enabled: false, ...REVISION }],
  'store interceptCa': [
    'setting/tls-intercept-ca',
    { cert_pem: 'pem', chain_pem: '', fingerprint: HASH, sealed_key: 's', ...REVISION },
  ],
  'store assertions': ['setting/assertions', { assertions: [{ id: 'no-ssh', never: {} }], ...REVISION }],
  'store token': ['token/t', TOKEN],
  'store clusterToken': ['cluster-token/t', TOKEN],
  'store tokenKey': [`token-key/${await calculateJwkThumbprint(jwk)}`, { jwk, node: 'n1' }],
  'store removedNode': ['removed-node/i', { id: 'n1', by: 'ops', at: AT, tokenKeys: ['kid'] }],
  'cluster meta': ['meta', { line: 'c', recoveries: 0, format: 1 }],
  'cluster metaFormat': ['meta', { format: 2 }],
  'cluster leader': ['leader', { node: 'n1' }],
  'cluster lockEntry': [
    'turn/t',
    { node: 'n1', proposal: { generation: 2, record: null, bodySha256: '', group: { id: 'g', from: 0, to: 1 } } },
  ],
  'cluster member': ['member/n1', MEMBER],
  'cluster node': ['cluster-node/n1', NODE],
  'cluster vote': ['vote/n1/t/n2', { node: 'n2', staged: false, refusal: null }],
  'cluster report': ['rollout/c/n1', { fault: null }],
  'node replica': ['cluster/replica', { line: 'c', recoveries: 0, revision: '12', history: '12' }],
  'node identity': ['cluster/identity', 'i'],
  'node proposed': ['cluster/proposed/t', [`part/${HASH}`]],
  'finding finding': ['finding/f', FINDING],
  'finding state': ['state', { format: 1, count: 0, first: 1, next: 1 }],
  'finding sink': ['sink/file', 3],
  'finding outbox': ['outbox/1', { finding: FINDING, newCount: 1 }],
  'file line': ['last-good', { head: HEAD, row: ROW, edit: { of: HASH, from: 0, to: 1 } }],
};
const KINDS: readonly (readonly [name: string, kind: RecordKind<unknown>])[] = [
  ...Object.entries(RECORDS).map(([name, kind]) => [`store ${name}`, kind] as const),
  ...Object.entries(CLUSTER_RECORDS).map(([name, kind]) => [`cluster ${name}`, kind] as const),
  ...Object.entries(NODE_RECORDS).map(([name, kind]) => [`node ${name}`, kind] as const),
  ...Object.entries(FINDING_RECORDS).map(([name, kind]) => [`finding ${name}`, kind] as const),
  ['file line', LAST_GOOD_LINE],
];

/** Values that fit no kind: garbage, other JSON, and a long value. */
const GARBAGE: Readonly<Record<string, Uint8Array>> = {
  empty: new Uint8Array(),
  'not JSON': Buffer.from('garbage'),
  'not UTF-8': Uint8Array.of(0xff, 0xfe, 0x00),
  'cut JSON': Buffer.from('{"generation":'),
  null: encodeJson(null),
  'an empty object': encodeJson({}),
  true: encodeJson(true),
  'a negative number': encodeJson(-1),
  'an empty text': encodeJson(''),
  'an array of null': encodeJson([null]),
  'nested deeply': Buffer.from('['.repeat(100_000) + ']'.repeat(100_000)),
  '10 MB': Buffer.alloc(10_000_000, '1'),
};

const sampleOf = (name: string): readonly [string, unknown] => SAMPLES[name] ?? ['', undefined];

describe('the records of the store and of etcd', () => {
  it('each kind of record of the store and of etcd has a sample, and is in a table of kinds', () => {
    expect(KINDS.map(([name]) => name).sort()).toEqual(Object.keys(SAMPLES).sort());
    const files = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
    const made = files.flatMap((file) => readFileSync(join('src', file), 'utf8').match(/new RecordKind\b/g) ?? []);
    expect(made).toHaveLength(KINDS.length);
  });

  it('the records that each node of a cluster replicates are all part of the key layout of etcd', () => {
    expect(REPLICATED_RECORDS.map(({ prefix }) => prefix).sort()).toEqual(
      [
        ...['head', 'policy/', 'integration/', 'setting/performance_mode', 'setting/tls-intercept-ca'],
        'setting/assertions',
        ...['cluster-token/', 'token-key/', 'removed-node/', 'cluster-node/'],
      ].sort(),
    );
  });
});

describe.each(KINDS)('a record of the kind "%s"', (name, kind) => {
  const [key, value] = sampleOf(name);

  it('a record of each kind is read as it was written', () => {
    expect(kind.reading(key, encodeJson(value))).toEqual({ value });
    expect(kind.read(key, encodeJson(value))).toEqual(value);
  });

  it('a record of any kind is never read from garbage, and the error text contains no byte of the garbage', () => {
    for (const [what, bytes] of Object.entries(GARBAGE)) {
      const { value: read, reason } = kind.reading(key, bytes);
      expect([what, read, typeof reason]).toEqual([what, undefined, 'string']);
      expect(reason).not.toContain('garbage');
      expect(() => kind.read(key, bytes)).toThrow(expect.objectContaining({ code: 'store_damaged', key }) as Error);
    }
  });

  it('a record of any kind keeps an unknown field of a newer build, and is refused with a field of the wrong type', () => {
    // Some kinds of records are a string, a number or a list, which have no fields.
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return;
    const newer = { ...value, of_a_newer_build: { deep: [1] } };
    expect(kind.reading(key, encodeJson(newer))).toEqual({ value: newer });
    const fitting = Object.keys(value).filter((field) => {
      const wrong = encodeJson({ ...value, [field]: [{ wrong: 1 }] });
      return kind.reading(key, wrong).value !== undefined;
    });
    expect(fitting).toEqual([]);
  });
});

describe('records under another key', () => {
  it.each([
    'store policy',
    'store token',
    'store clusterToken',
    'store tokenKey',
    'store integration',
    'cluster member',
  ])('a record under the key of another record is refused (kind of record: %s)', (name) => {
    const kind = KINDS.find(([each]) => each === name)?.[1];
    const [, value] = sampleOf(name);
    expect(kind?.reading(`${kind.prefix}other`, encodeJson(value)).reason).toBe('it contains the id of another key');
  });
});

describe('a token record', () => {
  it('a token record with an invalid expiry time, which would never expire, is refused', () => {
    const { reason } = RECORDS.clusterToken.reading('cluster-token/t', encodeJson({ ...TOKEN, expires_at: 'never' }));
    expect(reason).toBe('expires_at: it is no time');
  });
});
