import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { type NodeProcess, startNode } from '#cli/tour/node-process.js';
import { ADDRESSES, createTopology, type Topology, temporaryFolder } from '#cli/tour/topology.js';
import { run } from '#test/cli/cli-run.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { HAS_KUBE_API, KubeApi } from '#test/kubernetes/kube-api.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import {
  CASES,
  CASES_OF_KUBERNETES,
  CASES_WITH_ECH_KEYS,
  CASES_WITHOUT_TRANSPARENT_DNS,
  type Case,
  OTHER_BLOCKS,
  type Row,
} from './client-cases.js';
import {
  BROWSERS,
  type BrowserName,
  GOT,
  PROGRAMS,
  type ProgramName,
  type Result,
  resultOfVisit,
  visitAll,
} from './client-programs.js';
import { resolverWords, startInternet } from './internet.js';
import { placeOf } from './places.js';
import { readRecipes } from './recipes.js';
import { Workstation } from './workstation.js';

/** The address of the DNS proxy in docs/names.md, which is the gateway of the workstation. */
const GATEWAY = '10.1.0.1';
const recipes = readRecipes();
const textOf = (id: string): string => recipes.get(id)?.text ?? '';

const targetsOf = (cases: readonly Case[]): readonly string[] =>
  cases.flatMap(({ rows }) => rows.flatMap(({ gets, not = [] }) => [...gets, ...not]));
const unique = (texts: readonly string[]): string[] => [...new Set(texts)];

type Finding = Readonly<Record<'src_ip' | 'dst_ip' | 'hostname' | 'sni' | 'effective_action', string | null>> & {
  readonly dst_port: number | null;
  readonly http: { readonly host: string | null } | null;
};

/** Whether a finding is about a connection or lookup of the target. */
function isAbout({ dst_ip, dst_port, hostname, sni, http }: Finding, target: string): boolean {
  const { address, port, name } = placeOf(target);
  const names = [hostname, sni, http?.host].map((text) => text?.replace(/\.$/, ''));
  return (name !== null && names.includes(name)) || (dst_ip === address && (port === null || dst_port === port));
}

const weir = async (node: NodeProcess, ...words: string[]): Promise<string> => {
  const { code, out, err } = await run([...words, '--server', node.url], { WEIR_TOKEN: await node.token() });
  if (code !== 0) throw new Error(`weir ${words.join(' ')}: ${out}${err}`);
  return out;
};

/** Returns the present time by the clock of the node. */
const timeOf = async (node: NodeProcess): Promise<string> =>
  ((await node.request('GET', '/ready')).body as { time: string }).time;

/** Waits until the findings from a source since a time have each of `expected`, an action and a target. */
async function expectFindings(node: NodeProcess, from: string, since: string, expected: readonly string[]) {
  const seen = async (): Promise<string[]> => {
    const query = `src=${from}&since=${encodeURIComponent(since)}&limit=1000`;
    const { items } = (await node.request('GET', `/api/v1/audit/findings?${query}`)).body as { items: Finding[] };
    return expected.filter((text) => {
      const [action = '', ...target] = text.split(' ');
      return items.some((item) => item.effective_action === action && isAbout(item, target.join(' ')));
    });
  };
  await expect.poll(seen, { timeout: 15_000, interval: 200 }).toEqual(expected);
}

/** A node, the servers behind it, and a workstation that has the client addresses of the cases. */
type Office = {
  readonly topology: Topology;
  readonly node: NodeProcess;
  readonly station: Workstation;
  readonly folder: string;
  remove(): Promise<void>;
};

async function openOffice(
  tag: string,
  cases: readonly Case[],
  { resolver, sections }: { readonly resolver: string; readonly sections: Readonly<Record<string, unknown>> },
): Promise<Office> {
  const folder = await temporaryFolder(tag);
  const topology = await createTopology(tag);
  const { client, node: gateway, server } = topology;
  let node: NodeProcess | undefined;
  const remove = async (): Promise<void> => {
    await node?.remove();
    await topology.remove();
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await gateway.must('ip', 'addr', 'add', `${GATEWAY}/32`, 'dev', 'lan0');
    await gateway.must('ip', 'route', 'add', 'default', 'via', ADDRESSES.server);
    for (const source of unique(cases.flatMap(({ rows }) => rows.map(({ from }) => from)))) {
      await client.must('ip', 'addr', 'add', `${source}/32`, 'dev', 'eth0');
      await gateway.must('ip', 'route', 'add', `${source}/32`, 'dev', 'lan0');
    }
    const { rootPem } = await startInternet(server, folder, unique(targetsOf(cases)).map(placeOf));
    node = await startNode(topology, {
      dataplane: { pickup: '0s' },
      sections: { ...sections, service_plane: { upstream_ca: join(folder, 'root.pem') } },
    });
    await node.ready({ except: ['policy_ready'] });
    await weir(node, 'ca', 'generate');
    const anchors = { root: rootPem, intercept: await weir(node, 'ca', 'cert') };
    const station = new Workstation(client, join(folder, 'station'), anchors, resolver);
    return { topology, node, station, folder, remove };
  } catch (failure) {
    await remove();
    throw failure;
  }
}

