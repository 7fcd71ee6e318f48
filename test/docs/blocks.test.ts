import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { parseConfig } from '#config/load.js';
import { validateEnvelope } from '#policy/check/validation/validate.js';
import { CERTIFICATE, KEY } from '#test/api/certificate.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { blockAt, blocksOf } from './blocks.js';
import { fileAt } from './files.js';

/**
 * For each block of a documentation page, by the start of the block: `file`, a test or trial that reads the
 * block from the page, or `reason`, why no test runs it, and what runs the same commands.
 */
type Case = { readonly file: string } | { readonly reason: string };

const HERE = { file: 'test/docs/blocks.test.ts' };
const DOCUMENTS = { file: 'test/trials/documents.trial.ts' };
const CLIENTS = { file: 'test/trials/recipes.ts' };
/** A script of `npm run package-test` and `npm run package-container`: apt and systemd of Debian. */
const PACKAGE = { file: 'scripts/package-test-guest.sh' };
const BACKUP = { file: 'test/e2e/init-node.test.ts' };
const OUTPUT = { reason: 'the output of a command; test/cli compares the tables' };

const CASES: Readonly<Record<string, Readonly<Record<string, Case>>>> = {
  'docs/cluster.md': {
    'export ETCDCTL_ENDPOINTS=': { file: 'test/cluster/etcd-cluster.ts' },
    'version: 1': HERE,
    'weir cluster init': DOCUMENTS,
    'weir cluster token': DOCUMENTS,
    'weir cluster nodes': DOCUMENTS,
    'weir policy apply -f office.yaml --rollout-share': DOCUMENTS,
    'weir cluster recover': DOCUMENTS,
  },
  'docs/kubernetes.md': {
    'weir integration add prod': { file: 'test/e2e/kubernetes.test.ts' },
    'source_groups:': HERE,
    '$ weir findings': OUTPUT,
    '$ weir integration status': OUTPUT,
  },
  'docs/install.md': {
    'apt install ./weir_0.1.0_amd64.deb\nweir init': PACKAGE,
    'skopeo copy': { reason: 'it needs a registry' },
    'apt install ./weir_0.2.0_amd64.deb': PACKAGE,
    'systemctl stop weir\n(umask': BACKUP,
    'systemctl stop weir\nrm': BACKUP,
    'weir policy activate gateway': BACKUP,
    'chgrp weir': PACKAGE,
  },
  'docs/boot.md': {
    'useradd --system weir': DOCUMENTS,
    '[Service]\nReadWritePaths': HERE,
    '[Unit]\nRequiresMountsFor': HERE,
  },
  'docs/inspection.md': { '{ "id": "no-hidden-names"': CLIENTS },
  'docs/names.md': { 'dns:': CLIENTS, '{ "id": "api"': CLIENTS },
};

describe.each(Object.entries(CASES))('code blocks of %s', (page, cases) => {
  test('each code block of a documentation page has one test case', () => {
    const starts = Object.keys(cases);
    const startsOf = (text: string): string[] => starts.filter((start) => text.startsWith(start));
    const blocks = blocksOf(page);
    expect(blocks.filter(({ text }) => startsOf(text).length !== 1).map(({ text }) => text)).toEqual([]);
    expect(blocks).toHaveLength(starts.length);
  });

  test('each code block of a documentation page is read from the page by the test file of its case', () => {
    const missing = Object.entries(cases).filter(([start, each]) => {
      if (!('file' in each)) return false;
      const { text } = fileAt(each.file);
      const isRead = each.file.endsWith('.sh')
        ? text.includes(`block_at ${page} '${start.split('\n')[0]}'`)
        : text.includes(`blockAt('${page}', '${start.replaceAll('\n', '\\n')}')`);
      return !isRead && !(each === CLIENTS && text.includes(`'${page}'`));
    });
    expect(missing).toEqual([]);
  });
});

describe('code blocks without commands', () => {
  test('the code blocks without commands of docs/cluster.md are a valid configuration', () => {
    const folder = temporaryFolder();
    for (const name of ['etcd-ca.pem', 'weir.pem', 'weir.key', 'seal.key'])
      writeFileSync(join(folder, name), CERTIFICATE + KEY, { mode: 0o600 });
    const text = blockAt('docs/cluster.md', 'version: 1').replaceAll('/etc/weir', folder);
    const { config } = parseConfig(text, 'weir.yaml', {});
    expect(config.cluster).toMatchObject({ prefix: '/weir', peer: { advertise: { host: '10.0.1.1', port: 7443 } } });
  });

  test('the code blocks without commands of docs/kubernetes.md are source groups of a valid policy', () => {
    const policy = { default_policy: 'deny', ...(parse(blockAt('docs/kubernetes.md', 'source_groups:')) as object) };
    const integrations = new Set(['prod']);
    const options = { form: 'envelope', integrations, parseCertificate: () => undefined } as const;
    expect(validateEnvelope({ name: 'gateway', mode: 'enforce', policy }, options)).toEqual([]);
  });

  test('the code blocks without commands of docs/boot.md change the paths of deploy/systemd/, and nothing else', () => {
    const data = blockAt('docs/boot.md', '[Service]\nReadWritePaths').split('\n');
    expect(data.slice(0, -1)).toEqual(['[Service]', 'ReadWritePaths=/srv/weir']);
    const unit = fileAt('deploy/systemd/weir-guard.service').text.replaceAll('/var/lib/weir', '/srv/weir').split('\n');
    const guard = blockAt('docs/boot.md', '[Unit]\nRequiresMountsFor').split('\n');
    // Ignore lines with an empty value: they clear a list of the systemd unit, to which the next line adds.
    const set = guard.filter((line) => line !== '' && !line.endsWith('='));
    expect(set.filter((line) => !unit.includes(line))).toEqual([]);
    for (const key of ['ConditionFileNotEmpty', 'ExecStart', 'ExecReload']) expect(guard).toContain(`${key}=`);
  });
});
