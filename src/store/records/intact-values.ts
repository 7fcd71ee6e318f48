import { StoreError } from '#store/store-error.js';
import type { KvRange, KvReads, KvStore } from '#store/store-types.js';
import { under } from './json-value.js';
import type { RecordKind } from './record-kind.js';

/**
 * Iterates over the entries of a range without those whose value is damaged; `onDamaged` receives an error
 * for each of these. Throws `store_damaged` if the database itself is damaged.
 */
export async function* intactEntries(
  kv: Pick<KvStore, 'iterate'>,
  range: Omit<KvRange, 'limit'>,
  onDamaged: (error: StoreError, key: string) => void,
): AsyncGenerator<readonly [key: string, value: Uint8Array]> {
  for (let rest = range; ; ) {
    try {
      yield* kv.iterate(rest);
      return;
    } catch (error) {
      const damaged = damagedValue(error);
      onDamaged(damaged, damaged.key);
      rest = range.reverse === true ? { ...rest, lt: damaged.key } : { ...rest, gte: `${damaged.key}\0` };
    }
  }
}

/** Returns the values in the order of `keys`, with null for a missing key, and for a damaged value. */
export async function intactValues(
  kv: KvReads,
  keys: readonly string[],
  onDamaged: (error: StoreError, key: string) => void = () => {},
): Promise<(Uint8Array | null)[]> {
  try {
    return await kv.getMany(keys);
  } catch (failure) {
    damagedValue(failure);
  }
  return Promise.all(
    keys.map((key) =>
      kv.get(key).catch((failure: unknown) => {
        onDamaged(damagedValue(failure), key);
        return null;
      }),
    ),
  );
}

/** Returns the value of a key; null if it is missing or damaged. */
async function intactValue(
  kv: KvReads,
  key: string,
  onDamaged?: (error: StoreError, key: string) => void,
): Promise<Uint8Array | null> {
  const [value] = await intactValues(kv, [key], onDamaged);
  return value ?? null;
}

type OnDamaged = (error: StoreError, key: string) => void;

/**
 * Iterates over the records of a kind in ascending order, without those whose value is damaged or does not
 * match its schema; `onDamaged` receives an error for each of these.
 */
export async function* intactRecords<T>(
  kv: Pick<KvStore, 'iterate'>,
  kind: RecordKind<T>,
  onDamaged: OnDamaged,
): AsyncGenerator<readonly [key: string, record: T]> {
  for await (const [key, value] of intactEntries(kv, under(kind.prefix as `${string}/`), onDamaged)) {
    const record = fitting(kind, key, value, onDamaged);
    if (record !== null) yield [key, record];
  }
}

/**
 * Returns a record. Returns null if there is no record, or if its value is damaged or does not match its
 * schema.
 */
export async function intactRecord<T>(
  kv: KvReads,
  kind: RecordKind<T>,
  key: string,
  onDamaged: OnDamaged = () => {},
): Promise<T | null> {
  const value = await intactValue(kv, key, onDamaged);
  return value === null ? null : fitting(kind, key, value, onDamaged);
}

function fitting<T>(kind: RecordKind<T>, key: string, value: Uint8Array, onDamaged: OnDamaged): T | null {
  try {
    return kind.read(key, value);
  } catch (failure) {
    onDamaged(damagedValue(failure), key);
    return null;
  }
}

/** Returns the failure if only a single value is damaged. Rethrows every other failure. */
function damagedValue(failure: unknown): StoreError & { readonly key: string } {
  if (!(failure instanceof StoreError) || failure.code !== 'store_damaged' || failure.key === undefined) throw failure;
  return failure as StoreError & { readonly key: string };
}
