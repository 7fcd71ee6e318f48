import { type Command, Option } from 'commander';
import { z } from 'zod';
import { createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote } from '#cli/client/remote.js';
import { CliError, RefusedError } from '#cli/errors/command-error.js';
import type { End } from '#cli/errors/exit-codes.js';
import { type Style, styleOf } from '#cli/output/style.js';
import type { Terminal } from '#cli/output/terminal.js';
import type { AskAnswer, DecidedRegion, FlowQuestion, Obstacle } from '#contracts/analysis/flow-question.js';
import { countText, decidedText, explainCommand, flowsText } from './flow-difference.js';
import { atLines, readValidSource, singletonOf } from './policy-source.js';

const UNEXPECTED = 3;
const ANY = 'any';
/** The maximum number of regions (sets of flows) of each list that the text shows without `--all`. */
const SHOWN = 5;
const ALL = 1_000;

const answerSchema = z
  .looseObject({ answer: z.string(), summary: z.string(), passing: z.array(z.unknown()), denied: z.array(z.unknown()) })
  .transform((answer) => answer as unknown as AskAnswer);

type AskOptions = Output & {
  readonly host?: string;
  readonly srcPort?: string;
  readonly file?: string;
  readonly expect?: string;
  readonly all?: boolean;
};

export function addAskCommand(policy: Command, terminal: Terminal, end: End): void {
  remote(policy.command('ask'))
    .description('ask whether flows pass never, always or sometimes; `any` asks who, what or how')
    .argument('[from]', 'an address, a network, or the id of a source group', ANY)
    .argument('[to]', 'an address or a network', ANY)
    .argument('[service]', 'such as tcp/22, udp/53,123, icmp/8, icmpv6/128, udp, or 443 for tcp/443', ANY)
    .option('--host <hostname>', 'the destination is an address that was looked up by this name')
    .option('--src-port <ports>', 'the source ports, such as 1024-65535')
    .option('-f, --file <file>', 'ask about this policy instead of the active one; - reads standard input')
    .addOption(
      new Option('--expect <answer>', 'exit with 3 if the answer is another one').choices([
        'never',
        'always',
        'sometimes',
      ]),
    )
    .option('--all', 'show every region of flows')
    .action(async (from: string, to: string, service: string, options: AskOptions) => {
      const { file, expect, all = false } = options;
      const client = createClient(options, terminal);
      const source = file === undefined ? undefined : await readValidSource(file, terminal);
      const question = questionOf(from, to, service, options);
      const body = {
        ...question,
        ...(source === undefined ? {} : { policy: { policy: singletonOf(source) } }),
        ...(all ? { limit: ALL } : {}),
      };
      const reply = await client.request('/api/v1/policy/ask', { method: 'POST', body }).catch((error: unknown) => {
        const isAboutFile =
          source !== undefined &&
          error instanceof RefusedError &&
          error.problems.every(({ pointer }) => pointer.startsWith('/policy'));
        throw isAboutFile ? atLines(error, source, source.form === 'singleton' ? '/policy' : '') : error;
      });
      const answer = parseReply(answerSchema, reply);
      print(terminal, options.output, answer, (shown) => answerText(shown, styleOf(terminal), all));
      if (expect !== undefined && answer.answer !== expect) end(UNEXPECTED);
    });
}

function questionOf(from: string, to: string, service: string, { host, srcPort }: AskOptions): FlowQuestion {
  return {
    ...(from === ANY ? {} : { from: isAddress(from) ? [from] : { group: from } }),
    ...(to === ANY ? {} : { to: [to] }),
    ...(host === undefined ? {} : { name: host }),
    ...(service === ANY ? {} : serviceOf(service)),
    ...(srcPort === undefined ? {} : { src_ports: srcPort.split(',') }),
  };
}

/** Whether a text looks like an address or a network, so that it does not name a source group. */
const isAddress = (text: string): boolean => /^[\da-f]*[.:][\da-f.:]*(?:\/\d+)?$/i.test(text);

function serviceOf(service: string): Pick<FlowQuestion, 'proto' | 'ports' | 'icmp_types'> {
  const [name = '', values, ...rest] = service.split('/');
  if (rest.length > 0)
    throw new CliError(`${service}: write a service as tcp/22, udp/53,123 or icmp/8`, { exitCode: 2 });
  if (values === undefined && /^[\d,-]+$/.test(name)) return { ports: name.split(',') };
  const proto = /^\d+$/.test(name) ? Number(name) : name;
  if (values === undefined) return { proto };
  if (['icmp', 'icmpv6'].includes(name.toLowerCase())) return { proto, icmp_types: values.split(',').map(Number) };
  return { proto, ports: values.split(',') };
}

function answerText(answer: AskAnswer, style: Style, all: boolean): string {
  const lines = [
    answer.summary,
    ...listLines('passes', answer.passing, answer.passing_omitted, style.good, style, all),
    ...listLines('denied', answer.denied, answer.denied_omitted, style.bad, style, all),
    ...(answer.answer === 'never' ? answer.obstacles.flatMap(obstacleLines) : []),
  ];
  return lines.map((line) => `${line}\n`).join('');
}

function listLines(
  word: string,
  regions: readonly DecidedRegion[],
  omitted: number,
  paint: (text: string) => string,
  style: Style,
  all: boolean,
): string[] {
  const shown = all ? regions : regions.slice(0, SHOWN);
  const others = regions.length - shown.length + omitted;
  return [
    ...shown.flatMap((region) => [
      `${paint(word)} ${flowsText(region)}`,
      `  ${decidedText(region.decider)}   ${countText(region.flows)}   ${style.dim(explainCommand(region.example))}`,
    ]),
    ...(others > 0 ? [`and ${others} more ${others === 1 ? 'region' : 'regions'}`] : []),
  ];
}

function obstacleLines({ decider, remedy }: Obstacle): string[] {
  if (remedy === null) return [];
  const { source_group: group, before, rule } = remedy;
  const where =
    group === null
      ? 'add a source group for these sources with the rule'
      : before === null
        ? `add to the end of ${group}`
        : `add to ${group} before ${before}`;
  return [`${decidedText(decider)} denies them; to let them pass, ${where}`, `  ${JSON.stringify(rule)}`];
}
