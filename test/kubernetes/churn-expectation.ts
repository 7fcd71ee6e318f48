import type { KubeApi } from '#test/kubernetes/kube-api.js';

type Labels = Readonly<Record<string, string>>;
type Item = {
  readonly kind: 'Pod' | 'Node' | 'Namespace';
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Labels;
    readonly deletionTimestamp?: string;
  };
  readonly spec: {
    readonly hostNetwork?: boolean;
    readonly serviceAccountName?: string;
    readonly podCIDRs?: readonly string[];
  };
  readonly status: {
    readonly phase?: string;
    readonly podIPs?: readonly { readonly ip: string }[];
    readonly addresses?: readonly { readonly type: string; readonly address: string }[];
    readonly containerStatuses?: readonly { readonly state?: { readonly running?: object } }[];
  };
};

/** A pod or a node with an address, as kubectl prints it. `team`: the label of the namespace of the pod. */
type Owner = {
  readonly kind: Item['kind'];
  readonly name: string;
  readonly namespace: string;
  readonly labels: Labels;
  readonly team: string | undefined;
  readonly account: string;
};

/** A source group of the trial: its selector, and the same selector as a function. */
export type ChurnGroup = {
  readonly id: string;
  readonly source: object;
  readonly selects: (owner: Owner) => boolean;
};

const isPod = ({ kind }: Owner): boolean => kind === 'Pod';

export const QUARANTINE: ChurnGroup = {
  id: 'quarantine',
  source: { pod_selector: { match_labels: { quarantine: 'true' } } },
  selects: (owner) => isPod(owner) && owner.labels.quarantine === 'true',
};

export const CHURN_GROUPS: readonly ChurnGroup[] = [
  {
    id: 'web',
    source: { pod_selector: { match_labels: { app: 'web' } } },
    selects: (owner) => isPod(owner) && owner.labels.app === 'web',
  },
  {
    id: 'shop',
    source: { pod_selector: { namespace: 'shop', match_labels: { tier: 'front' } } },
    selects: (owner) => isPod(owner) && owner.namespace === 'shop' && owner.labels.tier === 'front',
  },
  {
    id: 'stores',
    source: {
      pod_selector: {
        match_expressions: [
          { key: 'app', operator: 'In', values: ['db', 'cache'] },
          { key: 'tier', operator: 'Exists' },
        ],
      },
    },
    selects: (owner) =>
      isPod(owner) && ['db', 'cache'].includes(owner.labels.app ?? '') && owner.labels.tier !== undefined,
  },
  {
    id: 'others',
    source: {
      pod_selector: {
        match_expressions: [
          { key: 'app', operator: 'NotIn', values: ['web', 'db'] },
          { key: 'canary', operator: 'DoesNotExist' },
        ],
      },
    },
    selects: (owner) =>
      isPod(owner) && !['web', 'db'].includes(owner.labels.app ?? '') && owner.labels.canary === undefined,
  },
  {
    id: 'team-a',
    source: { pod_selector: { namespace_selector: { match_labels: { team: 'a' } } } },
    selects: (owner) => isPod(owner) && owner.team === 'a',
  },
  {
    id: 'builders',
    source: { pod_selector: { service_account: 'builder', match_labels: { app: 'db' } } },
    selects: (owner) => isPod(owner) && owner.account === 'builder' && owner.labels.app === 'db',
  },
  {
    id: 'edge',
    source: { node_selector: { match_labels: { role: 'edge' } } },
    selects: ({ kind, labels }) => kind === 'Node' && labels.role === 'edge',
  },
];

/** A group that only the second policy of the trial has. */
export const CANARY: ChurnGroup = {
  id: 'canary',
  source: { pod_selector: { namespace: 'default', match_expressions: [{ key: 'canary', operator: 'Exists' }] } },
  selects: (owner) => isPod(owner) && owner.namespace === 'default' && owner.labels.canary !== undefined,
};

/** The state of a cluster as kubectl prints it: the owner of each address, and the networks of pods. */
export class PrintedCluster {
  readonly owners = new Map<string, Owner>();
  readonly #podNetworks: readonly string[];

  private constructor(items: readonly Item[]) {
    const ofKind = (kind: Item['kind']) => items.filter((item) => item.kind === kind);
    const teams = new Map(ofKind('Namespace').map(({ metadata: { name, labels } }) => [name, labels?.team]));
    this.#podNetworks = ofKind('Node').flatMap(({ spec }) => spec.podCIDRs ?? []);
    for (const { kind, metadata, spec, status } of [...ofKind('Node'), ...ofKind('Pod').filter(hasAddresses)]) {
      const { name, namespace = '', labels = {} } = metadata;
      const account = spec.serviceAccountName ?? 'default';
      const owner = { kind, name, namespace, labels, team: teams.get(namespace), account };
      for (const address of addressesOf(status)) {
        const other = this.owners.get(address);
        // kubectl does not print which object has claimed an address last, so each address has one owner.
        if (other !== undefined) throw new Error(`${address} belongs to ${other.name} and ${name}`);
        this.owners.set(address, owner);
      }
    }
  }

  static async read(kube: KubeApi): Promise<PrintedCluster> {
    const text = await kube.kubectl('get', 'pods,nodes,namespaces', '-A', '-o', 'json');
    return new PrintedCluster((JSON.parse(text) as { readonly items: readonly Item[] }).items);
  }

  membersOf({ selects }: ChurnGroup): readonly string[] {
    return [...this.owners].flatMap(([address, owner]) => (selects(owner) ? [address] : []));
  }

  /** Whether a group allows traffic of an address. `group`: null for the group of all pod networks. */
  allows(group: ChurnGroup | null, address: string): boolean {
    const owner = this.owners.get(address);
    if (owner === undefined) return group === null && !this.#isDenyOnly(address);
    return !QUARANTINE.selects(owner) && (group === null || group.selects(owner));
  }

  /** Returns whether an address without an owner is in the pod network of a node. Each of these is a /24. */
  #isDenyOnly(address: string): boolean {
    return this.#podNetworks.some((network) => address.startsWith(network.replace(/0\/24$/, '')));
  }
}

/** Returns false for a pod on the host network, a completed pod, and a deleted pod that no longer runs. */
function hasAddresses({ metadata, spec, status }: Item): boolean {
  if (spec.hostNetwork === true || status.phase === 'Succeeded' || status.phase === 'Failed') return false;
  const isRunning = status.containerStatuses?.some(({ state }) => state?.running !== undefined) ?? false;
  return metadata.deletionTimestamp === undefined || isRunning;
}

function addressesOf({ podIPs = [], addresses = [] }: Item['status']): readonly string[] {
  const internal = addresses.filter(({ type }) => type === 'InternalIP').map(({ address }) => address);
  return [...podIPs.map(({ ip }) => ip), ...internal];
}
