import { randomBytes, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import type { SecureContext } from 'node:tls';
import { describe, expect, it } from 'vitest';
import { generateCa } from '#service-plane/ca/generate-ca.js';
import { LeafContexts } from '#service-plane/ca/leaf-contexts.js';
import { handshake } from '../handshake.js';

const DAY_MS = 86_400_000;
const ca = generateCa({ commonName: 'first', days: 365 });
const other = generateCa({ commonName: 'second', days: 365 });

function contexts(options: { capacity?: number; now?: () => Date; ticketKeys?: Buffer } = {}): LeafContexts {
  const made = new LeafContexts({ ticketKeys: randomBytes(48), ...options });
  made.use(ca);
  return made;
}
function present(context: SecureContext | null): SecureContext {
  if (context === null) throw new Error('there is no context');
  return context;
}

/**
 * Makes a TLS connection to a server with the TLS context `context`. Returns the certificate and the session
 * that the client receives. The client trusts both test CAs.
 */
async function visited(
  context: SecureContext | null,
  name: string,
  more: { session?: Buffer; maxVersion?: 'TLSv1.2' } = {},
) {
  const options = { servername: name, ca: ca.certPem + other.certPem, ...more };
  const { client, server, close } = await handshake(present(context), options);
  const given = more.session === undefined && client.getProtocol() === 'TLSv1.3' ? once(client, 'session') : undefined;
  server.write('hello');
  await once(client, 'data');
  await given;
  const seen = {
    session: client.getSession() ?? Buffer.of(),
    issuer: client.getPeerX509Certificate()?.issuer,
    fingerprint: client.getPeerX509Certificate()?.fingerprint256,
    isReused: client.isSessionReused(),
    protocol: client.getProtocol(),
  };
  close();
  return seen;
}

describe('LeafContexts', () => {
  it('`LeafContexts` creates a TLS context once for each server name, and removes the least recently used context above `capacity`', () => {
    const made = contexts({ capacity: 2 });
    const first = made.of('a.test');
    expect([made.of('a.test') === first, made.of('b.test') === first]).toEqual([true, false]);
    made.of('a.test');
    made.of('c.test');
    expect([made.size, made.of('a.test') === first]).toEqual([2, true]);
  });

  it("`LeafContexts` creates a new TLS context for a name after half of the leaf certificate's lifetime", () => {
    const clock = { ms: Date.now() };
    const made = contexts({ now: () => new Date(clock.ms) });
    const first = made.of('a.test');
    clock.ms += 3.5 * DAY_MS - 2_000;
    expect(made.of('a.test')).toBe(first);
    clock.ms += 2_000;
    expect(made.of('a.test')).not.toBe(first);
  });

  it('`LeafContexts` returns no TLS context without a CA, before the validity of the CA, and after the validity of the CA', () => {
    const clock = { at: ca.notBefore };
    const made = contexts({ now: () => clock.at });
    expect(made.of('a.test')).not.toBeNull();
    clock.at = ca.notAfter;
    expect(made.of('a.test')).toBeNull();
    clock.at = new Date(ca.notBefore.getTime() - 1);
    expect(made.of('b.test')).toBeNull();
    clock.at = new Date();
    made.use(null);
    expect(made.of('a.test')).toBeNull();
  });

  it('`LeafContexts` signs new leaf certificates with a new CA, and existing connections keep the certificate of the old CA', async () => {
    const made = contexts();
    const options = { servername: 'a.test', ca: ca.certPem };
    const { client, server, close } = await handshake(present(made.of('a.test')), options);
    made.use(other);
    expect((await visited(made.of('a.test'), 'a.test')).issuer).toBe('CN=second');
    server.write('still here');
    expect(((await once(client, 'data')) as [Buffer])[0].toString()).toBe('still here');
    expect(client.getPeerX509Certificate()?.issuer).toBe('CN=first');
    close();
  });

  it('`LeafContexts` creates a TLS context that sends the leaf certificate of a root CA without the root certificate', async () => {
    const made = contexts();
    const { client, close } = await handshake(present(made.of('a.test')), { servername: 'a.test', ca: ca.certPem });
    const leaf = client.getPeerX509Certificate();
    expect(leaf?.checkIssued(new X509Certificate(ca.certPem))).toBe(true);
    expect(leaf?.issuerCertificate).toBeUndefined();
    close();
  });
});

describe.each([undefined, 'TLSv1.2'] as const)('a TLS session (maxVersion %s)', (maxVersion) => {
  const version = maxVersion === undefined ? {} : { maxVersion };

  it('a TLS session is resumed by another `LeafContexts` object with the same ticket keys', async () => {
    const ticketKeys = randomBytes(48);
    const { session } = await visited(contexts({ ticketKeys }).of('a.test'), 'a.test', version);
    const again = await visited(contexts({ ticketKeys }).of('a.test'), 'a.test', { session, ...version });
    expect([again.isReused, again.protocol]).toEqual([true, maxVersion ?? 'TLSv1.3']);
  });

  it('a TLS session is not resumed for another host name, after a change of the CA, or by an object with other ticket keys', async () => {
    const ticketKeys = randomBytes(48);
    const made = contexts({ ticketKeys });
    const { session } = await visited(made.of('a.test'), 'a.test', version);
    const elsewhere = await visited(made.of('b.test'), 'b.test', { session, ...version });
    made.use(other);
    const changed = await visited(made.of('a.test'), 'a.test', { session, ...version });
    const foreign = await visited(contexts().of('a.test'), 'a.test', { session, ...version });
    expect([elsewhere, changed, foreign].map(({ isReused }) => isReused)).toEqual([false, false, false]);
  });
});

it('`LeafContexts` sends a new session ticket whenever a client uses a TLS 1.3 ticket, and later accepts the new ticket', async () => {
  const made = contexts();
  let session: Buffer = (await visited(made.of('a.test'), 'a.test')).session;
  for (const again of [1, 2, 3]) {
    const { client, server, close } = await handshake(present(made.of('a.test')), {
      ...{ servername: 'a.test', ca: ca.certPem, session },
    });
    const given = once(client, 'session') as Promise<[Buffer]>;
    server.write('hello');
    await once(client, 'data');
    expect([again, client.isSessionReused()]).toEqual([again, true]);
    const [next] = await given;
    expect(next.equals(session)).toBe(false);
    session = next;
    close();
  }
});

it.each([
  ['TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256', 'TLS_AES_128_GCM_SHA256'],
  ['TLS_AES_256_GCM_SHA384', 'TLS_AES_256_GCM_SHA384'],
  ['TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256', 'TLS_CHACHA20_POLY1305_SHA256'],
])('for a client that offers the ciphers %s, a TLS context of `LeafContexts` selects %s', async (ciphers, chosen) => {
  const { client, close } = await handshake(present(contexts().of('a.test')), {
    ...{ servername: 'a.test', ca: ca.certPem, ciphers },
  });
  expect(client.getCipher().name).toBe(chosen);
  close();
});
