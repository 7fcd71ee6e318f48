import { X509Certificate } from 'node:crypto';
import { rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createSecureContext, rootCertificates } from 'node:tls';
import { beforeAll, describe, expect, it } from 'vitest';
import { readCertificateFacts } from '#service-plane/certificate/certificate-facts.js';
import { type UntrustedReason, untrustedReason } from '#service-plane/upstream/untrusted-reason.js';
import { createUpstreamTrust, type UpstreamTrust } from '#service-plane/upstream/upstream-trust.js';
import { temporaryFolder } from '../store/temporary-folder.js';
import {
  type Certificates,
  type Fault,
  makeCertificates,
  SERVER_ADDRESS,
  SERVER_NAME,
  type ServerCertificate,
} from './certificates.js';
import { handshake } from './handshake.js';

let certificates: Certificates;
beforeAll(() => {
  certificates = makeCertificates();
});

/**
 * Makes a TLS connection to a server with this certificate. Returns `trusted`, or the reason why `trust`
 * rejects the certificate.
 */
async function verified(
  trust: UpstreamTrust,
  { certPem, keyPem }: ServerCertificate,
  name: string | null = SERVER_NAME,
) {
  const server = createSecureContext({ cert: certPem, key: keyPem, ciphers: 'DEFAULT:@SECLEVEL=0' });
  try {
    const { client, close } = await handshake(server, trust.connection(name, SERVER_ADDRESS));
    const { authorized } = client;
    close();
    return authorized ? 'trusted' : 'not authorized';
  } catch (failure) {
    return untrustedReason(failure) ?? failure;
  }
}

function trustIn(pem: string): UpstreamTrust {
  const source = join(temporaryFolder(), 'roots.pem');
  writeFileSync(source, pem);
  return createUpstreamTrust({ source });
}

describe('createUpstreamTrust', () => {
  it('`createUpstreamTrust` accepts a certificate chain that leads to a trusted root, in any order after the leaf certificate', async () => {
    const trust = trustIn(certificates.rootPem);
    expect(await verified(trust, certificates.good)).toBe('trusted');
    expect(await verified(trust, certificates.reversedChain)).toBe('trusted');
  });

  it.each<readonly [Fault, UntrustedReason]>([
    ['expired', 'expired'],
    ['not yet valid', 'not_yet_valid'],
    ['wrong host', 'wrong_name'],
    ['self-signed', 'self_signed'],
    ['unknown issuer', 'unknown_issuer'],
    ['unknown issuer that is sent', 'unknown_issuer'],
    ['incomplete chain', 'unknown_issuer'],
    ['SHA-1', 'weak_signature'],
    ['RSA 1024', 'weak_key'],
    ['clientAuth only', 'wrong_purpose'],
    ['no SAN', 'no_names'],
    ['issuer that is no CA', 'wrong_purpose'],
    ['path too long', 'path_too_long'],
    ['name not permitted', 'name_not_permitted'],
  ])(
    '`createUpstreamTrust` rejects a server certificate with the fault %s for the reason %s',
    async (fault, reason) => {
      expect(await verified(trustIn(certificates.rootPem), certificates.broken[fault])).toBe(reason);
    },
  );
});

it("a server certificate must be valid for the server's address if the client sends no server name", async () => {
  const trust = trustIn(certificates.rootPem);
  expect(await verified(trust, certificates.good, null)).toBe('trusted');
  expect(await verified(trust, certificates.broken['wrong host'], null)).toBe('wrong_name');
});

describe('the upstream_ca file', () => {
  it('the upstream_ca file is checked for a change at most once a second, and read again only after a change', async () => {
    const source = join(temporaryFolder(), 'roots.pem');
    const clock = { ms: 0 };
    writeFileSync(source, certificates.intermediatePem);
    const trust = createUpstreamTrust({ source, nowMs: () => clock.ms });
    const context = () => trust.connection(SERVER_NAME, SERVER_ADDRESS).secureContext;
    const first = context();
    expect(await verified(trust, certificates.good)).toBe('unknown_issuer');
    writeFileSync(source, certificates.rootPem);
    clock.ms = 999;
    expect(context()).toBe(first);
    clock.ms = 1_000;
    expect(await verified(trust, certificates.good)).toBe('trusted');
    const second = context();
    clock.ms = 5_000;
    expect(context()).toBe(second);
  });

  it('the upstream_ca file contains the certificates against which rules verify the chain of a server, also after a change', () => {
    const source = join(temporaryFolder(), 'roots.pem');
    const clock = { ms: 0 };
    writeFileSync(source, `a comment\n${rootCertificates[0]}\n${certificates.rootPem}`);
    const trust = createUpstreamTrust({ source, nowMs: () => clock.ms });
    const pems = certificates.good.certPem.match(/-----BEGIN[^-]+-----[^-]+-----END[^-]+-----/g) ?? [];
    const ders = pems.map((pem) => new X509Certificate(pem).raw);
    const facts = readCertificateFacts(ders, { roots: () => trust.anchors() });
    const isTrusted = () => facts.kind === 'seen' && facts.isTrusted(null);
    expect(isTrusted()).toBe(true);
    expect(trust.anchors()).toBe(trust.anchors());
    writeFileSync(source, String(rootCertificates[0]));
    clock.ms = 1_000;
    expect(isTrusted()).toBe(false);
  });

  it('the upstream_ca file is reported as faulty while it is missing or contains no certificate, and its earlier certificates stay in use', async () => {
    const source = join(temporaryFolder(), 'roots.pem');
    const clock = { ms: 0 };
    writeFileSync(source, certificates.rootPem);
    const trust = createUpstreamTrust({ source, nowMs: () => clock.ms });
    rmSync(source);
    clock.ms = 2_000;
    expect(await verified(trust, certificates.good)).toBe('trusted');
    expect(trust.fault()).toBe(`${source}: no such file or directory`);
    writeFileSync(source, 'nothing');
    clock.ms = 4_000;
    expect(await verified(trust, certificates.good)).toBe('trusted');
    expect(trust.fault()).toBe(`read ${source}: the file contains no readable PEM certificate`);
    writeFileSync(source, certificates.rootPem);
    utimesSync(source, 1, 1);
    clock.ms = 6_000;
    expect(await verified(trust, certificates.good)).toBe('trusted');
    expect(trust.fault()).toBeNull();
  });

  it.each(['', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'])(
    '`createUpstreamTrust` throws if the upstream_ca file has no certificate, because Node would then use its built-in root certificates',
    (content) => {
      expect(() => trustIn(content)).toThrow('the file contains no readable PEM certificate');
    },
  );
});

it('`createUpstreamTrust` with upstream_ca `system` reports no fault, whether or not the system has a CA file', () => {
  for (const systemFile of ['/etc/ssl/certs/ca-certificates.crt', join(temporaryFolder(), 'none')]) {
    const trust = createUpstreamTrust({ source: 'system', systemFile });
    const { servername } = trust.connection('a.test', SERVER_ADDRESS);
    expect([servername, trust.fault(), trust.anchors().isEmpty]).toEqual(['a.test', null, false]);
  }
});
