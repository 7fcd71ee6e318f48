import type { Command } from 'commander';
import { type Client, createClient } from '#cli/client/client.js';
import { type Output, type Parameter, parseReply, remote, streamed, withQuery } from '#cli/client/remote.js';
import { RefusedError, UnreachableError } from '#cli/errors/command-error.js';
import { type Style, styleOf } from '#cli/output/style.js';
import type { Terminal } from '#cli/output/terminal.js';
import { visibleIn } from '#cli/output/visible.js';
import { pause } from '#cli/pause.js';
import { backoffMs } from '#contracts/backoff.js';
import { eventsOf } from '#observe/wiretap/event-stream.js';
import type { ListOptions } from './list-options.js';
import { scopeParameter } from './node-errors.js';
import { frameSchema, wiretapLine } from './wiretap-message.js';

type Options = Output &
  ListOptions<'type' | 'src' | 'dst' | 'port' | 'proto' | 'hostname' | 'group' | 'rule' | 'verdict'> & {
    readonly replay?: string;
    readonly fold?: string;
    readonly allNodes?: boolean;
  };

const FIRST_PAUSE_MS = 250;
const MAX_PAUSE_MS = 10_000;

export function addWiretapCommand(program: Command, terminal: Terminal): void {
  remote(program.command('wiretap'))
    .description('show live traffic until interrupted: flows, verdicts, lookups, and inspected connections')
    .option('--type <message-type...>', 'flow, flow_end, verdict, dns, tls or http')
    .option('--src <cidr...>', 'sent by these addresses')
    .option('--dst <cidr...>', 'sent to these addresses')
    .option('--port <port...>', 'with these ports on either side')
    .option('--proto <protocol...>', 'of these protocols, by name or number')
    .option('--hostname <hostname...>', 'about these names, such as api.example.com or *.example.com')
    .option('--group <group...>', 'evaluated in these source groups')
    .option('--rule <rule...>', 'decided by these rules')
    .option('--verdict <verdict...>', 'allow, deny, audit or redirect')
    .option('--all-nodes', 'of all nodes of the cluster')
    .option('--replay <duration>', 'begin with the messages of this last period, such as 10s')
    .option('--fold <duration>', 'show equal messages within this time, such as 1s, as one with a count')
    .action(async (options: Options) => {
      await listen(createClient(options, terminal), options, terminal);
    });
}

function pathOf(
  { type, src, dst, port, proto, hostname, group, rule, verdict, allNodes, fold }: Options,
  replay: string | undefined,
): string {
  const traffic: Record<string, Parameter> = { type, src, dst, port, proto, hostname };
  const filters = { ...traffic, group, rule, verdict, replay, fold, scope: scopeParameter(allNodes) };
  return withQuery('/api/v1/wiretap/stream', filters);
}

/**
 * Prints wiretap messages until the user interrupts the command. If the stream ends, opens another stream.
 * Throws if the first stream cannot be opened.
 */
async function listen(client: Client, options: Options, terminal: Terminal): Promise<void> {
  const interruption = terminal.interruption();
  const style = styleOf(terminal);
  let hasBegun = false;
  /** The number of pauses since the last stream that lasted longer than `MAX_PAUSE_MS`. */
  let pauses = 0;
  let beganMs = 0;
  while (!interruption.aborted) {
    try {
      const path = pathOf(options, hasBegun ? undefined : options.replay);
      const chunks = await client.stream(path, 'text/event-stream', interruption);
      if (hasBegun) terminal.err(style.lost('the stream continues; messages of the interruption are missing\n'));
      hasBegun = true;
      beganMs = performance.now();
      await show(chunks, options, terminal, style);
    } catch (error) {
      if (interruption.aborted) return;
      if (!hasBegun || !isPassing(error)) throw error;
    }
    if (interruption.aborted) return;
    if (performance.now() - beganMs > MAX_PAUSE_MS) pauses = 0;
    if (pauses === 0) terminal.err(style.lost(`the stream from ${client.origin} ended; connecting again\n`));
    await pause(backoffMs(pauses, FIRST_PAUSE_MS, MAX_PAUSE_MS), interruption);
    pauses++;
  }
}

/**
 * Returns whether opening the stream again may succeed: the node is overloaded, restarts, or cannot be
 * reached for a while.
 */
function isPassing(error: unknown): boolean {
  if (error instanceof RefusedError) return error.status === 429 || error.status >= 500;
  // `fetch` reports an incomplete response body as a `TypeError`.
  return error instanceof UnreachableError || error instanceof TypeError;
}

async function show(
  chunks: AsyncIterable<Uint8Array>,
  options: Options,
  terminal: Terminal,
  style: Style,
): Promise<void> {
  for await (const frame of eventsOf(chunks)) {
    const value = readJson(frame);
    const messages = parseReply(frameSchema, value);
    const values: readonly unknown[] = Array.isArray(value) ? value : [value];
    const lines = messages.map((message, index) =>
      streamed(options.output, values[index], () => `${wiretapLine(visibleIn(message), style)}\n`),
    );
    terminal.out(lines.join(''));
    await terminal.drained();
  }
}

/** Parses a frame. Returns undefined if the frame is not JSON. */
function readJson(frame: string): unknown {
  try {
    return JSON.parse(frame) as unknown;
  } catch {
    return undefined;
  }
}
