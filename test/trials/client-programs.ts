import { join } from 'node:path';
import { program } from '#cli/tour/node-process.js';
import { KUBECTL } from '#test/kubernetes/kube-api.js';
import { type Browser, startChromium, startFirefox, type Visit } from './browsers.js';
import { KUBERNETES_VERSION, PACKAGE_VERSION, PACKAGES, PAGE, WRITTEN } from './internet.js';
import type { Outcome, Workstation } from './workstation.js';

/** The seconds after which a program that can wait for an answer ends. */
const PATIENCE = 4;
/** A program is slow to start on a loaded machine; only its network time is bounded by `PATIENCE`. */
const LIMIT_MS = 60_000;

export const GOT = 'gets it';
/** The result of a client program: `gets it`, or the exit code and the error text of the program. */
export type Result = string;

const last = (text: string): string => text.trim().split('\n').slice(-3).join(' | ').slice(-300);
const resultOf = (outcome: Outcome, isRight: boolean): Result =>
  isRight ? GOT : `exit ${outcome.code}: ${last(outcome.stderr) || last(outcome.stdout)}`;

const NODE_FETCH = `fetch(process.argv[1], { signal: AbortSignal.timeout(${PATIENCE}000) }).then((r) => r.text()).then((t) => console.log(t))`;
const PYTHON_FETCH = `import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=${PATIENCE}).read().decode())`;

type Program = (station: Workstation, url: string) => Promise<Result>;

const reading =
  (command: string, ...words: string[]): Program =>
  async (station, url) => {
    const outcome = await station.run(command, [...words, url], LIMIT_MS);
    return resultOf(outcome, outcome.stdout.includes(PAGE));
  };

/** `npm view` reads the metadata of each package in the registry below the address. */
const npm: Program = async (station, url) => {
  const cache = join(station.home, `npm-${performance.now()}`);
  const network = ['--registry', `${url}npm/`, '--fetch-retries=0', `--fetch-timeout=${PATIENCE}000`];
  for (const name of PACKAGES) {
    const outcome = await station.run('npm', ['view', name, 'version', ...network, '--cache', cache], LIMIT_MS);
    const result = resultOf(outcome, outcome.stdout.trim() === PACKAGE_VERSION);
    if (result !== GOT) return result;
  }
  return GOT;
};

const APT_FOLDERS = `
state=$(mktemp -d -p .); mkdir -p $state/lists/partial $state/cache/archives/partial
echo "deb [trusted=yes] $1debian ./" > $state/sources.list; touch $state/status
exec apt-get update -o Dir::State=$PWD/$state -o Dir::State::lists=$PWD/$state/lists -o Dir::State::status=$PWD/$state/status \
  -o Dir::Cache=$PWD/$state/cache -o Dir::Etc::sourcelist=$PWD/$state/sources.list -o Dir::Etc::sourceparts=- \
  -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any -o Acquire::Retries=0 -o Acquire::Languages=none \
  -o Acquire::http::Timeout=${PATIENCE} -o Acquire::https::Timeout=${PATIENCE} -o Acquire::http::ConnectionAttemptDelayMsec=250`;

