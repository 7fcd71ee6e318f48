import { type Command, InvalidArgumentError, Option } from 'commander';
import { stringify } from 'yaml';
import { type Client, createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote } from '#cli/client/remote.js';
import { CliError } from '#cli/errors/command-error.js';
import { textOfFile } from '#cli/files/text-of-file.js';
import type { Terminal } from '#cli/output/terminal.js';
import { durationMs } from '#contracts/duration.js';
import { MAX_BYTES } from '#files/bounded-file.js';
import { PATH, throwWithAdvice, writtenSchema } from './integration-records.js';
import { KubeClient } from './kube-client.js';
import { type Kubeconfig, readKubeconfig } from './kubeconfig.js';
import { type Account, accountObjects, applyAccount, longLivedToken, requestToken } from './service-account.js';

/**
 * The service account of gateways. It is not the account of the DaemonSet, so that removing the DaemonSet
 * does not remove it.
 */
const ACCOUNT = 'weir-gateway';
/** The namespace of the DaemonSet (`deploy/kubernetes/base`). */
const DAEMONSET_NAMESPACE = 'weir-system';
const YEAR_MS = 31_536_000_000;
const NAMESPACE = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

type Options = Output & {
  readonly kubeconfig: string;
  readonly context?: string;
  readonly accountToken?: string;
  readonly createAccount?: true;
  readonly namespace: string;
  readonly lifetime: number;
  readonly longLived?: true;
  readonly replace?: true;
  readonly print?: true;
  readonly dryRun?: true;
};

export function addAddCommand(integration: Command, terminal: Terminal): void {
  remote(integration.command('add'))
    .description('store an integration with the server, the CA and the token of a kubeconfig')
    .argument('<name>', 'the name of the integration in policies')
    .requiredOption('--kubeconfig <file>', 'the kubeconfig')
    .option('--context <name>', 'a context of the kubeconfig (default: the current one)')
    .option('--account-token <file>', 'a file with the token, in place of the one in the kubeconfig')
    .option('--create-account', 'create a service account that may only read, and use its token')
    .option('--namespace <name>', 'the namespace of that account', namespace, ACCOUNT)
    .addOption(
      new Option('--lifetime <duration>', 'how long its token is valid; the server can shorten it')
        .argParser(lifetime)
        .default(YEAR_MS, '365d'),
    )
    .option('--long-lived', 'use a token without expiry, which Kubernetes stores in a secret')
    .option('--print', 'print the objects that --create-account creates, for kubectl apply; store nothing')
    .option('--replace', 'replace an integration of this name')
    .option('--dry-run', 'only check what would be stored; not with --create-account')
    .action(async (name: string, options: Options) => {
      checkFlags(options);
      const account: Account = { name: ACCOUNT, namespace: options.namespace };
      if (options.print === true) {
        const objects = accountObjects(account, options.longLived === true);
        return terminal.out(objects.map((object) => stringify(object)).join('---\n'));
      }
      const kubeconfig = readKubeconfig(options.kubeconfig, options.context);
      const client = createClient(options, terminal);
      // Check that the integration is absent before objects are created in the Kubernetes cluster.
      if (options.replace !== true) await checkAbsent(name, client);
      const token =
        options.createAccount === true
          ? await newToken(kubeconfig, account, options, terminal)
          : givenToken(kubeconfig, options);
      await store(name, kubeconfig, token, { options, client, terminal });
    });
}

function checkFlags({ createAccount, accountToken, print: isPrint, dryRun, longLived }: Options): void {
  const wrong = (message: string) => new CliError(message, { exitCode: 2 });
  if (createAccount === true && accountToken !== undefined)
    throw wrong('--create-account makes a token: give it or --account-token, not both');
  if (createAccount === true && dryRun === true && isPrint !== true)
    throw wrong('--create-account has no dry run: --print shows what it creates');
  if (createAccount !== true && (isPrint === true || longLived === true))
    throw wrong('--print and --long-lived belong to --create-account');
}

