import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { leavesOf, SHOWN } from '#config/disclosure.js';
import { readConfig } from '#config/load.js';
import { configSchema } from '#config/schema/config-schema.js';
import { CERTIFICATE, KEY } from '#test/api/certificate.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

test('the list of configuration keys that Weir may disclose (`SHOWN`) has exactly the keys of the configuration schema', () => {
  expect(Object.keys(SHOWN).sort()).toEqual(
    leavesOf(configSchema)
      .map((keys) => keys.join('.'))
      .sort(),
  );
});

test('the disclosed configuration names the source of each value, and omits values that come from the environment', () => {
  const file = join(temporaryFolder(), 'weir.yaml');
  writeFileSync(
    file,
    `
version: 1
node: { id: &id "\${SECRET}-1", data_dir: "/data/$\${NAME}" }
api: { allowed_hosts: [weir.example.com, "\${SECRET}"], request_timeout: 20s }
dns: { listen: ["10.1.0.1:53"], upstreams: ["192.0.2.53:53"], rebind_allow: [*id] }
`,
  );
  const environment = { SECRET: 'planted', WEIR_API__LISTEN: '127.0.0.1:1234', WEIR_DNS__MIN_GRANT: '90s' };
  const { config, disclosed } = readConfig(file, environment);
  expect([config.node.id, config.dns?.rebindAllow, config.api.listen.port]).toEqual(['planted-1', ['planted-1'], 1234]);
  expect(JSON.stringify(disclosed)).not.toMatch(/planted|1234/);
  const { version, ...told } = Object.fromEntries(
    Object.entries(disclosed).filter(([, { from }]) => from !== 'default'),
  );
  expect(version).toEqual({ from: 'file', value: 1 });
  expect(told).toEqual({
    'node.id': { from: 'environment' },
    'node.data_dir': { from: 'file', value: `/data/\${NAME}` },
    'api.listen': { from: 'environment' },
    'api.allowed_hosts': { from: 'environment' },
    'api.request_timeout': { from: 'file', value: '20s' },
    'dns.listen': { from: 'file', value: ['10.1.0.1:53'] },
    'dns.upstreams': { from: 'file', value: ['192.0.2.53:53'] },
    'dns.min_grant': { from: 'environment' },
    'dns.rebind_allow': { from: 'environment' },
  });
  expect([disclosed['dns.max_grant'], disclosed['dataplane.interfaces']]).toEqual([
    { from: 'default', value: 86_400_000 },
    undefined,
  ]);
});

test('the disclosed configuration shows the user of etcd and the path of the password file, but not the password', () => {
  const folder = temporaryFolder();
  const [file, password, pem] = ['weir.yaml', 'password', 'any.pem'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  writeFileSync(password, 'planted-password');
  writeFileSync(pem, CERTIFICATE + KEY);
  writeFileSync(
    file,
    `
version: 1
cluster:
  etcd: { endpoints: ["http://10.0.0.1:2379"], user: weir, password_file: ${password} }
  peer: { listen: 0.0.0.0:7946, advertise: a:7946, tls: { ca: ${pem}, cert: ${pem}, key: ${pem} } }
`,
  );
  const { config, disclosed } = readConfig(file, {});
  expect(JSON.stringify([config, disclosed])).not.toContain('planted-password');
  expect([disclosed['cluster.etcd.user'], disclosed['cluster.etcd.password_file']]).toEqual([
    { from: 'file', value: 'weir' },
    { from: 'file', value: password },
  ]);
});