const isBrowser = (name: ProgramName | BrowserName): name is BrowserName => name in BROWSERS;

/** Returns the result of a client for each target. A browser is started once, with a new profile. */
async function resultsOf(
  station: Workstation,
  name: ProgramName | BrowserName,
  targets: readonly string[],
): Promise<ReadonlyMap<string, Result>> {
  const results = new Map<string, Result>();
  if (isBrowser(name)) {
    for (const [url, visit] of await visitAll(name, station, targets)) results.set(url, resultOfVisit(visit));
  } else {
    for (const target of targets) results.set(target, await PROGRAMS[name](station, target));
  }
  return results;
}

/** Defines the tests of each case. `opened` returns the node and the workstation on which the tests run. */
function tryCases(cases: readonly Case[], opened: () => Office): void {
  for (const one of cases) {
    const title = one.with === undefined ? one.recipe : `${one.recipe} with ${one.with}`;
    describe(title, () => {
      beforeAll(async () => {
        const { node, folder } = opened();
        const file = join(folder, 'policy.yaml');
        writeFileSync(file, policyTextOf(one));
        await weir(node, 'policy', 'apply', '-f', file, '--name', title, '--wait');
      });
      for (const row of one.rows) tryRow(row, opened);
    });
  }
}

function tryRow(row: Row, opened: () => Office): void {
  const { from, by, gets, not = [], findings = [], over = {}, explain = [] } = row;
  const listed = (targets: readonly string[]): string => (targets.length === 0 ? 'nothing' : targets.join(', '));
  describe(`from ${from}`, () => {
    let began: string;
    beforeAll(async () => {
      const { topology, node } = opened();
      began = await timeOf(node);
      for (const to of [`${GATEWAY}/32`, 'default']) {
        const way = to === 'default' ? ['via', GATEWAY] : ['dev', 'eth0'];
        await topology.client.must('ip', 'route', 'replace', to, ...way, 'src', from);
      }
    });

    const title = `%s gets ${listed(gets)}${not.length === 0 ? '' : `, and is denied ${not.join(', ')}, with a finding for each`}`;
    test.each([...by])(title, async (name) => {
      const { node, station } = opened();
      const since = await timeOf(node);
      const results = await resultsOf(station, name, [...gets, ...not]);
      for (const target of gets) {
        const protocol = isBrowser(name) ? over[target]?.[name] : undefined;
        const expected = protocol === undefined ? GOT : `${GOT} over ${protocol}`;
        expect.soft(`${target}: ${results.get(target)}`).toContain(`${target}: ${expected}`);
      }
      for (const target of not) expect.soft(`${target}: ${results.get(target)}`).not.toContain(GOT);
      await expectFindings(
        node,
        from,
        since,
        not.map((target) => `deny ${target}`),
      );
    });

    if (findings.length > 0)
      test(`the test requests of this client also cause the findings ${findings.join(', ')}`, () =>
        expectFindings(opened().node, from, began, findings));

    const urls = [...gets, ...not].filter((target) => target.startsWith('http'));
    const explains = async (): Promise<void> => {
      for (const url of urls) {
        const { address, port, name } = placeOf(url);
        const { protocol, pathname } = new URL(url);
        const named = name === null ? [] : ['--hostname', name, ...(protocol === 'https:' ? ['--sni', name] : [])];
        const method = by.includes('curl -X POST') ? 'POST' : 'GET';
        const asked = name === null ? [] : ['--method', method, '--path', pathname];
        const packet = ['--src', from, '--dst', String(address), '--dst-port', String(port)];
        const words = [...packet, ...named, ...asked, ...explain];
        const out = await weir(opened().node, 'policy', 'explain', ...words, '--output', 'json');
        const { effective_action: action } = JSON.parse(out) as { effective_action: string };
        expect.soft(`${url}: ${action}`).toBe(`${url}: ${gets.includes(url) ? 'allow' : 'deny'}`);
      }
    };
    if (urls.length > 0)
      test(
        '`weir policy explain` returns allow for each request that the clients got, and deny for each other request',
        explains,
      );
  });
}

/** Returns the policy of a case: the recipe, the result of `policyOf`, or the groups of two recipes. */
function policyTextOf({ recipe, with: second, policyOf }: Case): string {
  if (policyOf !== undefined) return policyOf(textOf(recipe));
  if (second === undefined) return textOf(recipe);
  const [first, other] = [recipe, second].map((id) => parse(textOf(id)) as { source_groups: { id: string }[] });
  const groups = [
    ...(first?.source_groups ?? []),
    ...(other?.source_groups ?? []).map((group) => ({ ...group, id: `${group.id}-2` })),
  ];
  return stringify({ ...first, source_groups: groups });
}