async function checkAbsent(name: string, client: Client): Promise<void> {
  const { status } = await client.exchange(`${PATH}/${encodeURIComponent(name)}`, { accept: [404] });
  if (status !== 404)
    throw new CliError(`there is an integration named ${name} already`, {
      fix: 'give --replace, or another name',
      code: 'already_exists',
    });
}

function givenToken({ user, context }: Kubeconfig, { accountToken, kubeconfig }: Options): string {
  if (accountToken !== undefined) return textOfFile(accountToken, MAX_BYTES.secret).trim();
  if (user.by === 'token') return user.token;
  const has = user.by === 'certificate' ? 'a client certificate' : user.method;
  throw new CliError(`${kubeconfig}: the user of the context ${context} has ${has}; an integration needs a token`, {
    fix:
      user.by === 'certificate'
        ? 'give --create-account, which creates a service account with this certificate; or --account-token'
        : 'apply the output of --create-account --print with kubectl, and give --account-token with the output of `kubectl create token`',
  });
}

async function newToken(
  { server, user, context }: Kubeconfig,
  account: Account,
  { kubeconfig, lifetime: lifetimeMs, longLived }: Options,
  terminal: Terminal,
): Promise<string> {
  if (user.by === 'unsupported')
    throw new CliError(
      `${kubeconfig}: the user of the context ${context} has ${user.method}, which only kubectl can use`,
      {
        fix: 'add --print, apply the output with kubectl, and give --account-token with the output of `kubectl create token`',
      },
    );
  const kube = new KubeClient(server, user);
  try {
    await applyAccount(kube, account, longLived === true);
    const { namespace: of, name } = account;
    terminal.err(`created the service account ${of}/${name}, which may read pods, nodes and namespaces\n`);
    if (longLived === true) return await longLivedToken(kube, account);
    const { token, expiresAt } = await requestToken(kube, account, lifetimeMs);
    terminal.err(`its token is valid until ${expiresAt}; renew it with --create-account --replace\n`);
    if (Date.parse(expiresAt) < Date.now() + lifetimeMs - SHORTENED_MS)
      terminal.err('warning: the server shortened the lifetime; --long-lived gives a token without expiry\n');
    return token;
  } finally {
    kube.close();
  }
}

/**
 * The time in milliseconds by which the lifetime of a token may be below the requested one without a warning.
 * The clocks of this machine and of the server can differ.
 */
const SHORTENED_MS = 60_000;

async function store(
  name: string,
  { server }: Kubeconfig,
  token: string,
  { options, client, terminal }: { readonly options: Options; readonly client: Client; readonly terminal: Terminal },
): Promise<void> {
  const body = {
    kind: 'kubernetes',
    api_server_url: server.url,
    ca_cert_pem: server.caPem,
    service_account_token: token,
  };
  const dry = options.dryRun === true;
  const query = dry ? '?dry_run=true' : '';
  const answer = await (options.replace === true
    ? client.request(`${PATH}/${encodeURIComponent(name)}${query}`, { method: 'PUT', body })
    : client.request(`${PATH}${query}`, { method: 'POST', body: { name, ...body } })
  ).catch((refused: unknown) => throwWithAdvice(name, refused));
  const { warnings, ...written } = parseReply(writtenSchema, answer);
  for (const { message } of warnings) terminal.err(`warning: ${message}\n`);
  print(terminal, options.output, written, () =>
    dry ? `${name} would be stored: ${server.url}\n` : `stored ${name}: ${server.url}\n`,
  );
}

function namespace(text: string): string {
  if (text === DAEMONSET_NAMESPACE)
    throw new InvalidArgumentError(
      '`kubectl delete -k` of the Weir DaemonSet removes this namespace. Give another namespace.',
    );
  if (!NAMESPACE.test(text)) throw new InvalidArgumentError('It must be the name of a namespace.');
  return text;
}

/** Parses a lifetime. Refuses less than ten minutes, the minimum of Kubernetes. */
function lifetime(text: string): number {
  const ms = durationMs(text);
  if (ms === undefined || ms < 600_000)
    throw new InvalidArgumentError('The lifetime of a token must be a duration of 10m or more.');
  return ms;
}
