/**
 * Encodes an 8-bit number. With the other functions of this file, tests build valid and invalid ClientHellos.
 */
export const u8 = (value: number): Buffer => Buffer.from([value]);
export const u16 = (value: number): Buffer => Buffer.from([value >>> 8, value & 0xff]);
const u24 = (value: number): Buffer => Buffer.concat([u8(value >>> 16), u16(value & 0xffff)]);
export const vector8 = (...parts: readonly Uint8Array[]): Buffer => prefixed(u8, parts);
export const vector16 = (...parts: readonly Uint8Array[]): Buffer => prefixed(u16, parts);
export const vector24 = (...parts: readonly Uint8Array[]): Buffer => prefixed(u24, parts);

function prefixed(prefix: (length: number) => Buffer, parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([prefix(body.length), body]);
}

export const extension = (type: number, ...data: readonly Uint8Array[]): Buffer =>
  Buffer.concat([u16(type), vector16(...data)]);

export const hostName = (name: string | Uint8Array): Buffer =>
  Buffer.concat([u8(0), vector16(typeof name === 'string' ? Buffer.from(name, 'latin1') : name)]);
export const sniOf = (name: string | Uint8Array): Buffer => extension(0, vector16(hostName(name)));
export const alpnOf = (...protocols: readonly string[]): Buffer =>
  extension(16, vector16(...protocols.map((protocol) => vector8(Buffer.from(protocol, 'latin1')))));
export const versionsOf = (...versions: readonly number[]): Buffer => extension(43, vector8(...versions.map(u16)));
/** Returns the ECH extension of an outer ClientHello, with `payload` bytes of encrypted data. */
export const echOf = (payload = 144): Buffer =>
  extension(0xfe0d, u8(0), u16(1), u16(1), u8(7), vector16(Buffer.alloc(32, 5)), vector16(Buffer.alloc(payload, 0xab)));

export type HelloParts = {
  readonly version?: number;
  readonly sessionId?: Uint8Array;
  readonly cipherSuites?: Uint8Array;
  readonly compressions?: Uint8Array;
  /**
   * The extensions of the ClientHello. With null, the ClientHello ends without extensions and without their
   * length field.
   */
  readonly extensions?: readonly Uint8Array[] | null;
  /** Bytes that are added after the extensions. */
  readonly tail?: Uint8Array;
};

function helloBody(parts: HelloParts): Buffer {
  const { version = 0x0303, sessionId, cipherSuites, compressions, extensions = [], tail } = parts;
  return Buffer.concat([
    u16(version),
    Buffer.alloc(32, 0x52),
    vector8(sessionId ?? Buffer.alloc(32, 0x53)),
    vector16(cipherSuites ?? Buffer.concat([u16(0x0a0a), u16(0x1301), u16(0xc02f)])),
    vector8(compressions ?? u8(0)),
    ...(extensions === null ? [] : [vector16(...extensions)]),
    tail ?? Buffer.alloc(0),
  ]);
}

export const message = (type: number, body: Uint8Array): Buffer => Buffer.concat([u8(type), vector24(body)]);
export const record = (payload: Uint8Array, type = 22, version = 0x0301): Buffer =>
  Buffer.concat([u8(type), u16(version), vector16(payload)]);

/** Splits `payload` into TLS records with at most `size` bytes of payload each. */
export function records(payload: Uint8Array, size: number, type = 22): Buffer {
  const cut: Buffer[] = [];
  for (let at = 0; at < payload.length; at += size) cut.push(record(payload.subarray(at, at + size), type));
  return Buffer.concat(cut);
}

export const helloMessage = (parts: HelloParts): Buffer => message(1, helloBody(parts));
export const hello = (...extensions: readonly Uint8Array[]): Buffer => record(helloMessage({ extensions }));

/** Returns a ServerHello of TLS 1.2 in one record. */
export const serverHello = (): Buffer =>
  record(message(2, Buffer.concat([u16(0x0303), Buffer.alloc(32, 0x51), vector8(), u16(0xc02f), u8(0)])), 22, 0x0303);
