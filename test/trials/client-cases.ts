import type { BrowserName, ProgramName } from './client-programs.js';

type ClientName = ProgramName | BrowserName;

/**
 * Expected results of the clients in `by` at the address `from`. Each client can fetch every target in `gets`
 * and none in `not`; a target is a URL or an argument of `PROGRAMS`. Each target in `not` causes a finding
 * with the action deny. `findings` are further findings, each an action and a target.
 */
export type Row = {
  readonly from: string;
  readonly by: readonly ClientName[];
  readonly gets: readonly string[];
  readonly not?: readonly string[];
  readonly findings?: readonly string[];
  /** Further arguments of `weir policy explain`, besides the address and the name. */
  readonly explain?: readonly string[];
  /** The protocol by which each browser must fetch a URL. */
  readonly over?: Readonly<Record<string, Readonly<Partial<Record<BrowserName, string>>>>>;
};

/** An example policy of the documentation, or two that form one policy, and the expected results under it. */
export type Case = {
  readonly recipe: string;
  readonly with?: string;
  /** Makes a policy from the text of the recipe. If this is undefined, the text itself is the policy. */
  readonly policyOf?: (text: string) => string;
  readonly rows: readonly Row[];
};

const OFFICE = '10.1.0.7';
const BROWSERS = ['chromium', 'firefox-esr'] as const;
const PROGRAMS_OF_WEB = ['curl', 'curl --http1.1', 'wget', 'git', 'npm', 'apt', 'node', 'python3'] as const;
const WEB = [...BROWSERS, ...PROGRAMS_OF_WEB] as const;
const FEW = [...BROWSERS, 'curl'] as const;
const LOGIN = ['https://login.example.com/', 'https://login.example.net/'] as const;
const HTTP2 = { chromium: 'h2', 'firefox-esr': 'h2' };
/** Chromium tries HTTP/3, but rejects it from a server whose root certificate an administrator added. */
const HTTP3 = { chromium: 'h2', 'firefox-esr': 'h3' };

/** Returns a policy for the office network with one rule: the JSON text `text`. */
const ruleOfOffice = (text: string, otherwise: 'allow' | 'deny' = 'deny'): string =>
  JSON.stringify({
    default_policy: otherwise,
    source_groups: [{ id: 'office', mode: 'enforce', sources: { cidrs: ['10.1.0.0/16'] }, rules: [JSON.parse(text)] }],
  });

