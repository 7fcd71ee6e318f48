import { createHash, createPublicKey } from 'node:crypto';
import type { JWK } from 'jose';
import { z } from 'zod';
import type { Assertion } from '#contracts/analysis/assertion.js';
import type { PolicyHead, PolicyRow } from '#store/policies/policy-row.js';
import type { IntegrationRecord, InterceptCaRecord, LastWrite, TokenRecord } from '#store/store-types.js';
import { count, id, instant, policyFields, text } from './record-fields.js';
import { RecordKind } from './record-kind.js';

const sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'it is no SHA-256');

const policyRow: z.ZodType<PolicyRow> = z.object({
  ...policyFields,
  body_sha256: sha256,
  facts: z.unknown().optional(),
});

const terms = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('confirm'), within_ms: count }),
  z.object({ kind: z.literal('rollout'), share: z.number(), hold_ms: count, nodes: z.array(text) }),
]);
const policyHead: z.ZodType<PolicyHead> = z.object({
  generation: count,
  active: id.nullable(),
  ever_activated: z.boolean(),
  sequence: count.exactOptional(),
  commit: text.exactOptional(),
  pending: z
    .object({
      id: text,
      generation: count,
      terms,
      by: text,
      at: instant,
      before: z.object({ generation: count, row: policyRow.nullable() }),
    })
    .exactOptional(),
  reverted: z.object({ generation: count, at: instant, reason: text }).exactOptional(),
});

const integration = {
  name: id,
  kind: z.literal('kubernetes'),
  api_server_url: text,
  ca_cert_pem: text,
  revision: count,
  created_at: instant,
  updated_at: instant,
  updated_by: text,
};
/** An integration as a cluster stores it. */
export type SealedIntegration = Omit<IntegrationRecord, 'service_account_token'> & { readonly sealed_token: string };

const tokenRecord: z.ZodType<TokenRecord> = z.object({
  id,
  subject: text,
  role: z.enum(['admin', 'readonly']),
  created_at: instant,
  expires_at: instant.nullable(),
  revoked_at: instant.nullable(),
});

/** The public half of the key with which a node signs tokens, and the id of the node. */
export type SharedKey = { readonly jwk: JWK; readonly node: string };
const sharedKey: z.ZodType<SharedKey> = z.object({
  jwk: z.object({ kty: z.literal('OKP'), crv: z.literal('Ed25519'), x: text }).refine((jwk) => {
    try {
      return createPublicKey({ key: jwk, format: 'jwk' }).type === 'public';
    } catch {
      return false;
    }
  }, 'it is no public key'),
  node: id,
});
/** Returns the thumbprint of a key (RFC 7638), which is its id. */
function thumbprintOf({ jwk: { crv, kty, x } }: SharedKey): string {
  return createHash('sha256').update(JSON.stringify({ crv, kty, x })).digest('base64url');
}

/** A node that was removed from the cluster. */
export type RemovedNode = {
  readonly id: string;
  readonly by: string;
  readonly at: string;
  /** The ids of the keys with which the node signed tokens. No node accepts these tokens any more. */
  readonly tokenKeys: readonly string[];
};

/** The intercept CA, or its last revision after a removal. */
export type StoredCa = InterceptCaRecord | { readonly revision: number };
/** The setting of performance mode, with the time and author of its last write. */
export type PerformanceSetting = LastWrite & { readonly enabled: boolean };
/** The list of assertions, with the time and author of its last write. */
export type AssertionRecord = LastWrite & { readonly assertions: readonly Assertion[] };
/**
 * The store knows only the members that it needs itself, because a newer build can write other assertions.
 * The check of a policy write refuses a list that this build does not know whole.
 */
const assertions = z.array(
  z.looseObject({
    id: text,
    opens_nothing_since: z.looseObject({ revision: count, policy: text.exactOptional() }).exactOptional(),
  }),
) as z.ZodType<unknown> as z.ZodType<readonly Assertion[]>;
/** A part of the JSON text of a policy: the hash of the part, and its length. */
export type Part = { readonly sha256: string; readonly bytes: number };

/**
 * The kinds of JSON records in the store. The key of a record is the prefix of its kind and its id. A kind
 * without ids has one record, whose key is the prefix.
 */
export const RECORDS = {
  head: new RecordKind<PolicyHead>('head', policyHead),
  policy: new RecordKind<PolicyRow>('policy/', policyRow, (row) => row.id),
  history: new RecordKind<PolicyRow>(
    'history/',
    policyRow,
    ({ id: policy, revision }) => `${policy}/${String(revision).padStart(12, '0')}`,
  ),
  parts: new RecordKind<readonly Part[]>('parts/', z.array(z.object({ sha256, bytes: count }))),
  /** The lists of parts of removed revisions, whose parts the next sweep of the history removes. */
  sweptLists: new RecordKind<readonly string[]>('history-sweep/', z.array(sha256)),
  integration: new RecordKind<IntegrationRecord | SealedIntegration>(
    'integration/',
    z.union([
      z.object({ ...integration, sealed_token: text }),
      z.object({ ...integration, service_account_token: text, sealed_token: z.never().exactOptional() }),
    ]),
    ({ name }) => name,
  ),
  performanceMode: new RecordKind<PerformanceSetting>(
    'setting/performance_mode',
    z.object({ enabled: z.boolean(), revision: count, updated_at: instant, updated_by: text }),
  ),
  interceptCa: new RecordKind<StoredCa>(
    'setting/tls-intercept-ca',
    z.union([
      z.object({
        cert_pem: text,
        chain_pem: text,
        fingerprint: sha256,
        sealed_key: text,
        revision: count,
        updated_at: instant,
        updated_by: text,
      }),
      z.object({ revision: count, sealed_key: z.never().exactOptional() }),
    ]),
  ),
  assertions: new RecordKind<AssertionRecord>(
    'setting/assertions',
    z.object({ revision: count, updated_at: instant, updated_by: text, assertions }),
  ),
  token: new RecordKind<TokenRecord>('token/', tokenRecord, (record) => record.id),
  clusterToken: new RecordKind<TokenRecord>('cluster-token/', tokenRecord, (record) => record.id),
  tokenKey: new RecordKind<SharedKey>('token-key/', sharedKey, thumbprintOf),
  removedNode: new RecordKind<RemovedNode>(
    'removed-node/',
    z.object({ id: text, by: text, at: instant, tokenKeys: z.array(text) }),
  ),
} as const;

/**
 * A line of the last-good copy of the active policy: the head (record of the last commit), and the record of
 * the policy.
 */
export type LastGoodLine = {
  readonly head: PolicyHead;
  readonly row: PolicyRow | null;
  readonly edit?: { readonly of: string; readonly from: number; readonly to: number };
};
export const LAST_GOOD_LINE = new RecordKind<LastGoodLine>(
  'last-good',
  z.object({
    head: policyHead,
    row: policyRow.nullable(),
    edit: z.object({ of: text, from: count, to: count }).exactOptional(),
  }),
);
