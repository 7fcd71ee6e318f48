import { generateKeyPairSync } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { createInspectedRig, type InspectedRig } from '#test/e2e/inspected.js';
import { policyOf, type RuleInput } from '#test/e2e/rig.js';
import { CHANGED, SAME, send } from '#test/e2e/second-hellos.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { attack, type Change } from './renaming-clients.js';
import { CLIENTS, getsPage, listening, offerOf, PORT, SERVERS, startServers } from './tls-tools.js';

const P384 = 24;
const DENIED = 'denied.test';
const PORTS = ['4500-4599'];
const EARLY = 4510;

let rig: InspectedRig;
beforeAll(async () => {
  rig = await createInspectedRig('trial');
  await startServers(rig);
  const made = await rig.node.request('POST', '/api/v1/settings/tls-intercept-ca/generate');
  if (made.status !== 201) throw new Error(made.text);
}, 120_000);
afterAll(() => rig?.remove());

const to = (more: Readonly<Record<string, unknown>> = {}): RuleInput => ({
  match: { proto: 'tcp', dst_ports: PORTS, ...more },
});
const RULES = {
  none: [to()],
  'allow a name': [to({ tls: { sni: [SERVER_NAME] } })],
  'deny a name': [{ ...to({ tls: { sni: [DENIED] } }), action: 'deny' }, to()],
  'allow TLS': [to({ tls: {} })],
  intercept: [to({ tls: { mode: 'intercept', http: { request: { methods: ['GET'] } } } })],
} as const satisfies Readonly<Record<string, readonly RuleInput[]>>;
const use = async (rules: keyof typeof RULES): Promise<void> => {
  await rig.put(policyOf(RULES[rules]));
  await rig.node.ready();
};
const PAIRS = CLIENTS.flatMap((client) => SERVERS.map((server) => [client, server] as const));

describe('a client that receives HelloRetryRequest', () => {
  test.each(CLIENTS)(
    'the client %s offers P-384, but no key share for P-384, in the first ClientHello',
    async (client) => {
      await use('none');
      const { groups, shares } = await offerOf(rig, client);
      expect(groups).toContain(P384);
      expect(shares).not.toContain(P384);
    },
  );

  test.each(PAIRS)(
    'the client %s gets the page of the server %s after HelloRetryRequest only with allowed server names',
    async (client, server) => {
      const pages: Record<string, readonly boolean[]> = {};
      for (const rules of ['none', 'allow a name', 'deny a name', 'allow TLS'] as const) {
        await use(rules);
        const ask = (name: string): Promise<boolean> => getsPage(rig, client, PORT[server], name);
        pages[rules] = [await ask(SERVER_NAME), await ask(DENIED)];
      }
      expect(pages).toEqual({
        none: [true, true],
        'allow a name': [true, false],
        'deny a name': [true, false],
        'allow TLS': [true, true],
      });
    },
  );

  test.each(SERVERS)(
    'curl gets the page of the server %s through interception if the server sends HelloRetryRequest to the node',
    async (server) => {
      await use('intercept');
      expect(await getsPage(rig, 'curl', PORT[server], SERVER_NAME)).toBe(true);
      expect(await getsPage(rig, 'curl', PORT[server], SERVER_NAME, '-X POST')).toBe(false);
    },
  );
});

const CHANGES: readonly Change[] = [
  ['name', DENIED],
  ['no-name', ''],
  ['protocols', 'h2'],
  ['status', ''],
  ['signatures', 'ECDSA+SHA256'],
  ['ciphers', 'TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256'],
];

describe('a second ClientHello', () => {
  test.each(SERVERS)(
    'a second ClientHello that differs from the first is accepted by the server %s if no TLS rule applies',
    async (server) => {
      await use('none');
      expect(await attack(rig, 'openssl', PORT[server], SERVER_NAME, ['name', DENIED])).toBe('page');
      expect(await attack(rig, 'gnutls', PORT[server], SERVER_NAME, ['name', DENIED])).toBe('page');
    },
  );

  test.each(SERVERS)(
    'a second ClientHello that differs from the first does not reach the server %s from a real TLS client',
    async (server) => {
      for (const rules of ['allow a name', 'deny a name', 'allow TLS'] as const) {
        await use(rules);
        const said: Record<string, string> = {};
        for (const change of CHANGES) said[change[0]] = await attack(rig, 'openssl', PORT[server], SERVER_NAME, change);
        said.gnutls = await attack(rig, 'gnutls', PORT[server], SERVER_NAME, ['name', DENIED]);
        said.unchanged = await attack(rig, 'openssl', PORT[server], SERVER_NAME, ['nothing', '']);
        const cut = Object.fromEntries([...CHANGES.map(([name]) => name), 'gnutls'].map((name) => [name, 'reset']));
        expect([rules, said]).toEqual([rules, { ...cut, unchanged: 'page' }]);
      }
    },
  );

  test.each(SERVERS)(
    'a second ClientHello from the list CHANGED, which differs from the first, does not reach the server %s',
    async (server) => {
      for (const rules of ['allow a name', 'deny a name'] as const) {
        await use(rules);
        for (const [what, sent] of CHANGED)
          expect([rules, what, await send(rig, PORT[server], sent)]).toEqual([rules, what, 'reset']);
      }
    },
  );

  // NSS requires a cookie in the second ClientHello, and the byte sequences of `SAME` have no cookie.
  test.each(SERVERS.filter((name) => name !== 'nss'))(
    'a second ClientHello from the list SAME, with the fields of the first, gets the same answer from the server %s with and without a TLS rule',
    async (server) => {
      await use('none');
      const expected = [];
      for (const [, sent] of SAME) expected.push(await send(rig, PORT[server], sent));
      expect(expected).toContain('hello');
      await use('allow a name');
      const seen = [];
      for (const [, sent] of SAME) seen.push(await send(rig, PORT[server], sent));
      expect(seen).toEqual(expected);
    },
  );
});