/** Cases for a node that answers every DNS lookup itself, as in the block of `dns` in docs/names.md. */
export const CASES: readonly Case[] = [
  {
    recipe: 'tls-names.yaml',
    rows: [
      {
        ...{ from: OFFICE, by: WEB },
        // The answer to the first request to login.example.net offers HTTP/3.
        gets: [...LOGIN, 'https://login.example.net/v2/public/'],
        not: ['https://www.example.com/'],
        over: { [LOGIN[0]]: HTTP2, [LOGIN[1]]: HTTP2, 'https://login.example.net/v2/public/': HTTP2 },
      },
      { from: OFFICE, by: ['curl'], gets: [], not: ['http://login.example.com/', 'https://93.184.216.1/'] },
      { from: '10.3.0.9', by: ['curl'], gets: [], not: ['https://login.example.com/'] },
    ],
  },
  {
    recipe: 'no-quic.yaml',
    rows: [
      {
        ...{ from: OFFICE, by: WEB },
        gets: ['https://www.example.com/', 'https://login.example.com/'],
        not: ['https://video.example/', 'https://cdn.video.example/'],
        // The browsers try HTTP/3 first, since the HTTPS record of the name offers it.
        findings: ['deny udp 93.184.216.3:443', 'deny udp 93.184.216.1:443'],
        over: { 'https://www.example.com/': HTTP2, 'https://login.example.com/': HTTP2 },
      },
      // A browser uses HTTPS in place of HTTP for a name with an HTTPS record.
      { from: OFFICE, by: PROGRAMS_OF_WEB, gets: ['http://video.example/'] },
      { from: '10.3.0.9', by: FEW, gets: ['https://video.example/'], over: { 'https://video.example/': HTTP3 } },
    ],
  },
  {
    recipe: 'block-legacy.yaml',
    rows: [
      {
        ...{ from: OFFICE, by: WEB },
        gets: ['https://www.example.com/', ...LOGIN, 'https://login.example.net/v2/public/'],
        over: {
          'https://www.example.com/': HTTP3,
          [LOGIN[0]]: HTTP2,
          [LOGIN[1]]: HTTP2,
          'https://login.example.net/v2/public/': HTTP3,
        },
      },
      // A client that connects to an IP address sends no server name in its ClientHello.
      { from: OFFICE, by: ['curl'], gets: ['https://203.0.113.80/'], findings: ['allow https://203.0.113.80/'] },
      { from: OFFICE, by: ['echo'], gets: ['tcp 10.4.0.80:23'], not: ['tcp 10.3.0.80:23', 'tcp 10.3.0.80:445'] },
    ],
  },
  {
    recipe: 'http-api.yaml',
    rows: [
      {
        ...{ from: OFFICE, by: WEB, gets: ['https://api.example.com/v2/public/'] },
        not: ['https://api.example.com/v2/private/', 'https://www.example.com/v2/public/'],
        over: { 'https://api.example.com/v2/public/': HTTP2 },
      },
      { from: OFFICE, by: ['curl -X POST'], gets: [], not: ['https://api.example.com/v2/public/'] },
      { from: '10.1.7.7', by: ['curl'], gets: ['https://api.example.com/v2/public/'] },
      {
        ...{ from: '10.1.7.7', by: ['curl -X POST'], gets: ['https://api.example.com/v2/public/'] },
        not: ['https://api.example.com/v2/private/'],
      },
    ],
  },
  {
    recipe: 'blocked-names.yaml',
    rows: [
      {
        ...{ from: OFFICE, by: WEB, gets: ['https://www.example.com/', 'http://www.example.com/'] },
        not: ['https://ads.tracker.example/', 'https://malware.example/', 'https://pool7.coins.example/'],
      },
      {
        ...{ from: OFFICE, by: ['dig'], gets: ['dig www.example.com', 'dig www.example.com @192.0.2.99'] },
        not: ['dig malware.example', 'dig malware.example @192.0.2.99', 'dig ads.tracker.example +tcp @192.0.2.99'],
      },
    ],
  },
  {
    recipe: 'package-mirrors.yaml',
    rows: [
      {
        ...{ from: '10.3.0.9', by: WEB, gets: ['https://deb.debian.org/'] },
        not: ['https://www.example.com/'],
        over: { 'https://deb.debian.org/': HTTP2 },
      },
      { from: '10.3.0.9', by: ['curl', 'apt'], gets: [], not: ['http://deb.debian.org/'] },
    ],
  },
  {
    recipe: 'docs/names.md 2',
    with: 'docs/names.md 1',
    policyOf: (text) => ruleOfOffice(text),
    rows: [
      {
        ...{ from: OFFICE, by: WEB, gets: ['https://api.example.com/', 'https://www.example.com/'] },
        not: ['https://login.example.net/'],
        over: { 'https://api.example.com/': HTTP2, 'https://www.example.com/': HTTP2 },
      },
      { from: OFFICE, by: ['curl'], gets: [], not: ['http://api.example.com/'] },
    ],
  },
  {
    recipe: 'docs/inspection.md 1',
    policyOf: (text) => ruleOfOffice(text, 'allow'),
    rows: [
      { from: OFFICE, by: [...PROGRAMS_OF_WEB, 'firefox-esr without ECH'], gets: ['https://login.example.com/'] },
      { from: OFFICE, by: BROWSERS, gets: [], not: ['https://login.example.com/'], explain: ['--hello', 'ech'] },
    ],
  },
  {
    recipe: 'README.md 2',
    rows: [
      {
        ...{ from: OFFICE, by: FEW, gets: ['https://www.example.com/', 'http://www.example.com/'] },
        over: { 'https://www.example.com/': HTTP2 },
      },
      { from: OFFICE, by: ['ssh'], gets: [], not: ['ssh 10.3.0.80'] },
    ],
  },
  {
    recipe: 'office-web.yaml',
    rows: [
      { from: OFFICE, by: WEB, gets: ['https://login.example.com/', 'http://www.example.com/'] },
      { from: OFFICE, by: ['ping'], gets: ['ping 203.0.113.80'] },
      { from: OFFICE, by: ['ssh'], gets: [], not: ['ssh 10.3.0.80'] },
    ],
  },
  {
    recipe: 'guests.yaml',
    rows: [
      { from: '10.1.9.7', by: FEW, gets: ['https://www.example.com/'], not: ['http://10.0.0.80/'] },
      { from: OFFICE, by: ['curl'], gets: ['https://www.example.com/', 'http://10.0.0.80/'] },
    ],
  },
  {
    recipe: 'audit-first.yaml',
    rows: [
      { from: OFFICE, by: FEW, gets: ['https://www.example.com/'] },
      { from: OFFICE, by: ['ssh'], gets: ['ssh 10.3.0.80'], findings: ['allow ssh 10.3.0.80'] },
    ],
  },
  {
    recipe: 'quarantine.yaml',
    rows: [
      { from: '10.1.66.7', by: ['curl'], gets: ['https://10.0.0.10/'], not: ['https://203.0.113.80/'] },
      { from: OFFICE, by: ['curl'], gets: ['https://203.0.113.80/'] },
    ],
  },
  {
    recipe: 'bastion.yaml',
    rows: [
      { from: '10.0.0.22', by: ['ssh'], gets: ['ssh 10.3.0.80'] },
      { from: OFFICE, by: ['ssh'], gets: ['ssh 10.4.0.80'], not: ['ssh 10.3.0.80'] },
      { from: OFFICE, by: ['curl'], gets: ['https://www.example.com/'] },
    ],
  },
  {
    recipe: 'backup-only.yaml',
    rows: [
      { from: '10.2.0.5', by: ['echo'], gets: ['tcp 10.3.0.80:873'] },
      { from: '10.2.0.6', by: ['echo'], gets: ['tcp 10.4.0.80:873'], not: ['tcp 10.3.0.80:873'] },
    ],
  },
  {
    recipe: 'mail-relay.yaml',
    rows: [
      { from: '10.0.0.25', by: ['echo'], gets: ['tcp 203.0.113.80:25'] },
      { from: OFFICE, by: ['echo'], gets: [], not: ['tcp 203.0.113.80:25', 'tcp 203.0.113.80:587'] },
      { from: OFFICE, by: ['curl'], gets: ['https://www.example.com/'] },
    ],
  },
  {
    recipe: 'three-tiers.yaml',
    rows: [
      { from: OFFICE, by: ['curl'], gets: ['http://10.10.1.80/', 'https://10.10.1.80/'] },
      { from: OFFICE, by: ['echo'], gets: [], not: ['tcp 10.10.2.80:8080'] },
      { from: '10.10.1.5', by: ['echo'], gets: ['tcp 10.10.2.80:8080'], not: ['tcp 10.10.3.80:5432'] },
      { from: '10.10.2.5', by: ['echo'], gets: ['tcp 10.10.3.80:5432'], not: ['tcp 10.10.2.80:8080'] },
    ],
  },
  {
    recipe: 'tenants.yaml',
    rows: [
      {
        from: '10.20.0.7',
        by: ['curl'],
        gets: ['https://www.example.com/', 'http://10.20.0.80/'],
        not: ['http://10.21.0.80/'],
      },
      {
        from: '10.21.0.7',
        by: ['curl'],
        gets: ['https://www.example.com/', 'http://10.21.0.80/'],
        not: ['http://10.20.0.80/'],
      },
    ],
  },
  {
    recipe: 'dmz.yaml',
    rows: [
      { from: '198.51.100.7', by: ['curl'], gets: ['https://203.0.113.10/'] },
      { from: '198.51.100.7', by: ['ssh'], gets: [], not: ['ssh 203.0.113.10'] },
      { from: OFFICE, by: ['ssh'], gets: ['ssh 203.0.113.10'] },
      { from: OFFICE, by: FEW, gets: ['https://www.example.com/'] },
      { from: '203.0.113.11', by: ['curl'], gets: [], not: ['https://203.0.113.10/'] },
    ],
  },
  {
    recipe: 'site-vpn.yaml',
    rows: [
      {
        from: '192.0.2.1',
        by: ['echo'],
        gets: ['udp 198.51.100.1:4500', 'udp 198.51.100.1:51820'],
        not: ['udp 203.0.113.80:4500'],
      },
      { from: '10.30.0.7', by: ['curl'], gets: ['https://10.0.0.80/'], not: ['https://10.0.0.10/'] },
      { from: '10.30.0.7', by: ['ping'], gets: ['ping 10.0.0.80'] },
    ],
  },
  {
    recipe: 'cluster-pods.yaml',
    rows: [
      { from: '10.244.3.7', by: ['kubectl'], gets: ['https://10.5.0.2:6443'], not: ['https://10.5.0.9:6443'] },
      { from: '10.244.3.7', by: ['curl'], gets: ['https://www.example.com/'], not: ['http://169.254.169.254/'] },
      { from: '10.244.3.7', by: ['ssh'], gets: [], not: ['ssh 10.5.0.2'] },
    ],
  },
  {
    recipe: 'docs/policy.md 1',
    rows: [{ from: OFFICE, by: FEW, gets: [], not: ['https://www.example.com/'] }],
  },
];

