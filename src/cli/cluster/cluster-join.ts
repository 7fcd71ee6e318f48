import { chmodSync, chownSync, rmSync, statSync } from 'node:fs';
import { readFile, realpath } from 'node:fs/promises';
import { request } from 'node:https';
import { dirname, join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { isMap } from 'yaml';
import type { z } from 'zod';
import { AccessSchema } from '#api/cluster/access.schema.js';
import { CliError } from '#cli/errors/command-error.js';
import { readingProblem } from '#cli/files/file-warnings.js';
import { nodeUser } from '#cli/files/node-user.js';
import type { SystemUser } from '#cli/files/system-user.js';
import { type JoinToken, readJoinToken } from '#cluster/peers/join-tokens.js';
import { PinnedAgent } from '#cluster/peers/pinned-agent.js';
import { parseYaml } from '#config/yaml-text.js';
import { makeFolders } from '#files/make-folders.js';
import { replaceDurably } from '#files/replaced-file.js';
import { reasonOf } from '#files/system-failure.js';

const TIMEOUT_MS = 10_000;
/**
 * The number of bytes of a test write, which detects a full disk before the token is used. The files of a
 * cluster are usually smaller.
 */
const PROBE_BYTES = 128 * 1024;
type Access = z.infer<typeof AccessSchema>;

export type Join = {
  readonly token: string;
  readonly config: string;
  readonly listen: string;
  readonly advertise: string;
};

/**
 * Joins the node of this machine to a cluster. Receives the credentials of etcd with a join token, and stores
 * them in the folder `cluster` beside the configuration file, for the user as whom the node runs. Adds the
 * section `cluster` to the file. Returns the folder. If it throws a `CliError`, the configuration file is
 * unchanged, so that the command can be repeated.
 */
export async function joinCluster({ token, config, listen, advertise }: Join): Promise<string> {
  const read = readJoinToken(token.trim());
  if (read === null)
    throw new CliError('this is not a join token', {
      exitCode: 2,
      fix: '`weir cluster token` on a node of the cluster prints one',
    });
  const file = await realpath(config).catch((cause: unknown) => unreadable(config, cause));
  const document = parseYaml(await readFile(file, 'utf8').catch((cause: unknown) => unreadable(config, cause)));
  if (document.errors.length > 0 || (document.contents !== null && !isMap(document.contents)))
    throw new CliError(`${config} is not a configuration in YAML`);
  if (document.has('cluster'))
    throw new CliError(`${config} has a section \`cluster\` already`, {
      fix: 'remove the section if the node must join another cluster',
    });
  const folder = join(dirname(file), 'cluster');
  const user = nodeUser(config);
  const write: Write = (name, content) => {
    const path = join(folder, name);
    replaceDurably(path, content, { mode: 0o600, uid: user.uid, gid: user.gids[0] ?? user.uid });
    return path;
  };
  // Check first that the files can be written and that the node can read them, because the token can be used
  // only once.
  tryToWrite(file, document.toString(), folder, user, write);
  const access = await accessWith(read);
  try {
    const files = storeSecrets(write, access);
    document.set('cluster', {
      etcd: { endpoints: access.endpoints, ...files.etcd },
      peer: { listen, advertise },
      prefix: access.prefix,
      ...files.seal,
    });
    rewrite(file, document.toString());
  } catch (cause) {
    throw new CliError(
      `the certificates and the configuration of the cluster cannot be written: ${reasonOf(cause)}; the join token is used up`,
      {
        cause,
        fix: `remove the cause, print a new token with \`weir cluster token\` on a node of the cluster, and run this command again with it`,
      },
    );
  }
  return folder;
}

/** Writes a secret to a file that the node can read. Returns the path of the file. */
type Write = (name: string, content: string) => string;

function tryToWrite(file: string, text: string, folder: string, user: SystemUser, write: Write): void {
  let probe: string;
  try {
    makeFolders(folder, 0o700);
    chmodSync(folder, 0o700);
    chownSync(folder, user.uid, user.gids[0] ?? user.uid);
    probe = write('probe', ' '.repeat(PROBE_BYTES));
    rewrite(file, text);
  } catch (cause) {
    const isForbidden = (cause as NodeJS.ErrnoException).code === 'EPERM' && process.getuid?.() !== 0;
    throw new CliError(
      `the certificates and the configuration of the cluster cannot be written for the user ${user.name}: ${reasonOf(cause)}`,
      {
        cause,
        fix: isForbidden ? 'run the command with sudo' : undefined,
      },
    );
  }
  const problem = readingProblem(file, user) ?? readingProblem(probe, user);
  rmSync(probe);
  if (problem !== null)
    throw new CliError(`${problem.message}; the node runs as the user ${user.name}`, { fix: problem.fix });
}

/** Replaces the configuration file, and keeps its owner, group and mode. */
function rewrite(file: string, text: string): void {
  const { uid, gid, mode } = statSync(file);
  replaceDurably(file, text, { mode: mode & 0o777, uid, gid });
}

function unreadable(config: string, cause: unknown): never {
  throw new CliError(`${config} cannot be read: ${reasonOf(cause)}`, { cause });
}

/** Sends a join token to the node that issued it, and returns the credentials of the cluster. */
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
  const access = answer.status === 200 ? AccessSchema.safeParse(jsonOf(answer.body)) : null;
  if (access?.success === false)
    throw new CliError(`the node at ${address} answered the join token without the credentials of a cluster`, {
      fix: 'check the versions of both nodes, and join again with a new token of `weir cluster token`',
    });
  if (access === null)
    throw new CliError(`the node at ${address} refused the join token with the status ${answer.status}`);
  return access.data;
}

function jsonOf(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return null;
  }
}

/** Stores the secrets of the cluster in files. Returns the settings with the paths of these files. */
function storeSecrets(write: Write, { tls, user, seal_key: sealKey }: Access) {
  return {
    etcd: {
      ...(tls === null
        ? {}
        : {
            tls: {
              ca: write('etcd-ca.pem', tls.ca),
              cert: write('etcd.pem', tls.cert),
              key: write('etcd.key', tls.key),
            },
          }),
      ...(user === null ? {} : { user: user.name, password_file: write('etcd.password', `${user.password}\n`) }),
    },
    seal: sealKey === null ? {} : { seal_key_file: write('seal.key', sealKey) },
  };
}
