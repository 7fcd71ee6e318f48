import { z } from 'zod';
import { anyPrefix, flag, oneOf, text } from '#config/value.js';

/** The maximum number of pod networks. It is limited because each address is compared with all of them. */
const MAX_POD_NETWORKS = 64;
const INTEGRATION_NAME = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

/** The schema of the section `kubernetes` of the configuration file (D41). */
export const kubernetesSchema = z
  .strictObject({
    scope: oneOf(
      ['cluster', 'node'],
      'Whose pods are watched: those of all nodes (`cluster`), or those of this Kubernetes node alone (`node`). Use `node` in a DaemonSet, where each node decides the packets of its own pods.',
    ).prefault('cluster'),
    node_name: text('Name of this node in Kubernetes.').nullable().prefault(null).meta({
      description:
        'Name of this node in Kubernetes, for `scope: node`. Without a node of this name in the cluster, no selector of pods is resolved.',
      form: 'text or `null`',
      shown: 'the value of `node.id`',
    }),
    pod_cidrs: z
      .array(anyPrefix('A network.'))
      .max(MAX_POD_NETWORKS, `has more than ${MAX_POD_NETWORKS} networks`)
      .prefault([])
      .meta({
        description:
          'The networks of pods. An address in them gets no allow rule of a group with selectors, and each deny rule of such groups, until an object owns the address. Without an entry, they are the `podCIDRs` of the nodes. Set them if the network plugin does not use `podCIDRs`, or if the token may not read nodes, which only `scope: cluster` allows. A pod has only addresses in them, so a dual-stack cluster needs networks of both IP families. IPv6 networks need `dataplane.ipv6: enforce`.',
        form: `list of at most ${MAX_POD_NETWORKS} networks`,
      }),
    close_new_pods: flag(
      'Whether an address in a pod network without an owner is deny-only: it gets no allow rule by a selector, and every deny rule. This needs the pods of all namespaces. With `false`, a policy that names at most eight namespaces needs a Role in each of them only, and a new pod has the rules of an address outside of Kubernetes until its status arrives.',
    ).prefault(true),
    in_cluster: z
      .strictObject({
        name: z
          .string()
          .regex(
            INTEGRATION_NAME,
            'must be 1 to 63 lower-case letters, digits and hyphens, with no hyphen at either end',
          )
          .meta({
            description:
              'Name of this integration in policies. No other integration can have it: an integration that was stored under this name is not used.',
            form: 'name of an integration',
          }),
      })
      .nullable()
      .prefault(null)
      .meta({
        description:
          'An integration with the cluster in which the node itself runs as a pod. Address, CA and token come from the service account of the pod, and are read again for each connection. The API shows this integration, and cannot change it.',
      }),
  })
  .prefault({})
  .meta({ description: 'How the node watches Kubernetes: see `docs/kubernetes.md`.' });