/** Cases for a node that answers only the DNS lookups to its own address. */
export const CASES_WITHOUT_TRANSPARENT_DNS: readonly Case[] = [
  {
    recipe: 'one-resolver.yaml',
    rows: [
      {
        ...{
          from: OFFICE,
          by: ['dig'],
          gets: ['dig www.example.com @10.0.0.53', 'dig www.example.com +tcp @10.0.0.53'],
        },
        not: ['dig www.example.com @192.0.2.53', 'dig www.example.com +tcp @192.0.2.53'],
      },
      { from: OFFICE, by: ['echo'], gets: [], not: ['tcp 203.0.113.80:853'] },
      { from: OFFICE, by: FEW, gets: ['https://www.example.com/', 'https://login.example.com/'] },
    ],
  },
  {
    recipe: 'blocked-names.yaml',
    with: 'one-resolver.yaml',
    rows: [
      {
        ...{ from: OFFICE, by: FEW, gets: ['https://www.example.com/'] },
        not: ['https://ads.tracker.example/', 'https://malware.example/', 'https://pool7.coins.example/'],
      },
      {
        from: OFFICE,
        by: ['dig'],
        gets: ['dig www.example.com'],
        not: ['dig malware.example', 'dig malware.example @192.0.2.53'],
      },
    ],
  },
  {
    recipe: 'infrastructure.yaml',
    rows: [
      {
        from: '10.7.0.7',
        by: ['dig'],
        gets: ['dig www.example.com @10.0.0.53'],
        not: ['dig www.example.com @192.0.2.53'],
      },
      { from: '10.7.0.7', by: ['echo'], gets: ['udp 10.0.0.123:123'], not: ['udp 203.0.113.80:123'] },
      { from: '10.7.0.7', by: ['ping'], gets: ['ping 203.0.113.80'] },
      { from: '10.7.0.7', by: ['curl'], gets: [], not: ['https://203.0.113.80/'] },
    ],
  },
];

