import { afterAll, beforeAll, expect, test } from 'vitest';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';
import { policyOf } from './rig.js';

let rig: InspectedRig;
beforeAll(async () => {
  rig = await createInspectedRig('metadata');
  await rig.serve(443, rig.certificates.good, '-www');
}, 120_000);
afterAll(() => rig?.remove());

const tls = (block: Readonly<Record<string, unknown>>, more: Readonly<Record<string, unknown>> = {}) => ({
  match: { proto: 'tcp', dst_ports: [443], tls: block },
  ...more,
});
const passes = async (...options: string[]): Promise<boolean> =>
  (await rig.dial(443, options)).text.includes('HTTP/1.0 200 ok');

test('a connection passes by the name that it asks for, and by no other', async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  await rig.node.ready();
  expect(await passes()).toBe(true);
  expect(await passes('-tls1_2')).toBe(true);
  expect(await passes('-servername', 'other.test')).toBe(false);
  expect(await passes('-noservername')).toBe(false);
});

test('the server sees the client’s address, and the port too', async () => {
  const { client, server } = rig.topology;
  const program = `
import socket
s=socket.socket(); s.setsockopt(1,2,1); s.bind(('0.0.0.0',444)); s.listen(5); print('up',flush=True)
c,a=s.accept(); print(a[0],a[1],flush=True); c.recv(10); c.close()`;
  const listening = server.start('python3', ['-c', program]);
  let said = '';
  listening.stdout?.on('data', (chunk: Buffer) => {
    said += chunk.toString();
  });
  await expect.poll(() => said).toContain('up');
  await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [444], tls: {} } }]));
  await client.run('sh', '-c', 'timeout 3 openssl s_client -bind 10.77.1.2:40123 -connect 10.77.2.2:444 </dev/null');
  expect(said).toContain('10.77.1.2 40123');
});
