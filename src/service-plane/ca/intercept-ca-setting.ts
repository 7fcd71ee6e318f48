import { type Observable, ReplaySubject, switchMap } from 'rxjs';
import { WARNING_CODES, type Warning } from '#contracts/policy/policy-problem.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import { CA_ABSENT } from '#contracts/service-plane/no-intercept-ca.js';
import { orRefusal } from '#store/or-refusal.js';
import { StoreError } from '#store/store-error.js';
import type { InterceptCaRecord, InterceptCaStore, LastWrite } from '#store/store-types.js';
import { generateCa } from './generate-ca.js';
import { describeCa, type InterceptCa, interceptCaOf } from './intercept-ca.js';
import { readCa } from './read-ca.js';

/**
 * The stored CA that signs the leaf certificates of intercepted connections. `InterceptCaMaterial | null` is
 * null if no CA is stored.
 */
export type InterceptCaMaterial =
  | { readonly kind: 'ca'; readonly ca: InterceptCa }
  /** A CA is stored, but its record cannot be read, or its private key cannot be decrypted. */
  | { readonly kind: 'unreadable'; readonly reason: string };

/** The intercept CA as the API returns it: without its private key. Times are in ISO 8601, UTC. */
export type InterceptCaView = LastWrite & {
  readonly subject: string;
  readonly fingerprint_sha256: string;
  readonly not_before: string;
  readonly not_after: string;
  readonly cert_pem: string;
};
type InterceptCaWritten = {
  readonly kind: 'written';
  readonly ca: InterceptCaView;
  readonly warnings: readonly Warning[];
};
type By = {
  readonly author: string;
  /**
   * The write fails with `precondition_failed` if the stored CA has another revision; 0 means that no CA is
   * stored. If omitted, any revision is accepted.
   */
  readonly expectedRevision?: number;
};

export type InterceptCaSetting = {
  read(): Promise<InterceptCaView | null>;
  /** Returns whether a CA is stored, also if it is not readable. Reads nothing from the store. */
  isStored(): boolean;
  /**
   * Stores a CA that the operator provides. `dryRun`: returns the result of the write without storing the CA.
   */
  put(
    write: By & { readonly certPem: string; readonly keyPem: string; readonly dryRun: boolean },
  ): Promise<InterceptCaWritten | Refusal>;
  /** Generates a CA that replaces the stored CA. */
  generate(write: By): Promise<InterceptCaWritten | Refusal>;
  remove(removal: Pick<By, 'expectedRevision'>): Promise<{ readonly kind: 'deleted' } | Refusal>;
  /** Emits the present CA to each new subscriber immediately, and the new CA after each change. */
  readonly changed: Observable<InterceptCaMaterial | null>;
};

/**
 * The validity of a generated CA in days: ten years, because operators must install each new CA in all
 * clients by hand.
 */
const LIFE_DAYS = 3650;
/** The maximum length of a common name (`ub-common-name` in RFC 5280). */
const MAX_COMMON_NAME_LENGTH = 64;

/**
 * Creates the setting of the intercept CA. Resolves after the stored CA was read, so that a subscriber of
 * `changed` receives a value at once. Follows the changes of other nodes of a cluster.
 */
export async function interceptCaOver(store: InterceptCaStore, nodeId: string): Promise<InterceptCaSetting> {
  const changed = new ReplaySubject<InterceptCaMaterial | null>(1);
  let last = await materialOf(store);
  changed.next(last);
  // Emit each change only once: a shared store also reports the writes of this node.
  const tell = (material: InterceptCaMaterial | null): void => {
    if (isSameCa(last, material)) return;
    last = material;
    changed.next(material);
  };
  store.changed.pipe(switchMap(() => materialOf(store))).subscribe(tell);

  const keep = async (ca: InterceptCa, { author, expectedRevision }: By, warnings: readonly Warning[]) => {
    const record = await store.put(ca, author, expectedRevision);
    tell({ kind: 'ca', ca });
    return { kind: 'written', ca: viewOf(record), warnings } as const;
  };
  return {
    changed,
    isStored: () => last !== null,
    read: async () => {
      const record = await store.get();
      return record === null ? null : viewOf(record);
    },
    put: (write) =>
      orRefusal(async () => {
        const reading = await readCa(write.certPem, write.keyPem);
        if (reading.kind === 'faulty') {
          const problems = reading.faults.map((fault) => ({ ...fault, code: 'invalid_value' as const }));
          const detail = problems.map(({ pointer, message }) => `${pointer}: ${message}`).join(' ');
          return { ...refusal('invalid_ca', detail), problems };
        }
        const warnings = reading.warnings.map((code) => ({
          pointer: '/cert_pem',
          code,
          message: WARNING_CODES[code],
        }));
        if (write.dryRun) {
          const revision = ((await store.get())?.revision ?? 0) + 1;
          const stamps = { revision, updated_at: new Date().toISOString(), updated_by: write.author };
          return { kind: 'written', ca: viewOf({ cert_pem: reading.ca.certPem, ...stamps }), warnings };
        }
        return keep(reading.ca, write, warnings);
      }),
    generate: (write) =>
      orRefusal(() => {
        const commonName = `Weir intercept CA ${nodeId}`.slice(0, MAX_COMMON_NAME_LENGTH);
        return keep(generateCa({ commonName, days: LIFE_DAYS }), write, []);
      }),
    remove: ({ expectedRevision }) =>
      orRefusal(async () => {
        if (!(await store.remove(expectedRevision))) return refusal('not_found', CA_ABSENT);
        tell(null);
        return { kind: 'deleted' };
      }),
  };
}

/** Returns whether two values are the same CA, or both null. */
function isSameCa(one: InterceptCaMaterial | null, other: InterceptCaMaterial | null): boolean {
  if (one === null || other === null) return one === other;
  if (one.kind !== 'ca' || other.kind !== 'ca') return false;
  return one.ca.fingerprint === other.ca.fingerprint && one.ca.chainPem === other.ca.chainPem;
}

async function materialOf(store: InterceptCaStore): Promise<InterceptCaMaterial | null> {
  try {
    const record = await store.get();
    if (record === null) return null;
    const key = await store.key(record);
    return { kind: 'ca', ca: interceptCaOf(record.cert_pem, record.chain_pem, key) };
  } catch (failure) {
    if (!(failure instanceof StoreError)) throw failure;
    return { kind: 'unreadable', reason: failure.message };
  }
}

type Shown = Pick<InterceptCaRecord, 'cert_pem' | 'revision' | 'updated_at' | 'updated_by'>;

function viewOf({ cert_pem, revision, updated_at, updated_by }: Shown): InterceptCaView {
  const { subject, fingerprint, notBefore, notAfter } = describeCa(cert_pem);
  return {
    subject,
    fingerprint_sha256: fingerprint,
    not_before: notBefore.toISOString(),
    not_after: notAfter.toISOString(),
    cert_pem,
    revision,
    updated_at,
    updated_by,
  };
}