test('TLS early data passes the node, and the server accepts early data, but rejects early data after HelloRetryRequest', async () => {
  const { server, client } = rig.topology;
  const { folder } = rig.node;
  const shown = ['-cert', `${folder}/trial.pem`, '-cert_chain', `${folder}/trial.pem`, '-key', `${folder}/trial.key`];
  const words = ['s_server', '-accept', String(EARLY), ...shown, '-early_data', '-groups', 'P-384', '-naccept', '9'];
  await listening(rig, server.start('openssl', words), EARLY);
  await rig.file('early', 'early words\n');
  const dial = async (groups: string, options: string): Promise<string> => {
    const at = `-connect ${ADDRESSES.server}:${EARLY} -servername ${SERVER_NAME} -groups ${groups}`;
    const command = `(sleep 0.7) | timeout 4 openssl s_client ${at} ${options} 2>&1`;
    return (await client.run('sh', '-c', command)).stdout;
  };
  await use('allow a name');
  expect(await dial('P-384', `-sess_out ${folder}/session`)).toContain('Early data was not sent');
  const early = `-sess_in ${folder}/session -early_data ${folder}/early`;
  expect(await dial('P-384', `${early} -sess_out ${folder}/session`)).toContain('Early data was accepted');
  const second = await dial('X25519:P-384', early);
  expect(second).toContain('Early data was rejected');
  expect(second).toContain('Post-Handshake New Session Ticket arrived');
});

/**
 * Returns an ECHConfigList with one configuration in base64 (draft-ietf-tls-esni-18, 4) for X25519,
 * HKDF-SHA256 and AES-128-GCM.
 */
function echConfigs(publicName: string): string {
  const key = generateKeyPairSync('x25519').publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
  const name = Buffer.from(publicName);
  const head = Buffer.from([7, 0, 0x20, 0, key.length]);
  const suites = Buffer.from([0, 4, 0, 1, 0, 1, 0]);
  const contents = Buffer.concat([head, key, suites, Buffer.from([name.length]), name, Buffer.from([0, 0])]);
  const config = Buffer.concat([Buffer.from([0xfe, 0x0d, 0, contents.length]), contents]);
  return Buffer.concat([Buffer.from([0, config.length]), config]).toString('base64');
}

describe('Encrypted Client Hello of NSS with HelloRetryRequest', () => {
  const ask = async (options: string): Promise<string> => {
    const command = `printf 'GET / HTTP/1.0\\r\\n\\r\\n' >request.$$; timeout 4 tstclnt -h ${ADDRESSES.server} -p ${PORT.openssl} -a hidden.test -D -o -V tls1.3:tls1.3 ${options} -A request.$$ 2>&1; rm request.$$`;
    return (await rig.topology.client.run('sh', '-c', `cd ${rig.node.folder}; ${command}`)).stdout;
  };
  // The server has no ECH key: it completes the handshake for the public name. The client then ends the
  // connection with this error.
  const COMPLETED = 'SSL_ERROR_ECH_RETRY_WITHOUT_ECH';
  const CUT = 'PR_CONNECT_RESET_ERROR';
  // The name in the outer ClientHello decides: `SERVER_NAME` with ECH, `hidden.test` with GREASE.

  test.each([
    ['none', COMPLETED, 'HTTP/1.0 200'],
    ['allow TLS', COMPLETED, 'HTTP/1.0 200'],
    ['allow a name', COMPLETED, CUT],
    ['deny a name', COMPLETED, 'HTTP/1.0 200'],
  ] as const)(
    'under the policy "%s", a connection of NSS with ECH ends with %s, and one with GREASE ECH with %s, after HelloRetryRequest',
    async (rules, hidden, greased) => {
      await use(rules);
      expect(await ask(`-N ${echConfigs(SERVER_NAME)}`)).toContain(hidden);
      expect(await ask('-i 100')).toContain(greased);
    },
  );
});
