import { setTimeout as pause } from 'node:timers/promises';
import { z } from 'zod';
import { CliError } from '#cli/errors/command-error.js';
import type { KubeAnswer, KubeClient } from './kube-client.js';

export type Account = { readonly name: string; readonly namespace: string };
type KubeObject = Readonly<Record<string, unknown>> & {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: Readonly<Record<string, unknown>> & { readonly name: string; readonly namespace?: string };
};

const RBAC = 'rbac.authorization.k8s.io';
const TOKEN_TYPE = 'kubernetes.io/service-account-token';
const SECRET_WITHIN_MS = 10_000;
const SECRET_POLL_MS = 200;
const LABELS = { 'app.kubernetes.io/name': 'weir' };

const tokenSchema = z.object({ status: z.object({ token: z.string().min(1), expirationTimestamp: z.string() }) });
const secretSchema = z.object({ data: z.object({ token: z.string().min(1) }) });
const statusSchema = z.object({ message: z.string() });

/**
 * Returns the objects of a service account that may read pods, nodes and namespaces, and nothing else. With
 * `longLived`, one of them is a secret in which Kubernetes stores a token without expiry.
 */
export function accountObjects({ name, namespace }: Account, longLived: boolean): readonly KubeObject[] {
  const metadata = { name, labels: LABELS };
  const objects: readonly KubeObject[] = [
    { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } },
    {
      apiVersion: 'v1',
      kind: 'ServiceAccount',
      metadata: { ...metadata, namespace },
      automountServiceAccountToken: false,
    },
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'ClusterRole',
      metadata,
      rules: [{ apiGroups: [''], resources: ['pods', 'nodes', 'namespaces'], verbs: ['get', 'list', 'watch'] }],
    },
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'ClusterRoleBinding',
      metadata,
      roleRef: { apiGroup: RBAC, kind: 'ClusterRole', name },
      subjects: [{ kind: 'ServiceAccount', name, namespace }],
    },
  ];
  if (!longLived) return objects;
  const annotations = { 'kubernetes.io/service-account.name': name };
  const secret: KubeObject = {
    apiVersion: 'v1',
    kind: 'Secret',
    type: TOKEN_TYPE,
    metadata: { ...metadata, name: `${name}-token`, namespace, annotations },
  };
  return [...objects, secret];
}

/** Creates or updates the objects of an account, by server-side apply. */
export async function applyAccount(client: KubeClient, account: Account, longLived: boolean): Promise<void> {
  for (const object of accountObjects(account, longLived)) {
    const query = 'fieldManager=weir&force=true';
    const answer = await client.send('PATCH', `${pathOf(object)}?${query}`, object, 'application/apply-patch+yaml');
    if (answer.status >= 300) throw refused(`create ${object.kind} ${object.metadata.name}`, answer);
  }
}

/** Requests a token. The server may shorten its lifetime. */
export async function requestToken(
  client: KubeClient,
  { name, namespace }: Account,
  lifetimeMs: number,
): Promise<{ readonly token: string; readonly expiresAt: string }> {
  const answer = await client.send('POST', `/api/v1/namespaces/${namespace}/serviceaccounts/${name}/token`, {
    apiVersion: 'authentication.k8s.io/v1',
    kind: 'TokenRequest',
    spec: { expirationSeconds: Math.floor(lifetimeMs / 1_000) },
  });
  const issued = tokenSchema.safeParse(answer.body);
  if (answer.status >= 300 || !issued.success) throw refused(`request a token of the account ${name}`, answer);
  const { token, expirationTimestamp: expiresAt } = issued.data.status;
  return { token, expiresAt };
}

/** Waits until Kubernetes has stored the token in the secret of an account, and returns the token. */
export async function longLivedToken(client: KubeClient, { name, namespace }: Account): Promise<string> {
  const path = `/api/v1/namespaces/${namespace}/secrets/${name}-token`;
  for (const until = Date.now() + SECRET_WITHIN_MS; ; await pause(SECRET_POLL_MS)) {
    const answer = await client.send('GET', path);
    if (answer.status >= 300) throw refused(`read the secret ${name}-token`, answer);
    const secret = secretSchema.safeParse(answer.body);
    if (secret.success) return Buffer.from(secret.data.data.token, 'base64').toString();
    if (Date.now() > until)
      throw new CliError(`the secret ${name}-token has no token after ${SECRET_WITHIN_MS / 1_000} s`, {
        fix: 'check that kube-controller-manager of the cluster runs; it creates the token',
      });
  }
}

function pathOf({ apiVersion, kind, metadata: { name, namespace } }: KubeObject): string {
  const group = apiVersion === 'v1' ? '/api/v1' : `/apis/${apiVersion}`;
  const scope = namespace === undefined ? '' : `/namespaces/${namespace}`;
  return `${group}${scope}/${kind.toLowerCase()}s/${name}`;
}

function refused(act: string, { status, body }: KubeAnswer): CliError {
  const { data } = statusSchema.safeParse(body);
  const fix =
    status === 401 || status === 403
      ? 'give a kubeconfig of a cluster administrator, or let one apply the output of --print'
      : undefined;
  return new CliError(`${act}: the API server answered ${status}: ${data?.message ?? 'no message'}`, { fix });
}