/**
 * Cases with a resolver in the clients' network, whose answers contain the keys for Encrypted Client Hello.
 * The ClientHellos of browsers then show only the public name of the keys.
 */
export const CASES_WITH_ECH_KEYS: readonly Case[] = [
  {
    recipe: 'tls-names.yaml',
    rows: [
      {
        ...{ from: OFFICE, by: BROWSERS, gets: [], not: ['https://login.example.com/'] },
        ...{ findings: ['deny https://outer.example/'], explain: ['--sni', 'outer.example'] },
      },
      { from: OFFICE, by: ['curl'], gets: [...LOGIN] },
    ],
  },
  {
    recipe: 'http-api.yaml',
    rows: [
      {
        ...{ from: OFFICE, by: FEW, gets: ['https://api.example.com/v2/public/'] },
        not: ['https://api.example.com/v2/private/'],
      },
    ],
  },
  {
    recipe: 'no-quic.yaml',
    rows: [{ from: OFFICE, by: FEW, gets: ['https://www.example.com/'], not: ['https://video.example/'] }],
  },
];

/** Cases for a node with a Kubernetes integration `prod`, which has the pods and nodes of `makeObjects`. */
export const CASES_OF_KUBERNETES: readonly Case[] = [
  {
    recipe: 'kubernetes/pods.yaml',
    rows: [
      { from: '10.244.0.1', by: ['echo'], gets: ['tcp 10.96.12.4:5432'], not: ['tcp 10.3.0.80:5432'] },
      { from: '10.244.0.2', by: ['echo'], gets: [], not: ['tcp 10.96.12.4:5432'] },
      { from: '10.244.0.4', by: FEW, gets: ['https://www.example.com/', 'https://login.example.com/'] },
      { from: '10.244.0.6', by: ['curl'], gets: [], not: ['https://203.0.113.80/'] },
    ],
  },
  {
    recipe: 'kubernetes/nodes.yaml',
    rows: [
      { from: '10.5.0.1', by: ['etcdctl'], gets: ['https://10.5.1.7:2379'], not: ['https://10.5.2.8:2379'] },
      { from: '10.5.0.3', by: ['etcdctl'], gets: [], not: ['https://10.5.1.7:2379'] },
      { from: '10.244.7.9', by: ['curl'], gets: ['https://10.5.2.8/'], not: ['https://203.0.113.80/'] },
    ],
  },
];

/** The blocks of the documentation that are no policies, each with its purpose. */
export const OTHER_BLOCKS: Readonly<Record<string, string>> = {
  'README.md 1': 'a configuration without names, TLS and HTTP; the quick start runs it',
  'docs/policy.md 2': 'settings of an editor',
};
