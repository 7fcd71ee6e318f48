import { dirname, resolve } from 'node:path';
import { z } from 'zod';
import { CliError } from '#cli/errors/command-error.js';
import { textOfFile } from '#cli/files/text-of-file.js';
import { parseYaml } from '#config/yaml-text.js';
import { MAX_BYTES } from '#files/bounded-file.js';

/** The server of a kubeconfig. `caPem`: the CA certificates for the certificate of the server. */
export type KubeServer = { readonly url: string; readonly caPem: string };

/** How the user of a kubeconfig is authenticated. `unsupported`: by a method that only kubectl supports. */
export type KubeUser =
  | { readonly by: 'token'; readonly token: string }
  | { readonly by: 'certificate'; readonly certPem: string; readonly keyPem: string }
  | { readonly by: 'unsupported'; readonly method: string };

export type Kubeconfig = { readonly context: string; readonly server: KubeServer; readonly user: KubeUser };

const clusterSchema = z.looseObject({
  server: z.string(),
  'certificate-authority': z.string().optional(),
  'certificate-authority-data': z.string().optional(),
  'insecure-skip-tls-verify': z.boolean().optional(),
  'tls-server-name': z.string().optional(),
  'proxy-url': z.string().optional(),
});
const userSchema = z
  .looseObject({
    token: z.string().optional(),
    tokenFile: z.string().optional(),
    'client-certificate': z.string().optional(),
    'client-certificate-data': z.string().optional(),
    'client-key': z.string().optional(),
    'client-key-data': z.string().optional(),
  })
  .nullish()
  .transform((user) => user ?? {});
const fileSchema = z.looseObject({
  'current-context': z.string().optional(),
  contexts: z
    .array(
      z.looseObject({
        name: z.string(),
        context: z.looseObject({ cluster: z.string(), user: z.string().default('') }),
      }),
    )
    .default([]),
  clusters: z.array(z.looseObject({ name: z.string(), cluster: clusterSchema })).default([]),
  users: z.array(z.looseObject({ name: z.string(), user: userSchema })).default([]),
});
type File = z.infer<typeof fileSchema>;
type Cluster = z.infer<typeof clusterSchema>;
type User = z.infer<typeof userSchema>;

/** Reads a context of a kubeconfig file; without `context`, the current one. */
export function readKubeconfig(file: string, context: string | undefined): Kubeconfig {
  const content = fileSchema.safeParse(parsed(file));
  if (!content.success) {
    const [issue] = content.error.issues;
    throw new CliError(`${file} is not a kubeconfig: ${issue?.path.join('.')}: ${issue?.message}`);
  }
  const { name, cluster, user } = contextOf(content.data, context, file);
  const folder = dirname(file);
  return { context: name, server: serverOf(cluster, folder, file), user: userOf(user, folder) };
}

function parsed(file: string): unknown {
  const text = textOfFile(file, MAX_BYTES.config);
  try {
    const document = parseYaml(text);
    const [error] = document.errors;
    if (error !== undefined) throw error;
    return document.toJS() as unknown;
  } catch (cause) {
    const [line] = cause instanceof Error ? cause.message.split('\n') : [String(cause)];
    throw new CliError(`${file} is not valid YAML: ${line}`, { cause });
  }
}

function contextOf({ contexts, clusters, users, ...content }: File, wanted: string | undefined, file: string) {
  const name = wanted ?? content['current-context'] ?? '';
  const known = contexts.map((entry) => entry.name);
  const fix = known.length === 0 ? undefined : `give --context with one of: ${known.join(', ')}`;
  if (name === '') throw new CliError(`${file} has no current context`, { fix });
  const context = contexts.find((entry) => entry.name === name)?.context;
  if (context === undefined) throw new CliError(`${file} has no context ${name}`, { fix });
  const cluster = clusters.find((entry) => entry.name === context.cluster)?.cluster;
  if (cluster === undefined)
    throw new CliError(`${file} has no cluster ${context.cluster}, which the context ${name} names`);
  return { name, cluster, user: users.find((entry) => entry.name === context.user)?.user ?? {} };
}

function serverOf(cluster: Cluster, folder: string, file: string): KubeServer {
  const { server: url } = cluster;
  if (!/^https:/i.test(url))
    throw new CliError(`${file}: ${url} is not an https:// URL; Weir sends no token without TLS`);
  const refused = (reason: string, fix: string) => new CliError(`${file}: ${reason}`, { fix });
  if (cluster['insecure-skip-tls-verify'] === true)
    throw refused(
      'the cluster has insecure-skip-tls-verify; Weir always verifies the API server',
      'give the cluster a certificate-authority in place of insecure-skip-tls-verify',
    );
  if (cluster['proxy-url'] !== undefined)
    throw refused(
      'the cluster has a proxy-url; the node connects to the API server without a proxy',
      'remove proxy-url if the node can reach the API server directly',
    );
  if (cluster['tls-server-name'] !== undefined)
    throw refused(
      'the cluster has a tls-server-name; the node verifies the name in the URL of the server',
      'give a server URL with a name of the certificate',
    );
  const caPem = dataOrFile(cluster['certificate-authority-data'], cluster['certificate-authority'], folder);
  if (caPem === undefined)
    throw refused(
      'the cluster has no certificate-authority; the node trusts only the CA of an integration',
      'add the CA that signs the certificate of the API server as certificate-authority',
    );
  return { url, caPem };
}

function userOf(user: User, folder: string): KubeUser {
  const token =
    user.token ??
    (user.tokenFile === undefined ? undefined : textOfFile(resolve(folder, user.tokenFile), MAX_BYTES.secret));
  if (token !== undefined) return { by: 'token', token: token.trim() };
  const certPem = dataOrFile(user['client-certificate-data'], user['client-certificate'], folder);
  const keyPem = dataOrFile(user['client-key-data'], user['client-key'], folder);
  if (certPem !== undefined && keyPem !== undefined) return { by: 'certificate', certPem, keyPem };
  const method = ['exec', 'auth-provider', 'username'].find((key) => key in user);
  return { by: 'unsupported', method: method ?? 'no token and no client certificate' };
}

/**
 * Returns the decoded base64 data of one member, or the text of the file whose path is in the other member.
 */
function dataOrFile(data: string | undefined, file: string | undefined, folder: string): string | undefined {
  if (data !== undefined) return Buffer.from(data, 'base64').toString();
  return file === undefined ? undefined : textOfFile(resolve(folder, file), MAX_BYTES.certificates);
}
