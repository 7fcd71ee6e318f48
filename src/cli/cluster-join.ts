import { chmod, chown, mkdir, readFile, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { dirname, join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { isMap } from 'yaml';
import { z } from 'zod';
import { type JoinToken, readJoinToken } from '#cluster/peers/join-tokens.js';
import { PinnedAgent } from '#cluster/peers/pinned-agent.js';
import { parseYaml } from '#config/yaml-text.js';
import { reasonOf } from '#files/system-failure.js';
import { CliError } from './command-error.js';

const TIMEOUT_MS = 10_000;
const text = z.string();
const accessSchema = z.object({
  prefix: text,
  endpoints: z.array(text),
  tls: z.object({ ca: text, cert: text, key: text }).nullable(),
  user: z.object({ name: text, password: text }).nullable(),
  seal_key: text.nullable(),
});
type Access = z.infer<typeof accessSchema>;

export type Join = {
  readonly token: string;
  /** The configuration file of the joining node. */
  readonly config: string;
  readonly listen: string;
  readonly advertise: string;
};

/**
 * Makes a node of this machine a node of a cluster. Receives the credentials of etcd with a join token, and
 * stores them in the folder `cluster` beside the configuration file. Adds the section `cluster` to the file.
 * Returns the folder. Throws a `CliError`, and then has not changed the configuration file.
 */
export async function joinCluster({ token, config, listen, advertise }: Join): Promise<string> {
  const read = readJoinToken(token.trim());
  if (read === null)
    throw new CliError('this is not a join token', { fix: '`weir cluster token` on a node of the cluster prints one' });
  const file = await realpath(config).catch((cause: unknown) => unreadable(config, cause));
  const owner = await stat(file);
  const document = parseYaml(await readFile(file, 'utf8').catch((cause: unknown) => unreadable(config, cause)));
  if (document.errors.length > 0 || (document.contents !== null && !isMap(document.contents)))
    throw new CliError(`${config} is not a configuration in YAML`);
  if (document.has('cluster'))
    throw new CliError(`${config} has a section \`cluster\` already`, {
      fix: 'remove the section if the node must join another cluster',
    });
  const folder = join(dirname(file), 'cluster');
  // A token can be used once: first make sure that the files can be written.
  const write = writerFor(owner);
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await chown(folder, owner.uid, owner.gid);
    await rm(await write(join(folder, 'probe'), '', 0o600));
    await write(file, document.toString(), owner.mode & 0o777);
  } catch (cause) {
    throw new CliError(`the files of the cluster cannot be written: ${reasonOf(cause)}`, { cause });
  }
  const access = await accessWith(read);
  const files = await storeSecrets((name, content) => write(join(folder, name), content, 0o600), access);
  document.set('cluster', {
    etcd: { endpoints: access.endpoints, ...files.etcd },
    peer: { listen, advertise },
    prefix: access.prefix,
    ...files.seal,
  });
  await write(file, document.toString(), owner.mode & 0o777);
  return folder;
}

type Write = (path: string, content: string, mode: number) => Promise<string>;

/** Returns a function that replaces a file as a whole. The file belongs to the owner of the configuration. */
function writerFor({ uid, gid }: { readonly uid: number; readonly gid: number }): Write {
  return async (path, content, mode) => {
    const next = `${path}.new`;
    await rm(next, { force: true });
    await writeFile(next, content, { mode, flag: 'wx' });
    await chmod(next, mode);
    await chown(next, uid, gid);
    await rename(next, path);
    return path;
  };
}

function unreadable(config: string, cause: unknown): never {
  throw new CliError(`${config} cannot be read: ${reasonOf(cause)}`, { cause });
}

/** Redeems a join token at the node that issued it. */
async function accessWith({ address, fingerprint, secret }: JoinToken): Promise<Access> {
  const { hostname, port } = new URL(`https://${address}`);
  const answer = await new Promise<{ status: number; body: string }>((done, reject) => {
    const asking = request(
      {
        agent: new PinnedAgent([fingerprint], null),
        host: hostname.replace(/^\[|\]$/g, ''),
        port: Number(port || 443),
        method: 'POST',
        path: '/api/v1/cluster/join',
        headers: { 'content-type': 'application/json', connection: 'close' },
        signal: AbortSignal.timeout(TIMEOUT_MS),
      },
      (response) => {
        textOf(response).then((body) => done({ status: response.statusCode ?? 0, body }), reject);
      },
    );
    asking.once('error', reject);
    asking.end(JSON.stringify({ secret }));
  }).catch((cause: unknown) => {
    throw new CliError(`the node at ${address} cannot be reached: ${reasonOf(cause)}`, {
      cause,
      fix: 'check that the node runs and that this machine reaches its peer listener; a restart of the node ends its join tokens',
    });
  });
  if (answer.status === 401)
    throw new CliError('the join token has expired, or was used before', {
      fix: '`weir cluster token` prints a new one',
    });
  const access = answer.status === 200 ? accessSchema.safeParse(JSON.parse(answer.body)) : null;
  if (access?.success !== true)
    throw new CliError(`the node at ${address} refused the join token with the status ${answer.status}`);
  return access.data;
}

/** Stores the secrets of the cluster. Returns the settings that name the files. */
async function storeSecrets(
  write: (name: string, content: string) => Promise<string>,
  { tls, user, seal_key: sealKey }: Access,
) {
  return {
    etcd: {
      ...(tls === null
        ? {}
        : {
            tls: {
              ca: await write('etcd-ca.pem', tls.ca),
              cert: await write('etcd.pem', tls.cert),
              key: await write('etcd.key', tls.key),
            },
          }),
      ...(user === null ? {} : { user: user.name, password_file: await write('etcd.password', `${user.password}\n`) }),
    },
    seal: sealKey === null ? {} : { seal_key_file: await write('seal.key', sealKey) },
  };
}
