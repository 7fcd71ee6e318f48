import { writeFileSync } from 'node:fs';
import type { Command } from 'commander';
import { z } from 'zod';
import { createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote } from '#cli/client/remote.js';
import { CliError, RefusedError } from '#cli/errors/command-error.js';
import { textOfFile } from '#cli/files/text-of-file.js';
import type { Terminal } from '#cli/output/terminal.js';
import { MAX_BYTES } from '#files/bounded-file.js';
import { reasonOf } from '#files/system-failure.js';

const PATH = '/api/v1/settings/tls-intercept-ca';
const caSchema = z.object({
  subject: z.string(),
  fingerprint_sha256: z.string(),
  not_before: z.string(),
  not_after: z.string(),
  cert_pem: z.string(),
  revision: z.number(),
  updated_at: z.string(),
  updated_by: z.string(),
});
const writtenSchema = caSchema.extend({ warnings: z.array(z.object({ message: z.string() })).default([]) });
type Ca = z.infer<typeof caSchema>;
type Write = Output & { readonly replace?: true };

export function addCaCommands(program: Command, terminal: Terminal): void {
  const ca = program.command('ca').description('the CA that signs intercepted connections');

  remote(ca.command('show'))
    .description('show the subject and the validity of the CA')
    .action(async (options: Output) => {
      const shown = await fetched(options, terminal);
      print(terminal, options.output, shown, textOf);
    });

  const writing = (command: Command): Command => remote(command).option('--replace', 'replace the existing CA');
  const write = async (options: Write, path: string, method: 'POST' | 'PUT', body?: object): Promise<void> => {
    const headers = options.replace === true ? {} : { 'if-none-match': '*' };
    const answer = await createClient(options, terminal)
      .request(path, { method, headers, ...(body === undefined ? {} : { body }) })
      .catch(throwWithAdvice);
    const { warnings, ...written } = parseReply(writtenSchema, answer);
    for (const { message } of warnings) terminal.err(`warning: ${message}\n`);
    print(terminal, options.output, written, textOf);
  };
  writing(ca.command('generate'))
    .description('generate a CA on the node; its key never leaves the node')
    .action((options: Write) => write(options, `${PATH}/generate`, 'POST'));
  writing(ca.command('install'))
    .description('install a CA that was made elsewhere')
    .requiredOption('--cert <file>', 'the certificate in PEM, followed by the certificates of its issuers')
    .requiredOption('--key <file>', 'the private key in PEM, not encrypted')
    .action((options: Write & { readonly cert: string; readonly key: string }) =>
      write(options, PATH, 'PUT', { cert_pem: pemOf(options.cert), key_pem: pemOf(options.key) }),
    );

  remote(ca.command('cert'))
    .description('print the certificate of the CA, to install on clients')
    .option('-f, --file <file>', 'write it to a file')
    .action(async ({ file, ...options }: Output & { readonly file?: string }) => {
      const { cert_pem } = await fetched(options, terminal);
      if (file === undefined) print(terminal, options.output, { cert_pem }, () => cert_pem);
      else save(file, cert_pem);
    });

  remote(ca.command('remove'))
    .description('remove the CA; connections that a rule intercepts then fail')
    .action(async (options: Output) => {
      await createClient(options, terminal).request(PATH, { method: 'DELETE' }).catch(throwWithAdvice);
      print(terminal, options.output, { removed: true }, () => 'the intercept CA is removed\n');
    });
}

function textOf(ca: Ca): string {
  const lines = [
    ['subject', ca.subject],
    ['SHA-256', ca.fingerprint_sha256],
    ['valid', `${ca.not_before} to ${ca.not_after}`],
    ['written', `${ca.updated_at} by ${ca.updated_by}`],
  ];
  return lines.map(([name = '', value = '']) => `${name.padEnd(8)} ${value}\n`).join('');
}

async function fetched(options: Output, terminal: Terminal): Promise<Ca> {
  return parseReply(caSchema, await createClient(options, terminal).request(PATH).catch(throwWithAdvice));
}

function throwWithAdvice(refused: unknown): never {
  const code = refused instanceof RefusedError ? refused.code : undefined;
  switch (code) {
    case 'precondition_failed': {
      const fix = 'give --replace, and install the certificate of the new CA on clients';
      throw new CliError('an intercept CA exists already', { cause: refused, fix, code });
    }
    case 'not_found': {
      const fix = '`weir ca generate` generates a CA; `weir ca install` installs a CA that was made elsewhere';
      throw new CliError('there is no intercept CA', { cause: refused, fix, code });
    }
    default:
      throw refused;
  }
}

function pemOf(file: string): string {
  return textOfFile(file, MAX_BYTES.certificates);
}

function save(file: string, text: string): void {
  try {
    writeFileSync(file, text);
  } catch (cause) {
    throw new CliError(`${file} cannot be written: ${reasonOf(cause)}`, { cause });
  }
}
