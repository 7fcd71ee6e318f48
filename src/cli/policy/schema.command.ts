import { type Command, Option } from 'commander';
import { printing, serialised } from '#cli/client/remote.js';
import type { Terminal } from '#cli/output/terminal.js';
import { policyJsonSchema, type SchemaForm } from '#policy/document/json-schema.js';

/**
 * Adds the command `weir policy schema`, which prints the JSON Schema of policies without a request to a
 * node.
 */
export function addSchemaCommand(policy: Command, terminal: Terminal): void {
  printing(policy.command('schema'), ['json', 'yaml'])
    .description('print the JSON Schema of a policy file, for editors and other tools; needs no node')
    .addOption(
      new Option('--form <form>', 'the form that the file has')
        .choices(['any', 'singleton', 'envelope'])
        .default('any'),
    )
    .action(({ form, output }: { form: SchemaForm; output: 'json' | 'yaml' }) => {
      terminal.out(serialised(output, policyJsonSchema(form)));
    });
}
