import { StoreError } from '#store/store-error.js';

/** The shape of the values of a kind: a schema of zod, or a `shaped` test in threads that do not load zod. */
type Shape<T> = {
  safeParse(
    value: unknown,
  ): { readonly success: true; readonly data: T } | { readonly success: false; readonly error: ShapeError };
};
type ShapeError = { readonly issues: readonly { readonly path: readonly PropertyKey[]; readonly message: string }[] };

/** A decoded value, or the reason why the value does not match its schema, as a part of a sentence. */
type Reading<T> =
  | { readonly value: T; readonly reason?: undefined }
  | { readonly value?: undefined; readonly reason: string };

/** The maximum length of a value in bytes. The longest records are lists of parts, of about 500 KiB. */
const MAX_BYTES = 4 * 1024 * 1024;

/**
 * A kind of JSON records in the store or in etcd: the prefix of their keys, and the shape of their values.
 * All records are read through this class, because a value can come from an older or newer build, be damaged,
 * or be written by hand. Additional fields are permitted and kept.
 */
export class RecordKind<T> {
  readonly #shape: Shape<T>;
  readonly #idOf: ((value: never) => string) | undefined;

  /** `idOf` returns the id that a value contains. The key must be the prefix followed by this id. */
  constructor(
    readonly prefix: string,
    shape: Shape<T>,
    idOf?: (value: T) => string,
  ) {
    this.#shape = shape;
    this.#idOf = idOf;
  }

  /** Reads the value of a key. Never throws. */
  reading(key: string, bytes: Uint8Array): Reading<T> {
    if (bytes.length > MAX_BYTES) return { reason: `it has ${bytes.length} bytes, and at most ${MAX_BYTES} are read` };
    let json: unknown;
    try {
      json = JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString());
    } catch {
      // Do not show the message of the parser: it quotes the value, which can be secret.
      return { reason: 'it is not JSON' };
    }
    const parsed = this.#shape.safeParse(json);
    if (!parsed.success) return { reason: reasonOf(parsed.error) };
    const value = json as T;
    const id = this.#idOf?.(value as never);
    if (id !== undefined && key !== this.prefix + id) return { reason: 'it contains the id of another key' };
    return { value };
  }

  /** Decodes the value of a key. Throws `store_damaged` with the key if the value is not of this kind. */
  read(key: string, bytes: Uint8Array): T {
    const { value, reason } = this.reading(key, bytes);
    if (reason === undefined) return value;
    throw new StoreError('store_damaged', `read ${key}: ${reason}`, { key });
  }
}

/** Makes a shape from a test function. `what` completes the sentence "it is not …" in error texts. */
export function shaped<T>(fits: (value: unknown) => boolean, what: string): Shape<T> {
  const error = { issues: [{ path: [], message: `it is not ${what}` }] };
  return { safeParse: (value) => (fits(value) ? { success: true, data: value as T } : { success: false, error }) };
}

/** Whether a value is an object, and neither null nor an array. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function reasonOf({ issues }: ShapeError): string {
  const [first] = issues;
  if (first === undefined) return 'it has another shape';
  const place = first.path.map(String).join('.');
  return place === '' ? first.message : `${place}: ${first.message}`;
}
