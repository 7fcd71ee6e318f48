import { createServer } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { accessWarnings } from '#kubernetes/api-server/access-check.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { ScriptedServer, sendList, sendStatus } from './scripted-server.js';
import { makeCertificate } from './server-certificate.js';

const check = (server: ScriptedServer, caPem = server.caPem, withinMs = 2_000) =>
  accessWarnings(server.url, { caPem, token: server.token }, withinMs);

describe('the check of the access of an integration', () => {
  it('the access check of a Kubernetes integration lists one pod, node and namespace with the token, and returns no warning if all lists succeed', async () => {
    const server = await ScriptedServer.start((_, response) => sendList(response, 7, []));
    expect(await check(server)).toEqual([]);
    expect(server.asked.map(({ path, query }) => `${path}?${query.toString()}`)).toEqual([
      '/api/v1/pods?limit=1',
      '/api/v1/nodes?limit=1',
      '/api/v1/namespaces?limit=1',
    ]);
    expect(server.asked.map(({ authorization }) => authorization)).toEqual(Array(3).fill('Bearer token-1'));
    await expect.poll(() => server.connections).toBe(0);
  });

  it('the access check of a Kubernetes integration names each kind of object that the account may not list', async () => {
    const server = await ScriptedServer.start(({ path }, response) =>
      path.endsWith('/nodes') ? sendList(response, 7, []) : sendStatus(response, 403, `${path} is forbidden`),
    );
    const warnings = await check(server);
    expect(warnings.map(({ code, pointer }) => [code, pointer])).toEqual(
      Array(2).fill(['access_forbidden', '/service_account_token']),
    );
    expect(warnings[0]?.message).toContain('may not list the pods of the cluster: GET /api/v1/pods?limit=1: 403: ');
    expect(warnings[1]?.message).toContain('may not list the namespaces of the cluster');
  });

  it.each([
    [401, 'Unauthorized', 'token_refused', '/service_account_token'],
    [404, 'no such page', 'connection_failed', '/api_server_url'],
    [302, '', 'connection_failed', '/api_server_url'],
    [500, 'etcd is away', 'connection_failed', '/api_server_url'],
  ])(
    'the access check of a Kubernetes integration returns one warning if each response has the status %i',
    async (status, text, code, pointer) => {
      const server = await ScriptedServer.start((_, response) => sendStatus(response, status, text));
      expect(await check(server)).toEqual([
        { code, pointer, message: expect.stringContaining(`GET /api/v1/pods?limit=1: ${status}: ${text}`) },
      ]);
      expect(server.asked).toHaveLength(1);
    },
  );

  it('the access check of a Kubernetes integration warns of a server whose response is not a list of objects', async () => {
    const server = await ScriptedServer.start((_, response) => void response.end('<html>'));
    expect(await check(server)).toMatchObject([
      { code: 'connection_failed', message: expect.stringMatching(/is not JSON/) },
    ]);
  });

  it('the access check of a Kubernetes integration warns of a server certificate that the CA did not sign, or that is for another host', async () => {
    const server = await ScriptedServer.start((_, response) => sendList(response, 7, []));
    const other = makeCertificate(temporaryFolder());
    const warnings = [
      ...(await check(server, other.ca)),
      ...(await accessWarnings(server.url.replace('127.0.0.1', '[::ffff:127.0.0.1]'), {
        caPem: server.caPem,
        token: 't',
      })),
    ];
    expect(warnings.map(({ code, pointer }) => [code, pointer])).toEqual(
      Array(2).fill(['server_untrusted', '/ca_cert_pem']),
    );
    expect(server.asked).toEqual([]);
  });

  it('the access check of a Kubernetes integration warns of a port that refuses connections', async () => {
    const { caPem } = await ScriptedServer.start(() => {});
    expect(await accessWarnings('https://127.0.0.9:1', { caPem, token: 't' })).toMatchObject([
      { code: 'connection_failed', message: expect.stringMatching(/connection refused/) },
    ]);
  });

  it.each(['before TLS', 'before the headers', 'within a body'])(
    'the access check of a Kubernetes integration ends within its time limit if the server is silent %s',
    async (when) => {
      const server = await ScriptedServer.start((_, response) => {
        if (when === 'within a body') response.write('{');
      });
      const silent = createServer().listen(0, '127.0.0.1');
      onTestFinished(() => void silent.close());
      await new Promise((resolve) => silent.once('listening', resolve));
      const { port } = silent.address() as { port: number };
      const url = when === 'before TLS' ? `https://127.0.0.1:${port}` : server.url;
      const warnings = await accessWarnings(url, { caPem: server.caPem, token: 't' }, 300);
      expect(warnings).toMatchObject([{ code: 'connection_failed', message: expect.stringMatching(/ 0\.3 s/) }]);
    },
  );

  it('the access check of a Kubernetes integration ends within its time limit if each response is slow', async () => {
    const server = await ScriptedServer.start(({ path }, response) => {
      if (path.endsWith('/pods')) setTimeout(() => sendList(response, 7, []), 400);
    });
    expect(await check(server, server.caPem, 600)).toMatchObject([
      {
        code: 'connection_failed',
        message: expect.stringMatching(/nodes\?limit=1: the server did not (answer|respond)/),
      },
    ]);
  });
});
