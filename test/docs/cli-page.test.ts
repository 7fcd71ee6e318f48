import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { expect, it } from 'vitest';
import { everyCommand, shapeOf } from '#cli/command-shape.js';
import { commandTree } from '#cli/command-tree.js';
import { processTerminal } from '#cli/output/terminal.js';
import { cliPage } from '../../scripts/pages/cli-page.js';

const tree = shapeOf(commandTree(processTerminal, () => {}));
const page = () => readFile(new URL('../../docs/cli.md', import.meta.url), 'utf8');

it('docs/cli.md equals the page that is generated from the command tree', async () => {
  expect(await page(), 'run: npm run docs').toBe(cliPage(tree));
});

it('docs/cli.md has a section for every command, and a line for every flag', async () => {
  const text = await page();
  for (const { path, commands, options } of everyCommand(tree)) {
    if (commands.length > 0) continue;
    expect(text).toContain(`\n## \`${path}\`\n`);
    for (const { flags, names } of options) if (!names.includes('--help')) expect(text).toContain(`\n- \`${flags}\`: `);
  }
});

it('no help text states a default as a number of milliseconds', () => {
  const bare = (command: Command): readonly string[] => [
    ...command.options
      .filter(({ flags, defaultValue, defaultValueDescription }) => {
        return flags.includes('duration') && typeof defaultValue === 'number' && defaultValueDescription === undefined;
      })
      .map(({ long }) => `${command.name()} ${long}`),
    ...command.commands.flatMap(bare),
  ];
  expect(bare(commandTree(processTerminal, () => {}))).toEqual([]);
});

it('every command that calls a node, except `weir sysdump`, accepts --output json and --output yaml', () => {
  const remote = everyCommand(tree).filter(({ options }) => options.some(({ names }) => names.includes('--server')));
  expect(remote.map(({ path }) => path)).toContain('weir policy list');
  for (const { path, options } of remote) {
    // `weir sysdump` writes an archive, and the flag --output of `weir sysdump` names a file instead of a
    // format.
    if (path === 'weir sysdump') continue;
    const output = options.find(({ names }) => names.includes('--output'));
    expect(output?.takes).toEqual(expect.arrayContaining(['json', 'yaml']));
  }
});
