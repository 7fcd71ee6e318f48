import { chmod, mkdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { dirname, join, resolve } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { parseDocument } from 'yaml';
import { z } from 'zod';
import { type JoinToken, readJoinToken } from '#cluster/peers/join-tokens.js';
import { PinnedAgent } from '#cluster/peers/pinned-agent.js';
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
  const document = parseDocument(await readFile(config, 'utf8').catch((cause: unknown) => unreadable(config, cause)));
  if (document.errors.length > 0 || (document.contents !== null && document.toJS() === null))
    throw new CliError(`${config} is not valid YAML`);
  if (document.has('cluster'))
    throw new CliError(`${config} has a section \`cluster\` already`, {
      fix: 'remove the section if the node must join another cluster',
    });
  const folder = join(dirname(resolve(config)), 'cluster');
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const access = await accessWith(read);
  const files = await storeSecrets(folder, access);
  document.set('cluster', {
    etcd: { endpoints: access.endpoints, ...files.etcd },
    peer: { listen, advertise },
    prefix: access.prefix,
    ...files.seal,
  });
  const { mode } = await stat(config);
  const next = `${config}.new`;
  await writeFile(next, document.toString(), { mode: mode & 0o777 });
  await rename(next, config);
  return folder;
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

/** Stores the secrets of the cluster with mode 0600. Returns the settings that name the files. */
async function storeSecrets(folder: string, { tls, user, seal_key: sealKey }: Access) {
  const write = async (name: string, content: string): Promise<string> => {
    const path = join(folder, name);
    await writeFile(path, content, { mode: 0o600 });
    await chmod(path, 0o600);
    return path;
  };
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
