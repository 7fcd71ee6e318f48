import { type Command, Option } from 'commander';
import { z } from 'zod';
import { type Client, createClient } from '../client.js';
import { CliError, type Problem, RefusedError } from '../error.js';
import { duration } from '../number.js';
import { failingChecks, waitUntilReady } from '../readiness.js';
import { type Output, print, remote, understood } from '../remote.js';
import { styleOf } from '../style.js';
import type { Terminal } from '../terminal.js';
import { etagOf, labelOf, listPolicies, type PolicyRecord, recordSchema } from './record.js';
import { atLines, placed, readSource } from './source.js';
import { type Overrides, type Write, writeOf } from './write.js';

const problemSchema = z.object({ pointer: z.string(), code: z.string(), message: z.string() });
const proofSchema = z.object({ classes: z.number().nullable(), checked: z.number(), complete: z.boolean() }).nullable();
const writtenSchema = recordSchema.extend({ warnings: z.array(problemSchema), proof: proofSchema });
const drySchema = writtenSchema.extend({ program_lines: z.number() });

type Applied = {
  readonly record: PolicyRecord;
  readonly dry_run: boolean;
  /** Null of a dry run. */
  readonly generation: number | null;
  readonly etag: string | null;
  readonly warnings: readonly Problem[];
  /** Null where the answer had none: nothing enforces, or the singleton form was written. */
  readonly proof: z.infer<typeof proofSchema>;
};

type Options = Output &
  Overrides & {
    readonly file: string;
    readonly dryRun?: true;
    readonly ifMatch?: string;
    readonly activate: boolean;
    readonly wait?: true;
    readonly timeout?: number;
  };

const DEFAULT_WAIT = '60s';

/** `weir policy apply`. */
export function addApplyCommand(policy: Command, terminal: Terminal): void {
  remote(policy.command('apply'))
    .description('write a policy, and put it in force: when this is done, the next packet is judged by it')
    .requiredOption('-f, --file <file>', 'YAML or JSON, an envelope or in singleton form; - reads standard input')
    .option('--name <name>', 'write it under this name')
    .addOption(new Option('--mode <mode>', 'write it with this mode').choices(['disabled', 'audit', 'enforce']))
    .option('--dry-run', 'check, compile and prove it; change nothing')
    .option('--if-match <etag>', 'only if this is the ETag of what is replaced, as `weir policy get` shows it')
    .option('--no-activate', 'only store it')
    .option('--wait', 'until the node is ready')
    .option('--timeout <duration>', `how long to wait (default: ${DEFAULT_WAIT})`, duration)
    .action(async (options: Options) => {
      const client = createClient(options, terminal);
      const source = await readSource(options.file, terminal);
      const write = writeOf(source, options);
      const applied = await put(client, write, options).catch((error: unknown) => {
        throw error instanceof RefusedError ? atLines(error, source, write.prefix) : error;
      });
      const style = styleOf(terminal);
      for (const warning of applied.warnings)
        terminal.err(`${style.warn('warning:')} ${placed(source, warning, write.prefix)} [${warning.code}]\n`);
      print(terminal, options.output, applied, () => sentence(applied));
      if (options.wait === undefined || applied.dry_run) return;
      const timeout = options.timeout ?? duration(DEFAULT_WAIT);
      const readiness = await waitUntilReady(client, timeout, terminal.interruption());
      if (!readiness.ready)
        throw new CliError(`the policy was written, but the node is not ready: ${failingChecks(readiness)}`);
      if (options.output === 'table') terminal.out('the node is ready\n');
    });
}

async function put(client: Client, write: Write, { dryRun, ifMatch, activate }: Options): Promise<Applied> {
  const headers = ifMatch === undefined ? {} : { 'if-match': quoted(ifMatch) };
  const ask = (parameters: readonly string[]) =>
    client.exchange(parameters.length === 0 ? write.path : `${write.path}?${parameters.join('&')}`, {
      method: 'PUT',
      body: write.body,
      headers: parameters.includes(DRY_RUN) && dryRun !== true ? {} : headers,
    });
  const parameters = activate ? [] : ['activate=false'];
  if (dryRun === true) {
    const { warnings, proof, ...record } = understood(drySchema, (await ask([...parameters, DRY_RUN])).body);
    return { record: recordSchema.parse(record), dry_run: true, generation: null, etag: null, warnings, proof };
  }
  const { headers: answered, body } = await ask(parameters);
  const etag = answered.get('etag');
  const written = { dry_run: false, generation: Number(answered.get('weir-generation')), etag };
  if (write.form === 'envelope') {
    const { warnings, proof, ...record } = understood(writtenSchema, body);
    return { ...written, record: recordSchema.parse(record), warnings, proof };
  }
  const record = (await listPolicies(client)).find((one) => etagOf(one) === etag);
  if (record === undefined)
    throw new CliError('the policy was written, and replaced by somebody else at once; `weir policy list` shows it');
  // The answer to the singleton form has room for the codes of warnings only; a dry run says the same in sentences.
  const codes = answered.get('weir-warnings')?.split(', ') ?? [];
  const said = codes.length === 0 ? [] : understood(drySchema, (await ask([DRY_RUN])).body).warnings;
  const warnings = codes.flatMap((code) => {
    const meant = said.filter((warning) => warning.code === code);
    return meant.length > 0 ? meant : [{ pointer: '', code, message: 'See docs/errors.md.' }];
  });
  return { ...written, record, warnings, proof: null };
}

const DRY_RUN = 'dry_run=true';

/** Shells eat the quotes of an entity tag. */
const quoted = (etag: string): string => (etag === '*' || etag.startsWith('"') ? etag : `"${etag}"`);

function sentence({ record, dry_run: dry, generation, etag, proof }: Applied): string {
  const { mode, revision, active } = record;
  const what = `${labelOf(record)} (${mode}), revision ${revision}`;
  const lines = dry
    ? [`${what}: nothing is wrong with it, and nothing was changed`]
    : [`${what}: ${active ? `in force, generation ${generation ?? 0}` : 'stored, not active'}`, `ETag ${etag ?? '-'}`];
  if (proof !== null) {
    const classes = proof.classes === null ? 'more classes than can be counted' : `${proof.classes} classes`;
    lines.push(`proved by ${proof.checked} packets of ${classes}${proof.complete ? '' : ', not of every one'}`);
  }
  return `${lines.join('\n')}\n`;
}