test('each recipe and policy block of the documents is used by a test case or listed in `OTHER_BLOCKS`, and each used block exists', () => {
  const cases = [CASES, CASES_WITHOUT_TRANSPARENT_DNS, CASES_WITH_ECH_KEYS, CASES_OF_KUBERNETES].flat();
  const used = cases.flatMap(({ recipe, with: second }) => (second === undefined ? [recipe] : [recipe, second]));
  expect(unique([...used, ...Object.keys(OTHER_BLOCKS)]).toSorted()).toEqual([...recipes.keys()].toSorted());
});

const dnsOfNames = (parse(textOf('docs/names.md 1')) as { dns: Readonly<Record<string, unknown>> }).dns;

describe('clients with the DNS proxy of docs/names.md', () => {
  let office: Office;
  beforeAll(async () => {
    office = await openOffice('clients', CASES, { resolver: GATEWAY, sections: { dns: dnsOfNames } });
  });
  afterAll(() => office?.remove());
  tryCases(CASES, () => office);
});

describe('clients with a DNS proxy that is not transparent', () => {
  const dns = { ...dnsOfNames, transparent: false };
  let office: Office;
  beforeAll(async () => {
    office = await openOffice('resolver', CASES_WITHOUT_TRANSPARENT_DNS, { resolver: GATEWAY, sections: { dns } });
  });
  afterAll(() => office?.remove());
  tryCases(CASES_WITHOUT_TRANSPARENT_DNS, () => office);
});

describe('clients with a resolver that keeps the keys for Encrypted Client Hello', () => {
  let office: Office;
  beforeAll(async () => {
    const resolver = '127.0.0.53';
    office = await openOffice('keys', CASES_WITH_ECH_KEYS, { resolver, sections: {} });
    const { client } = office.topology;
    await client.must('ip', 'link', 'set', 'lo', 'up');
    client.start('dnsmasq', resolverWords([resolver]));
  });
  afterAll(() => office?.remove());
  tryCases(CASES_WITH_ECH_KEYS, () => office);
});

skipUnless(HAS_KUBE_API, LACKS.kubeApi).describe('clients with an integration of Kubernetes', () => {
  let office: Office;
  let kube: KubeApi;
  beforeAll(async () => {
    office = await openOffice('kube', CASES_OF_KUBERNETES, { resolver: GATEWAY, sections: { dns: dnsOfNames } });
    const { node, topology } = office;
    const leave = enterNamespace(topology.node.name);
    let token: string;
    try {
      kube = await KubeApi.start();
      token = await kube.createAccount('weir', ['pods', 'nodes', 'namespaces']);
      await makeObjects(kube);
    } finally {
      leave();
    }
    const integration = {
      name: 'prod',
      kind: 'kubernetes',
      api_server_url: kube.url,
      ca_cert_pem: kube.certificate.ca,
    };
    const { status, text } = await node.request('POST', '/api/v1/integrations', {
      ...integration,
      service_account_token: token,
    });
    expect([status, text]).toEqual([201, text]);
  });
  afterAll(async () => {
    await kube?.remove();
    await office?.remove();
  });
  tryCases(CASES_OF_KUBERNETES, () => office);
});

/** Creates the Kubernetes objects that the example policies select, and others that they do not select. */
async function makeObjects(kube: KubeApi): Promise<void> {
  await kube.createNamespace('shop');
  await kube.createNamespace('etl', { team: 'data' });
  const node = async (
    name: string,
    address: string,
    labels: Record<string, string>,
    podCIDR: string,
  ): Promise<void> => {
    await kube.must('POST', '/api/v1/nodes', { metadata: { name, labels }, spec: { podCIDRs: [podCIDR], podCIDR } });
    const addresses = [{ type: 'InternalIP', address }];
    await kube.must('PATCH', `/api/v1/nodes/${name}/status`, { status: { addresses } });
  };
  await node('master', '10.5.0.1', { 'node-role.kubernetes.io/control-plane': '' }, '10.244.6.0/24');
  await node('worker', '10.5.0.3', { pool: 'batch' }, '10.244.7.0/24');
  const pod = async (
    name: string,
    namespace: string,
    address: string,
    labels: Record<string, string>,
    account: string,
  ) => {
    const spec = { nodeName: 'worker', containers: [{ name: 'c', image: 'none' }], serviceAccountName: account };
    await kube.must('POST', `/api/v1/namespaces/${namespace}/pods`, { metadata: { name, labels }, spec });
    await kube.setStatus(name, { phase: 'Running', podIP: address, podIPs: [{ ip: address }] }, namespace);
  };
  await pod('web', 'shop', '10.244.0.1', { app: 'web' }, 'default');
  await pod('quarantined', 'shop', '10.244.0.2', { app: 'web', 'security.example.com/quarantine': 'true' }, 'default');
  await pod('loader', 'etl', '10.244.0.4', {}, 'loader');
  await pod('test-loader', 'etl', '10.244.0.6', { tier: 'test' }, 'loader');
}