/** The client programs by name. Each fetches the page, package or repository at a URL. */
export const PROGRAMS = {
  curl: reading('curl', '-sSf', '--connect-timeout', String(PATIENCE), '--max-time', '8'),
  'curl --http1.1': reading('curl', '-sSf', '--http1.1', '--connect-timeout', String(PATIENCE), '--max-time', '8'),
  wget: reading('wget', '-nv', '-O', '-', '--tries=1', `--timeout=${PATIENCE}`),
  node: reading(process.execPath, '-e', NODE_FETCH),
  python3: reading('/usr/bin/python3', '-c', PYTHON_FETCH),
  git: async (station, url) => {
    const outcome = await station.run('timeout', ['12', 'git', 'ls-remote', `${url}repo.git`], LIMIT_MS);
    return resultOf(outcome, outcome.stdout.includes('refs/heads/main'));
  },
  npm,
  apt: async (station, url) => {
    const outcome = await station.run('sh', ['-c', APT_FOLDERS, 'sh', url], LIMIT_MS);
    return resultOf(outcome, outcome.code === 0);
  },
  'curl -X POST': async (station, url) => {
    const outcome = await station.run('curl', ['-sSf', '--max-time', '8', '-d', 'text', url], LIMIT_MS);
    return resultOf(outcome, outcome.stdout.trim() === WRITTEN);
  },
  ssh: async (station, target) => {
    const options = ['-o', 'BatchMode=yes', '-o', 'StrictHostKeyChecking=no', '-o', 'UserKnownHostsFile=/dev/null'];
    const words = ['-n', ...options, '-o', `ConnectTimeout=${PATIENCE}`, '-i', join(station.folder, '../ssh.key')];
    const outcome = await station.run('ssh', [...words, `root@${wordsOf(target)[1]}`, 'true'], LIMIT_MS);
    return resultOf(outcome, outcome.code === 0);
  },
  ping: async (station, target) => {
    const outcome = await station.run('ping', ['-n', '-c', '1', '-W', '2', wordsOf(target)[1] ?? ''], LIMIT_MS);
    return resultOf(outcome, outcome.code === 0);
  },
  /** `dig www.example.com @10.0.0.53`, with further words such as `+tcp`. */
  dig: async (station, target) => {
    const outcome = await station.run('dig', [...wordsOf(target).slice(1), '+tries=1', '+time=2'], LIMIT_MS);
    return resultOf(outcome, /status: NOERROR/.test(outcome.stdout) && /\sIN\s+A\s+\d/.test(outcome.stdout));
  },
  kubectl: async (station, url) => {
    const words = [
      '--server',
      url,
      '--certificate-authority',
      station.roots,
      '--request-timeout',
      `${PATIENCE}s`,
      '--token',
      'none',
    ];
    const outcome = await station.run(KUBECTL, [...words, 'get', '--raw', '/version'], LIMIT_MS);
    return resultOf(outcome, outcome.stdout.includes(KUBERNETES_VERSION));
  },
  etcdctl: async (station, url) => {
    const words = ['--endpoints', url, '--cacert', station.roots, '--dial-timeout', `${PATIENCE}s`];
    const outcome = await station.run(
      'etcdctl',
      [...words, '--command-timeout', `${PATIENCE}s`, 'put', 'a', 'b'],
      LIMIT_MS,
    );
    return resultOf(outcome, outcome.stdout.trim() === 'OK');
  },
  /** An echo over one TCP connection or UDP datagram: `tcp 10.3.0.80:23`. */
  echo: async (station, target) => {
    const [protocol, end = ''] = wordsOf(target);
    const [address = '', port = ''] = end.split(':');
    const words = [protocol === 'tcp' ? 'connect' : 'datagram', address, port, '--timeout', '1000'];
    const outcome = await station.run(process.execPath, [program('tour-traffic'), ...words], LIMIT_MS);
    return resultOf(outcome, /^pong 1$/m.test(outcome.stdout));
  },
} as const satisfies Record<string, Program>;

const wordsOf = (target: string): string[] => target.split(' ');

export type ProgramName = keyof typeof PROGRAMS;
export const BROWSERS = {
  chromium: startChromium,
  'firefox-esr': startFirefox,
  'firefox-esr without ECH': (station: Workstation) =>
    startFirefox(station, { 'security.tls.ech.grease_probability': 0, 'network.dns.echconfig.enabled': false }),
} as const;
export type BrowserName = keyof typeof BROWSERS;

/** Visits each address with one new browser, and returns what it shows. */
export async function visitAll(
  name: BrowserName,
  station: Workstation,
  urls: readonly string[],
): Promise<ReadonlyMap<string, Visit>> {
  const browser: Browser = await BROWSERS[name](station);
  try {
    const visits = new Map<string, Visit>();
    for (const url of urls) visits.set(url, await browser.visit(url));
    return visits;
  } finally {
    await browser.end();
  }
}

export const resultOfVisit = (visit: Visit): Result =>
  visit.text === PAGE ? `${GOT} over ${visit.protocol}` : (visit.error ?? visit.text.slice(0, 200));
