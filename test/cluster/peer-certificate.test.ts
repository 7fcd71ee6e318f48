import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { EtcdError } from '#cluster/etcd/etcd-error.js';
import type { Membership } from '#cluster/members/membership.js';
import { encodeJoinToken, JoinTokens, readJoinToken } from '#cluster/peers/join-tokens.js';
import { PeerCertificate } from '#cluster/peers/peer-certificate.js';
import { fingerprintOf, type PeerIdentity } from '#cluster/peers/peer-identity.js';
import { selfSigned } from '#service-plane/ca/signed-certificate.js';

const made = (): PeerIdentity => ({ ...selfSigned('n1'), ca: null });

describe('the certificate of a node', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test('a node uses its new certificate 2 s after it announced both fingerprints, and announces the new fingerprint alone 2 s later', async () => {
    const [old, renewed] = [made(), made()];
    const certificate = new PeerCertificate((present) => (present === null ? old : renewed));
    const [before, after] = [old, renewed].map(({ cert }) => fingerprintOf(cert));
    const announced: unknown[] = [];
    const membership = {
      announce: async ({ certificates }: { certificates: readonly string[] }) => {
        announced.push([certificates, certificate.fingerprint]);
      },
    } as unknown as Membership;
    const renewing = certificate.renewals(membership).subscribe();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(announced).toEqual([[[before, after], before]]);
    await vi.advanceTimersByTimeAsync(1_900);
    expect(certificate.fingerprint).toBe(before);
    await vi.advanceTimersByTimeAsync(100);
    expect(certificate.fingerprint).toBe(after);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(announced.slice(1)).toEqual([[[after], after]]);
    renewing.unsubscribe();
  });

  test('a node keeps its certificate while etcd is away, and renews the certificate when etcd is back', async () => {
    const [old, renewed] = [made(), made()];
    const certificate = new PeerCertificate((present) => (present === null ? old : renewed));
    let isAway = true;
    const membership = {
      announce: async () => {
        if (isAway) throw new EtcdError('unavailable', 'etcd is away');
      },
    } as unknown as Membership;
    const renewing = certificate.renewals(membership).subscribe();
    await vi.advanceTimersByTimeAsync(70_000);
    expect(certificate.present).toBe(old);
    isAway = false;
    await vi.advanceTimersByTimeAsync(62_000);
    expect(certificate.present).toBe(renewed);
    renewing.unsubscribe();
  });
});

describe('a join token', () => {
  const token = { address: '10.0.0.1:7443', fingerprint: 'ab'.repeat(32), secret: 's' };

  test('a join token contains the address, the fingerprint and the secret', () => {
    expect(readJoinToken(encodeJoinToken(token))).toEqual(token);
  });

  test.each(['', 'weir-join.', 'weir-join.x', `weir-join.${Buffer.from('["a","b"]').toString('base64url')}`, 'x.y'])(
    'the text %s is not a valid join token',
    (text) => {
      expect(readJoinToken(text)).toBeNull();
    },
  );

  test('a join token is valid once, within one hour', () => {
    let now = 0;
    const tokens = new JoinTokens(() => now);
    const [first, second] = [tokens.issue(), tokens.issue()];
    expect(first.expiresAt).toEqual(new Date(3_600_000));
    expect([tokens.redeem('other'), tokens.redeem(first.secret), tokens.redeem(first.secret)]).toEqual([
      false,
      true,
      false,
    ]);
    now = 3_600_000;
    expect(tokens.redeem(second.secret)).toBe(false);
  });
});
