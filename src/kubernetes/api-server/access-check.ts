import type { Warning } from '#contracts/policy/policy-problem.js';
import type { ResourceName } from '#kubernetes/watch/objects.js';
import { pathOf } from '#kubernetes/watch/watch-scopes.js';
import { ApiFault, type FaultKind } from './api-fault.js';
import { listPageOf } from './api-objects.js';
import { ApiSession, type Credentials } from './api-session.js';

/**
 * The time limit in milliseconds for all requests of a check. The client that writes an integration (a
 * Kubernetes API server) waits for the check.
 */
const WITHIN_MS = 5_000;

/** For each resource, a sentence for the warning: which selectors need the list of this resource. */
const NEEDED_BY: Readonly<Record<ResourceName, string>> = {
  pods: 'A pod_selector without a namespace needs it; with a namespace, a Role in this namespace is enough',
  nodes: 'A node_selector needs it, and without kubernetes.pod_cidrs no deny rule by a selector matches a new pod',
  namespaces: 'A namespace_selector needs it',
};

/**
 * Sends the same list requests as the watches of an integration (a Kubernetes API server). Returns a warning
 * for each fault, and an empty list if the integration works. A failure of a request does not throw.
 */
export async function accessWarnings(
  url: string,
  credentials: Credentials,
  withinMs = WITHIN_MS,
): Promise<readonly Warning[]> {
  const deadlines = { headersMs: withinMs, bodyMs: withinMs, silenceMs: withinMs };
  const warnings: Warning[] = [];
  let session: ApiSession | undefined;
  let deadline: NodeJS.Timeout | undefined;
  try {
    const { signal } = new AbortController();
    const opened = await ApiSession.open({ url, credentials: async () => credentials }, deadlines, signal);
    session = opened;
    const late = new ApiFault('silent', `the server did not answer all requests in ${withinMs / 1_000} s`);
    deadline = setTimeout(() => opened.end(late), withinMs);
    for (const resource of ['pods', 'nodes', 'namespaces'] as const) {
      const path = `${pathOf({ resource, namespace: null, node: null })}?limit=1`;
      const fault = await faultOfList(opened, path);
      if (fault === null) continue;
      warnings.push(warningOf(fault, resource, `GET ${path}: ${fault.message}`));
      // Stop after a fault that also affects the other requests.
      if (fault.kind !== 'forbidden') break;
    }
  } catch (failure) {
    if (!(failure instanceof ApiFault)) throw failure;
    warnings.push(warningOf(failure, 'pods', failure.message));
  } finally {
    clearTimeout(deadline);
    session?.close();
  }
  return warnings;
}

async function faultOfList(session: ApiSession, path: string): Promise<ApiFault | null> {
  try {
    listPageOf(await session.get(path));
    return null;
  } catch (failure) {
    if (failure instanceof ApiFault) return failure;
    throw failure;
  }
}

function warningOf({ kind }: { readonly kind: FaultKind }, resource: ResourceName, came: string): Warning {
  switch (kind) {
    case 'untrusted':
      return {
        pointer: '/ca_cert_pem',
        code: 'server_untrusted',
        message: `The certificate of the API server is not trusted: ${came}. Give the certificate of the CA that signed it, and a URL with a name or address of the certificate.`,
      };
    case 'unauthorized':
      return {
        pointer: '/service_account_token',
        code: 'token_refused',
        message: `The API server refused the token: ${came}. Store the integration again with a valid token of this cluster.`,
      };
    case 'forbidden':
      return {
        pointer: '/service_account_token',
        code: 'access_forbidden',
        message: `The account may not list the ${resource} of the cluster: ${came}. ${NEEDED_BY[resource]}. Grant get, list and watch, as \`weir integration add --create-account\` does.`,
      };
    default:
      return {
        pointer: '/api_server_url',
        code: 'connection_failed',
        message: `This node got no list from the API server: ${came}. Check the URL, and the route and firewall from this node to the server. The node tries again by itself.`,
      };
  }
}
