import { isatty } from 'node:tty';
import { type DestinationStream, type Logger, pino, stdTimeFunctions } from 'pino';
import pretty from 'pino-pretty';
import type { System } from '#actors/system-contract.js';
import type { Config } from '#config/config.js';
import { isJournal, journalText } from '#observe/log/journal.js';
import type { LogRing } from '#observe/log/log-ring.js';
import { withoutControls } from '#observe/log/pretty-line.js';
import { redacted } from '#observe/log/redaction.js';

const STANDARD_OUTPUT = 1;

export type NodeLog = {
  readonly log: Logger;
  /** Sets the level and the format of all further log lines. */
  change(settings: Config['log']): void;
};

/** Creates the log on standard output. `ring` also receives each line. */
export function createLog({ log: settings, node }: Config, ring: LogRing): NodeLog {
  const json: DestinationStream = pino.destination({ dest: STANDARD_OUTPUT, sync: true });
  const journal: DestinationStream = { write: (line) => json.write(journalText(line)) };
  const formatted: DestinationStream = pretty({ sync: true, translateTime: false, singleLine: true, ignore: 'node' });
  const text: DestinationStream = { write: (line) => formatted.write(withoutControls(line)) };
  const outputs = {
    auto: isJournal(STANDARD_OUTPUT, process.env) ? journal : isatty(STANDARD_OUTPUT) ? text : json,
    json,
    pretty: text,
  };
  let out = outputs[settings.format];
  const streams = [{ write: (line: string) => out.write(line) }, ring].map((stream) => ({
    level: 'trace' as const,
    stream,
  }));
  const log = pino(
    {
      level: settings.level,
      base: { node: node.id },
      timestamp: stdTimeFunctions.isoTime,
      hooks: { streamWrite: redacted },
    },
    pino.multistream(streams),
  );
  return {
    log,
    change: ({ level, format }) => {
      log.level = level;
      out = outputs[format];
    },
  };
}

/** Logs what happens to policies, to the dataplane and to the configuration. */
export function logFacts(system: System, log: Logger): void {
  let logged: number | null = null;
  system.bus.messages.subscribe((message) => {
    switch (message.type) {
      case 'policy.activated': {
        const { generation, record } = message;
        const isRefresh = generation === logged && message.selectors.length > 0;
        logged = generation;
        log.info(
          { generation, policy: record?.id ?? null },
          record === null
            ? 'no policy is active: policy.fallback decides'
            : isRefresh
              ? 'policy in force with new members of its selectors'
              : 'policy in force',
        );
        break;
      }
      case 'policy.change_ended': {
        const { generation, outcome, reason } = message;
        if (outcome === 'complete') log.info({ generation, reason }, 'policy change completed');
        else log.warn({ generation, reason }, 'policy change reverted');
        break;
      }
      case 'dataplane.enforcing':
        log.info({ generation: message.generation, epoch: message.epoch }, 'dataplane enforcing');
        break;
      case 'dataplane.lost':
        log.error({ reason: message.reason }, 'dataplane lost');
        break;
      case 'program.proved':
        log.info({ generation: message.generation, ...message.proof }, 'program proved');
        break;
      case 'program.disproved':
        log.error({ generation: message.generation, reason: message.detail }, 'program disproved');
        break;
      case 'program.rejected':
        log.error({ generation: message.generation, reason: message.refusal.detail }, 'program rejected');
        break;
      case 'config.reloaded': {
        const { by, result, failure, applied, needsRestart } = message;
        const fields = { by, result, applied, needs_restart: needsRestart };
        if (failure === null) log.info(fields, 'configuration reloaded');
        else log.error({ ...fields, problems: failure.problems }, `configuration not reloaded: ${failure.detail}`);
        break;
      }
      default:
    }
  });
}

/** Returns a function that logs why the stored policy is not in force: once for each reason. */
export function restoreFailureLog(log: Logger): (failure: unknown) => void {
  let logged = '';
  return (failure) => {
    const reason = failure instanceof Error ? failure.message : String(failure);
    if (reason !== logged) log.error({ reason }, 'the stored policy could not be put in force');
    logged = reason;
  };
}
