import { execFileSync } from 'node:child_process';
import { pathToFileURL } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { detach } from '#dataplane/thread/detach.js';
import { topologyOfFile } from './topology-of-file.js';

const USER = '65534';
const CAPABILITIES = '-all,+net_admin,+bpf,+perfmon';

const topology = topologyOfFile('user');
afterAll(() => {
  detach(topology.pinPath);
});

// Linux 6.1 lacks some kernel functions that the BPF object names, and libbpf 1.1 searches them in the BTF of
// the kernel's modules, which the kernel gives only to CAP_SYS_ADMIN.
test('the datapath opens as another user without CAP_SYS_ADMIN, on each supported kernel', () => {
  const of = (path: string): string => JSON.stringify(pathToFileURL(path).href);
  const script = `
    const { LocalDatapath } = await import(${of('dist/src/dataplane/thread/local-datapath.js')});
    const { datapathOptions } = await import(${of('dist/test/kernel/datapath-options.js')});
    const { allowAll } = await import(${of('dist/test/kernel/policies.js')});
    const datapath = new LocalDatapath(datapathOptions('${topology.pinPath}', { interfaces: ['lan0', 'wan0'] }));
    datapath.open();
    datapath.attach();
    datapath.stage(allowAll, 1);
    datapath.flip();
    console.log(JSON.stringify(datapath.review().faults));
    datapath.close();
    process.exit();`;
  execFileSync('sh', ['-ec', `mkdir -p ${topology.pinPath}; chown ${USER} ${topology.pinPath}`]);
  const sets = ['--bounding-set', CAPABILITIES, '--inh-caps', CAPABILITIES, '--ambient-caps', CAPABILITIES];
  const words = ['--reuid', USER, '--clear-groups', ...sets, process.execPath, '--input-type=module', '-e', script];
  expect(execFileSync('setpriv', words, { encoding: 'utf8' })).toBe('[]\n');
});
