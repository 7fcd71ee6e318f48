import type { KeyObject } from 'node:crypto';

/**
 * Returns texts that would reveal a private key: the lines of the PEM text, the DER bytes in hexadecimal, and
 * the private number in base64, hexadecimal and binary form. Tests search for these texts in files, logs and
 * responses.
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
  // The base64 text of a number depends on the position of the number in the encoded bytes, modulo 3. So
  // `base64` contains one text for each of the three positions.
  const base64 = [0, 1, 2].map((shift) =>
    Buffer.concat([Buffer.alloc(shift), scalar])
      .toString('base64')
      .slice(shift === 0 ? 0 : 4, -4),
  );
  return [...bodies, ...base64, d, scalar.toString('hex'), scalar.toString('latin1')];
}

/** Returns those texts of `traces` that occur in `content`. */
export function foundIn(content: string | Buffer, traces: readonly string[]): string[] {
  const text = typeof content === 'string' ? content : content.toString('latin1');
  const lower = text.toLowerCase();
  return traces.filter((trace) => text.includes(trace) || lower.includes(trace.toLowerCase()));
}
