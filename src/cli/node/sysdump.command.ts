import { type FileHandle, open } from 'node:fs/promises';
import type { Command } from 'commander';
import { createClient, type ServerOptions } from '#cli/client/client.js';
import { reaching } from '#cli/client/remote.js';
import { CliError } from '#cli/errors/command-error.js';
import type { Terminal } from '#cli/output/terminal.js';
import { reasonOf } from '#files/system-failure.js';
import { ArchiveCheck, type CheckedArchive } from './sysdump-archive.js';

const PATH = '/api/v1/support/sysdump/cluster';

export function addSysdumpCommand(program: Command, terminal: Terminal): void {
  reaching(program.command('sysdump'))
    .description('collect a support dump of the node: its configuration, state and logs, without secrets')
    .option('-o, --output <file>', '`-` for standard output (default: named by node and time, in this folder)')
    .action(async ({ output, ...options }: ServerOptions & { readonly output?: string }) => {
      const { fileName, chunks, cancel } = await createClient(options, terminal).download(PATH);
      const target = output ?? fileName ?? 'weir-sysdump.tar.gz';
      const sink = target === '-' ? standardOutput() : await newFile(target, cancel);
      const check = new ArchiveCheck((name, size) => terminal.err(`${sizeText(size).padStart(10)}  ${name}\n`));
      let bytes = 0;
      try {
        for await (const chunk of chunks) {
          bytes += chunk.length;
          await Promise.all([sink.write(chunk), check.write(chunk)]);
        }
      } catch (cause) {
        throw new CliError(`the support dump ${target} is incomplete: ${reasonOf(cause)}`, {
          cause,
        });
      } finally {
        await sink.close();
      }
      terminal.err(summaryOf(target, bytes, await whole(check, target)));
    });
}

type Sink = { write(chunk: Uint8Array): Promise<void>; close(): Promise<void> };

function standardOutput(): Sink {
  return {
    write: (chunk) =>
      new Promise((resolve, reject) => {
        process.stdout.write(chunk, (failure) => {
          if (failure) reject(failure);
          else resolve();
        });
      }),
    close: async () => {},
  };
}

/** The file has mode 0600. Calls `cancel` and throws if it already exists or cannot be created. */
async function newFile(path: string, cancel: () => Promise<void>): Promise<Sink> {
  let file: FileHandle;
  try {
    file = await open(path, 'wx', 0o600);
  } catch (cause) {
    await cancel();
    const exists = (cause as NodeJS.ErrnoException).code === 'EEXIST';
    const why = exists ? 'the file exists already: remove it, or name another file with --output' : reasonOf(cause);
    throw new CliError(`${path} cannot be written: ${why}`, { cause });
  }
  return {
    write: async (chunk) => void (await file.writeFile(chunk)),
    close: () => file.close(),
  };
}

async function whole(check: ArchiveCheck, target: string): Promise<CheckedArchive> {
  try {
    return await check.end();
  } catch (cause) {
    throw new CliError(`the support dump ${target} is incomplete: ${reasonOf(cause)}`, { cause });
  }
}

function summaryOf(target: string, bytes: number, { entries }: CheckedArchive): string {
  const lacking = entries.filter(({ outcome }) => outcome !== 'complete');
  const lines = lacking.map(
    ({ path, outcome, error }) => `${path}: ${OUTCOMES[outcome] ?? outcome}${error === null ? '' : `: ${error}`}\n`,
  );
  const files = entries.filter(({ size }) => size > 0).length;
  return [...lines, `${target === '-' ? 'the dump' : target} is complete: ${files} files, ${sizeText(bytes)}\n`].join(
    '',
  );
}

const OUTCOMES: Readonly<Record<string, string>> = {
  cut: 'too long; the rest is left out',
  failed: 'could not be collected',
  timed_out: 'took too long; the rest is left out',
};

function sizeText(bytes: number): string {
  return bytes < 1024
    ? `${bytes} B`
    : bytes < 1 << 20
      ? `${(bytes / 1024).toFixed(1)} KiB`
      : `${(bytes / (1 << 20)).toFixed(1)} MiB`;
}
