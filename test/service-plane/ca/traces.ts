import type { KeyObject } from 'node:crypto';

/**
 * The forms of a private key to search for: its PEM, its DER and the number itself, each in base64 and hex.
 */
export function tracesOf(key: KeyObject): readonly string[] {
  const { d = '' } = key.export({ format: 'jwk' });
  const scalar = Buffer.from(d, 'base64url');
  const types = key.asymmetricKeyType === 'ec' ? (['pkcs8', 'sec1'] as const) : (['pkcs8', 'pkcs1'] as const);
  const bodies = types.flatMap((type) => {
    const pem = key.export({ type: type, format: 'pem' }).toString();
    const der = key.export({ type: type as 'pkcs8', format: 'der' });
    return [...pem.split('\n').filter((line) => line.length >= 40 && !line.startsWith('-')), der.toString('hex')];
  });
  // In base64, for each possible alignment.
  const base64 = [0, 1, 2].map((shift) =>
    Buffer.concat([Buffer.alloc(shift), scalar])
      .toString('base64')
      .slice(shift === 0 ? 0 : 4, -4),
  );
  return [...bodies, ...base64, d, scalar.toString('hex'), scalar.toString('latin1')];
}

/** The forms that occur in a text or in bytes. */
export function foundIn(content: string | Buffer, traces: readonly string[]): string[] {
  const text = typeof content === 'string' ? content : content.toString('latin1');
  const lower = text.toLowerCase();
  return traces.filter((trace) => text.includes(trace) || lower.includes(trace.toLowerCase()));
}
