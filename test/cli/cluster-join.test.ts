import { chmodSync, chownSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { issuingNode } from '#test/cluster/issuing-node.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { run } from './cli-run.js';

const OWNER = 4711;
const TEXT = '# edge\nversion: 1\n';

function configuration(): string {
  const folder = temporaryFolder();
  chmodSync(folder, 0o755);
  const file = join(folder, 'weir.yaml');
  writeFileSync(file, TEXT);
  chmodSync(file, 0o640);
  chownSync(file, OWNER, OWNER);
  return file;
}

const joinWith = (token: string, config: string) =>
  run(['cluster', 'join', token, '--config', config, '--advertise', '10.0.1.4:7443']);
const files = (config: string): string[] => readdirSync(join(dirname(config), 'cluster')).sort();

describe('weir cluster join', () => {
  it('`weir cluster join` writes credentials that only the user of the node can read, and keeps owner, mode and comments of the configuration', async () => {
    const { token } = await issuingNode();
    const config = configuration();
    expect(await joinWith(token, config)).toMatchObject({ code: 0, err: '' });
    expect(files(config)).toEqual(['etcd-ca.pem', 'etcd.key', 'etcd.password', 'etcd.pem', 'seal.key']);
    const folder = join(dirname(config), 'cluster');
    const shown = (path: string) => [statSync(path).uid, statSync(path).gid, (statSync(path).mode & 0o777).toString(8)];
    for (const name of files(config)) expect(shown(join(folder, name))).toEqual([OWNER, OWNER, '600']);
    expect([shown(folder), shown(config)]).toEqual([
      [OWNER, OWNER, '700'],
      [OWNER, OWNER, '640'],
    ]);
    const text = readFileSync(config, 'utf8');
    expect([text.startsWith(TEXT), parse(text)]).toEqual([
      true,
      expect.objectContaining({ cluster: expect.objectContaining({ seal_key_file: join(folder, 'seal.key') }) }),
    ]);
  });

  it('`weir cluster join` can be repeated with a new token if a file could not be written after the first token was used', async () => {
    const config = configuration();
    const blocked = join(dirname(config), 'cluster', 'etcd.key');
    const first = await issuingNode(() => mkdirSync(blocked));
    const { code, err } = await joinWith(first.token, config);
    expect([code, err]).toEqual([
      1,
      expect.stringMatching(
        /^weir: the certificates and the configuration of the cluster cannot be written: .*; the join token is used up[\s\S]*print a new token with `weir cluster token`[\s\S]*run this command again/,
      ),
    ]);
    expect(readFileSync(config, 'utf8')).toBe(TEXT);

    rmSync(blocked, { recursive: true });
    const second = await issuingNode();
    expect((await joinWith(second.token, config)).code).toBe(0);
    expect(files(config)).toHaveLength(5);
  });

  it('`weir cluster join` does not use up the token if the user of the node cannot reach the files', async () => {
    const { token, redeemed } = await issuingNode();
    const config = configuration();
    chmodSync(dirname(config), 0o700);
    const { code, err } = await joinWith(token, config);
    expect([code, err]).toEqual([1, expect.stringContaining(`it may not enter ${dirname(config)}`)]);
    expect(redeemed()).toBe(0);
    chmodSync(dirname(config), 0o755);
    expect((await joinWith(token, config)).code).toBe(0);
  });

  it('`weir cluster join` exits with 1 and leaves the configuration unchanged if the response has no credentials', async () => {
    const { token } = await issuingNode(() => {}, '<html>');
    const config = configuration();
    expect(await joinWith(token, config)).toMatchObject({
      code: 1,
      err: expect.stringContaining('answered the join token without the credentials of a cluster'),
    });
    expect(readFileSync(config, 'utf8')).toBe(TEXT);
  });
});
