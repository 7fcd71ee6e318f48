import { join } from 'node:path';
import { type GatewayFiles, INTERCEPT_CA, NAME, OTHER, POLICY, WEB_CERTIFICATE, webMatch } from './gateway.js';
import { printCommands, printConsoleLink, type Repeated, startTraffic } from './kept.js';
import type { NodeProcess } from './node-process.js';
import { print, put } from './steps.js';
import { ADDRESSES, type Topology } from './topology.js';

/** A second address of the client, in the network of the source group `office`. */
const CAMERA = '10.77.1.40';
const { client: OFFICE, clientOther: LAB, nodeLan: NODE, server: SERVER } = ADDRESSES;

const toServer = (port: number) => ({ dst_ips: [SERVER], proto: 'tcp', dst_ports: [port] });
const [, lab] = POLICY.source_groups;

/** A policy with an allowed DNS name, a denied service, a rule in audit mode, and a rule without traffic. */
const KEPT_POLICY = {
  default_policy: 'deny',
  source_groups: [
    {
      id: 'cameras',
      mode: 'enforce',
      sources: { ips: [CAMERA] },
      rules: [
        { id: 'recorder', action: 'allow', match: toServer(80) },
        { id: 'no-updates', action: 'deny', mode: 'audit', match: toServer(81) },
      ],
    },
    {
      id: 'office',
      mode: 'enforce',
      sources: { cidrs: ['10.77.1.0/24'] },
      rules: [
        { id: 'web', action: 'allow', match: webMatch({ sni: [NAME] }) },
        { id: 'intranet', action: 'allow', match: toServer(80) },
        { id: 'no-telnet', action: 'deny', match: { proto: 'tcp', dst_ports: [23] } },
        { id: 'old-ftp', action: 'allow', match: toServer(21) },
      ],
    },
    lab,
  ],
};

/** Commands that make about five connections or DNS lookups a second, with every possible verdict. */
function traffic(folder: string): readonly Repeated[] {
  const web = join(folder, WEB_CERTIFICATE);
  const intercept = join(folder, INTERCEPT_CA);
  return [
    { everyMs: 1_000, words: ['connect', SERVER, '80', OFFICE] },
    { everyMs: 1_500, words: ['connect', SERVER, '80', CAMERA] },
    { everyMs: 800, words: ['connect', SERVER, '81', CAMERA] },
    { everyMs: 1_000, words: ['connect', SERVER, '23', OFFICE] },
    { everyMs: 3_000, words: ['datagram', SERVER, '123', OFFICE] },
    { everyMs: 5_000, words: ['lookup', NAME, NODE, OFFICE] },
    { everyMs: 10_000, words: ['lookup', OTHER, NODE, OFFICE] },
    { everyMs: 2_000, words: ['get', NAME, '/', SERVER, web, OFFICE] },
    { everyMs: 5_000, words: ['get', OTHER, '/', SERVER, web, OFFICE] },
    { everyMs: 3_000, words: ['get', NAME, '/public/news', SERVER, intercept, LAB] },
    { everyMs: 8_000, words: ['get', NAME, '/private/payroll', SERVER, intercept, LAB] },
  ];
}

/**
 * Leaves the gateway of the second part of the tour running with traffic, and prints commands to inspect it.
 */
export async function keepGateway(topology: Topology, node: NodeProcess, { folder }: GatewayFiles): Promise<void> {
  print('\nThe gateway stays up. It gets a policy of three source groups, and the traffic of three clients.');
  await topology.client.must('ip', 'address', 'add', `${CAMERA}/24`, 'dev', 'eth0');
  await put(node, KEPT_POLICY);
  await startTraffic(topology, traffic(folder));
  print('\nThe console shows it. Why does 10.77.1.2 not reach 10.77.2.2 tcp/23, and which rule does nothing use?');
  await printConsoleLink(node);
  printCommands(node, topology, [
    'status',
    'findings',
    `policy explain --src ${OFFICE} --dst ${SERVER} --proto tcp --dst-port 23`,
  ]);
  print('\nCtrl-C ends it, and removes everything that it has created.');
}
