import { execFile } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeEach, expect, it } from 'vitest';
import { weirCommand } from '#cli/tour/node-process.js';
import { temporaryFolder } from '#cli/tour/topology.js';
import { skipUnless } from '#test/skip-unless.js';
import { CERTIFICATE, KEY } from '../api/certificate.js';
import { isInstalled } from './rig.js';

const UID = 901;
const SHARED_GROUP = 902;

let folder: string;
beforeEach(async () => {
  folder = await temporaryFolder('config-check');
  chmodSync(folder, 0o755);
  return () => rmSync(folder, { recursive: true });
});

const without = (file: string, names: RegExp): string =>
  readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !names.test(line))
    .join('\n');

/** Runs `weir config check` where the only user and group `weir` are those of this test. */
async function check(uid = UID): Promise<{ stdout: string; stderr: string }> {
  const passwd = `${without('/etc/passwd', /^weir:/)}\nweir:x:${uid}:${uid}::/:/usr/sbin/nologin\n`;
  const group = `${without('/etc/group', /^(weir|keys):/)}\nweir:x:${uid}:\nkeys:x:${SHARED_GROUP}:\n`;
  writeFileSync(join(folder, 'passwd'), passwd);
  writeFileSync(join(folder, 'group'), group);
  const script = 'mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/group" /etc/group && exec "$@"';
  const words = ['--mount', 'sh', '-c', script, folder, ...weirCommand, 'config', 'check', join(folder, 'weir.yaml')];
  return promisify(execFile)('unshare', words);
}

function write(name: string, text: string, mode: number, gid = 0): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  chownSync(path, 0, gid);
  chmodSync(path, mode);
  return path;
}

// An installed Weir reads the users of another root file system than the test.
skipUnless(!isInstalled, 'the installed command has the users of another root file system').describe(
  'weir config check as root',
  () => {
    it('`weir config check` warns about each file that the user weir cannot read, with its owner, its mode and the command that corrects it', async () => {
      mkdirSync(join(folder, 'tls'), { mode: 0o700 });
      const certFile = write('tls/cert.pem', CERTIFICATE, 0o644);
      const keyFile = write('key.pem', KEY, 0o640, SHARED_GROUP);
      const policy = write('policy.yaml', 'name: a\n', 0o600);
      const config = write(
        'weir.yaml',
        `version: 1\napi: { tls: { cert: ${certFile}, key: ${keyFile} } }\npolicy: { file: ${policy} }\n`,
        0o600,
      );
      const { stdout, stderr } = await check();
      expect(stdout).toBe(`${config} is valid\n`);
      expect(stderr.trim().split('\n')).toEqual([
        `warning: the user weir cannot read ${config} (owner root:root, mode 0600): chgrp weir ${config} && chmod g+r ${config}`,
        `warning: api.tls.cert: the user weir cannot read ${certFile}, because it may not enter ${join(folder, 'tls')} (owner root:root, mode 0700): chgrp weir ${join(folder, 'tls')} && chmod g+x ${join(folder, 'tls')}`,
        `warning: api.tls.key: the user weir cannot read ${keyFile} (owner root:keys, mode 0640): usermod --append --groups keys weir; then restart weir.service`,
        `warning: policy.file: the user weir cannot read ${policy} (owner root:root, mode 0600): chgrp weir ${policy} && chmod g+r ${policy}`,
      ]);
    });

    it('`weir config check` warns about a file in a folder that weir.service hides from the node', async () => {
      write('weir.yaml', 'version: 1\npolicy: { file: /root/policy.yaml }\n', 0o640, UID);
      expect((await check()).stderr).toBe(
        'warning: policy.file: weir.service hides /root from the node: move /root/policy.yaml to /etc/weir\n',
      );
    });

    it('`weir config check` prints no warning if the user weir can read all files, or is the account of a person', async () => {
      const config = write('weir.yaml', 'version: 1\n', 0o640, UID);
      const valid = { stdout: `${config} is valid\n`, stderr: '' };
      expect(await check()).toEqual(valid);
      chmodSync(config, 0o600);
      expect(await check(1_001)).toEqual(valid);
    });
  },
);
