import { mkdtempSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSecureContext } from 'node:tls';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { fingerprintOf, type PeerIdentity } from '#cluster/peers/peer-identity.js';
import { OwnIdentity } from '#node/own-identity.js';

describe('the own certificate of a node', () => {
  let folder: string;
  let file: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'weir-identity-'));
    file = join(folder, 'peer-identity.pem');
  });
  afterEach(() => {
    rmSync(folder, { recursive: true });
  });
  const started = (): OwnIdentity => new OwnIdentity('n1', file);
  const certificateOf = ({ cert }: PeerIdentity): string => fingerprintOf(cert);
  const age = (hours: number): void => {
    const then = Date.now() / 1_000 - hours * 3_600;
    utimesSync(file, then, then);
  };
  /** Restarts a node whose certificate has the given age. */
  const restartedAfter = async (hours: number): Promise<{ restarted: OwnIdentity; present: PeerIdentity }> => {
    const own = started();
    await own.keep(own.next(null));
    age(hours);
    const restarted = started();
    return { restarted, present: restarted.next(null) };
  };

  test('a node keeps its certificate and key over a restart, in a file with mode 0600', async () => {
    const own = started();
    const first = own.next(null);
    await own.keep(first);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const again = started().next(null);
    expect(certificateOf(again)).toBe(certificateOf(first));
    // Throws if the key is not that of the certificate.
    createSecureContext({ cert: again.cert, key: again.key });
  });

  test('a node proposes a new certificate after a day, also after a restart, until the new certificate is stored', async () => {
    const { restarted: late, present } = await restartedAfter(25);
    const proposed = late.next(present);
    expect(certificateOf(proposed)).not.toBe(certificateOf(present));
    // A node that could not announce the new certificate uses the present one, and tries again.
    expect(certificateOf(started().next(null))).toBe(certificateOf(present));
    await late.keep(proposed);
    expect(late.next(proposed)).toBe(proposed);
    expect(certificateOf(started().next(null))).toBe(certificateOf(proposed));
  });

  test('a node proposes no new certificate within 23 hours', async () => {
    const { restarted, present } = await restartedAfter(23);
    expect(restarted.next(present)).toBe(present);
  });

  test('a node makes a new certificate if the certificate file is damaged', async () => {
    const own = started();
    const first = own.next(null);
    await own.keep(first);
    writeFileSync(file, String(first.cert));
    expect(certificateOf(started().next(null))).not.toBe(certificateOf(first));
  });
});
