import { chmodSync, existsSync, realpathSync, statSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { dirname, join } from 'node:path';
import { type Document, isMap, isScalar, isSeq } from 'yaml';
import { formatPrefix, parseCidr } from '#addresses/ip-address.js';
import { parseYaml } from '#config/yaml-text.js';
import { makeFolders } from '#files/make-folders.js';
import { replaceDurably } from '#files/replaced-file.js';
import { built } from '#threads/built-file.js';

export type Mode = 'audit' | 'enforce';
export type InitSettings = {
  readonly interfaces: readonly string[];
  readonly mode: Mode;
  /** Whether this machine forwards IPv6 from one of the interfaces, so that the policy also decides IPv6. */
  readonly forwardsIpv6: boolean;
  /** Whether existing files keep the mode of the policy, and the keys that depend on this mode. */
  readonly keepsMode: boolean;
  /** The path of the configuration file. The policy file is in the same folder. */
  readonly config: string;
  /** If omitted, an existing file keeps its data folder, and a new file gets the default data folder. */
  readonly dataDir?: string;
};

/**
 * The folder of the documents in a clone and in the npm package. In the Debian package, it is another folder.
 */
const PACKAGE_DOCS = built('../docs');
const DOCS = existsSync(PACKAGE_DOCS) ? PACKAGE_DOCS : '/usr/share/doc/weir/docs';
const DEFAULT_DATA_DIR = '/var/lib/weir';
const POLICY_NAME = 'gateway';

/**
 * The settings that depend on the mode. In a trial (`audit`), all traffic passes. With `enforce`, traffic
 * that no rule allows is denied. The key `ipv6` here is for a machine that does not forward IPv6 (see
 * `settingsFor`).
 */
const SETTINGS = {
  audit: { fallback: 'allow', ipv6: 'pass', non_ipv4: 'pass', reverse_path: 'off' },
  enforce: { fallback: 'deny', ipv6: 'drop', non_ipv4: 'drop', reverse_path: 'strict' },
} as const;

function settingsFor({ mode, forwardsIpv6 }: InitSettings) {
  return { ...SETTINGS[mode], ...(forwardsIpv6 && { ipv6: 'enforce' }) };
}

export const policyPath = ({ config }: Pick<InitSettings, 'config'>): string => join(dirname(config), 'policy.yaml');

/** Returns the text of a new configuration file. */
export function configText(settings: InitSettings): string {
  const { interfaces, dataDir = DEFAULT_DATA_DIR } = settings;
  const { fallback, ipv6, non_ipv4, reverse_path } = settingsFor(settings);
  return `# Written by \`weir init\`. \`weir config check\` checks the file.
# ${DOCS}/configuration.md explains every key.
version: 1

node:
  data_dir: ${JSON.stringify(dataDir)}

dataplane:
  # Packets that arrive by these interfaces are policed. Name both sides of a gateway.
  interfaces: ${JSON.stringify(interfaces)}
  # Forwarded IPv6: \`enforce\` if the policy decides it. Else, and for other EtherTypes: \`pass\` for a trial, \`drop\` for
  # enforcement.
  ipv6: ${ipv6}
  non_ipv4: ${non_ipv4}
  # Packets whose source has no route back: \`off\` for a trial, \`strict\` for enforcement.
  reverse_path: ${reverse_path}

policy:
  # Decides at boot and while no policy is active: \`allow\` for a trial, \`deny\` for enforcement.
  fallback: ${fallback}
`;
}

/**
 * Returns the text of a valid configuration file with the keys that `configText` writes. If the file keeps
 * its mode, the keys that depend on the mode are unchanged. Other keys and all comments are unchanged.
 * `present`: the interfaces in the file.
 */
export function updatedConfig(existing: string, present: readonly string[], settings: InitSettings): string {
  const document = parseYaml(existing);
  const { fallback, ipv6, non_ipv4, reverse_path } = settingsFor(settings);
  document.setIn(['version'], 1);
  if (settings.dataDir !== undefined) document.setIn(['node', 'data_dir'], settings.dataDir);
  setInterfaces(document, present, settings.interfaces);
  if (!settings.keepsMode) {
    document.setIn(['dataplane', 'ipv6'], ipv6);
    document.setIn(['dataplane', 'non_ipv4'], non_ipv4);
    document.setIn(['dataplane', 'reverse_path'], reverse_path);
    document.setIn(['policy', 'fallback'], fallback);
  }
  return document.toString({ lineWidth: 0 });
}

/**
 * Sets the list of interfaces in a YAML document. Items that stay in the list keep their order and comments.
 */
function setInterfaces(document: Document, present: readonly string[], wanted: readonly string[]): void {
  const path = ['dataplane', 'interfaces'];
  const list = document.getIn(path);
  if (!isSeq(list) || list.items.length !== present.length) {
    document.setIn(path, document.createNode(wanted, { flow: true }));
    return;
  }
  list.items = [
    ...list.items.filter((_, index) => wanted.includes(present[index] ?? '')),
    ...wanted.filter((name) => !present.includes(name)).map((name) => document.createNode(name)),
  ];
}

/** Returns the text of a new policy file. The example rule is for the hosts behind the first interface. */
export function policyText({ interfaces, mode, config, forwardsIpv6 }: InitSettings): string {
  const [first = ''] = interfaces;
  const networks = networksOf(first, forwardsIpv6);
  const everyone = forwardsIpv6 ? ['0.0.0.0/0', '"::/0"'] : ['0.0.0.0/0'];
  const ping6 = forwardsIpv6 ? '        - { id: ping6, action: allow, match: { proto: icmpv6 } }\n' : '';
  const hosts = networks.length === 0 ? 'all hosts' : `the hosts behind ${first}`;
  return `# The policy of this gateway. After a change of this file:
#   weir policy apply -f ${policyPath({ config })}
# ${DOCS}/policy.md explains every field.
name: ${POLICY_NAME}
# enforce: the policy is in force. audit: it denies nothing, and \`weir findings\` shows what it would deny.
mode: ${mode}
policy:
  default_policy: deny
  source_groups:
    # An example to change: ${hosts} may ping.
    - id: lan
      sources: { cidrs: [${(networks.length === 0 ? everyone : networks).join(', ')}] }
      rules:
        - { id: ping, action: allow, match: { proto: icmp } }
${ping6}        # - { id: web, action: allow, match: { proto: tcp, dst_ports: [80, 443] } }
        # - { id: dns, action: allow, match: { proto: udp, dst_ports: [53], dst_ips: [192.0.2.53] } }
`;
}

/** Returns the mode in the text of a policy file; undefined if it has none. */
export function modeIn(policy: string): unknown {
  const { contents } = parseYaml(policy);
  return isMap(contents) ? contents.get('mode') : undefined;
}

/** Returns the text of an existing policy file with another mode; unchanged if the file has no `mode`. */
export function updatedPolicy(existing: string, mode: Mode): string {
  const document = parseYaml(existing);
  const present = isMap(document.contents) ? document.get('mode', true) : null;
  if (document.errors.length > 0 || !isScalar(present) || present.range == null) return existing;
  const [start, end] = present.range;
  return `${existing.slice(0, start)}${mode}${existing.slice(end)}`;
}

/**
 * Returns the networks of an interface as words of YAML, such as 10.77.1.0/24, with `ipv6` also those of IPv6
 * without link-local ones.
 */
function networksOf(name: string, ipv6: boolean): string[] {
  const networks = (networkInterfaces()[name] ?? []).flatMap(({ family, cidr, scopeid }) => {
    if (family === 'IPv6' && (!ipv6 || scopeid !== 0)) return [];
    // Node gives no CIDR for a netmask that is not a prefix.
    const network = cidr === null ? undefined : parseCidr(cidr);
    if (network === undefined) return [];
    const text = formatPrefix(network.prefix);
    return family === 'IPv6' ? `"${text}"` : text;
  });
  return [...new Set(networks)];
}

/**
 * Replaces the content of a file; follows a symbolic link. Keeps owner, group and mode. A new file belongs to
 * root and `group`, which may read it. A crash leaves the old or the new content.
 */
export function replaceFile(path: string, text: string, group: number): void {
  const folder = makeFolders(dirname(path));
  // Set the mode explicitly, because the umask of root may be stricter and the service user must be able to
  // enter the folder.
  if (folder !== undefined) chmodSync(dirname(path), 0o755);
  const target = existsSync(path) ? realpathSync(path) : path;
  const { uid, gid, mode } = existsSync(target) ? statSync(target) : { uid: 0, gid: group, mode: 0o640 };
  replaceDurably(target, text, { mode: mode & 0o777, uid, gid });
}
