import { spawnSync } from 'node:child_process';
import { z } from 'zod';
import { CliError } from '#cli/errors/command-error.js';
import { built } from '#threads/built-file.js';
import { type Privileges, UNIT, unitPrivileges } from './units.js';

const checkSchema = z.object({
  missing: z.array(z.object({ sentence: z.string() })),
  faults: z.array(z.string()),
  warnings: z.array(z.string()),
});

/**
 * Returns warnings about the enforcement of a configuration on this machine. Throws a `CliError` with the
 * reasons if the machine cannot enforce it. The check is `weir dataplane check`. `asUnit`: run the check with
 * the user and the capabilities of the unit, because root has more permissions than the node.
 */
export function checkMachineFor(config: string, asUnit: boolean): readonly string[] {
  const weir = [process.execPath, built('../bin/weir.js'), 'dataplane', 'check', '--config', '-', '--output', 'json'];
  const privileges = asUnit ? unitPrivileges() : null;
  const [command = '', ...words] = privileges === null ? weir : ['setpriv', ...limits(privileges), ...weir];
  const { stdout, stderr, error } = spawnSync(command, words, { input: config, encoding: 'utf8' });
  const check = checkSchema.safeParse(parsed(stdout));
  if (!check.success) {
    const reason = error?.message ?? stderr.trim();
    throw new CliError(`the check of this machine${called(privileges)} failed: ${reason}`);
  }
  const { missing, faults, warnings } = check.data;
  const reasons = [...missing.map(({ sentence }) => sentence), ...faults];
  if (reasons.length === 0) return warnings;
  throw new CliError([`this machine cannot enforce the configuration${called(privileges)}`, ...reasons].join('\n  '));
}

function called(privileges: Privileges | null): string {
  return privileges === null ? '' : ` as user ${privileges.user} with the capabilities of ${UNIT}`;
}

/** Returns the options with which `setpriv` runs a command with only these privileges, like systemd. */
function limits({ user, group, ambient, bounding }: Privileges): string[] {
  const set = (names: readonly string[]): string => ['-all', ...names.map((name) => `+${name}`)].join(',');
  return [
    ...['--reuid', user, '--regid', group, '--init-groups', '--no-new-privs'],
    ...['--bounding-set', set(bounding), '--inh-caps', set(ambient), '--ambient-caps', set(ambient)],
  ];
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
