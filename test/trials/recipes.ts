import { readdirSync, readFileSync } from 'node:fs';

const root = new URL('../../', import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), 'utf8');

/** A text that a document tells its reader to use: an example file, or a block of YAML or JSON on a page. */
export type Recipe = { readonly id: string; readonly text: string };

/** The pages of the documentation whose blocks a reader copies. */
const PAGES = ['README.md', 'docs/policy.md', 'docs/names.md', 'docs/inspection.md'];
const BLOCK = /```(?:yaml|json)\n([\s\S]*?)```/g;
/** `docs/policy.md` repeats the example files; `npm run docs` keeps them equal. */
const REPEATED = /<!-- example \S+ -->[\s\S]*?<!-- end -->/g;

/** Reads the recipes by id: `tls-names.yaml` for an example file, `docs/names.md 2` for a block of a page. */
export function readRecipes(): ReadonlyMap<string, Recipe> {
  const files = readdirSync(new URL('examples/policies', root), { recursive: true, encoding: 'utf8' });
  const examples = files.filter((file) => file.endsWith('.yaml')).sort();
  const recipes = examples.map((id) => ({ id, text: read(`examples/policies/${id}`) }));
  for (const page of PAGES) {
    const blocks = [...read(page).replaceAll(REPEATED, '').matchAll(BLOCK)];
    recipes.push(...blocks.map(([, text = ''], index) => ({ id: `${page} ${index + 1}`, text })));
  }
  return new Map(recipes.map((recipe) => [recipe.id, recipe]));
}
