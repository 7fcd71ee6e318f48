import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The packages that scripts/build.sh leaves out of the bundles, which load them at run time. */
const OUTSIDE = ['koffi', 'pino'] as const;

/** An entry of `packages` in package-lock.json; its key is the path of the folder. */
export type Locked = {
  readonly version: string;
  readonly integrity?: string;
  readonly license?: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
};

/** An npm package. `folder`: its path below the root of the repository. */
export type Package = Locked & { readonly name: string; readonly folder: string };

export type Shipped = {
  /** npm packages whose code is in a bundle. */
  readonly bundled: readonly Package[];
  /** npm packages that a release contains as folders, for all operating systems and processors. */
  readonly folders: readonly Package[];
};

/**
 * Returns the npm packages of which a release contains code. Reads the lock file, and the metafiles of the
 * bundles.
 */
export function shippedPackages(): Shipped {
  const lock = JSON.parse(readFileSync('package-lock.json', 'utf8')) as { packages: Record<string, Locked> };
  const packageAt = (folder: string): Package => {
    const locked = lock.packages[folder];
    if (locked === undefined) throw new Error(`package-lock.json has no ${folder}`);
    return { ...locked, folder, name: folder.slice(folder.lastIndexOf('node_modules/') + 'node_modules/'.length) };
  };
  const folders = new Map<string, Package>();
  const add = (name: string, from: string): void => {
    const folder = folderOf(name, from, lock.packages);
    if (folders.has(folder)) return;
    const found = packageAt(folder);
    folders.set(folder, found);
    for (const each of Object.keys({ ...found.dependencies, ...found.optionalDependencies })) add(each, folder);
  };
  for (const name of OUTSIDE) add(name, '');
  return { bundled: sorted(bundledFolders().map(packageAt)), folders: sorted([...folders.values()]) };
}

/** Returns whether npm installs the package on this machine. */
export function isForThisMachine({ os, cpu }: Locked): boolean {
  return (os?.includes(process.platform) ?? true) && (cpu?.includes(process.arch) ?? true);
}

/** Returns the folder from which Node loads a package, if a file in the folder `from` imports the package. */
function folderOf(name: string, from: string, locked: Readonly<Record<string, Locked>>): string {
  for (let folder = from; ; folder = folder.slice(0, Math.max(folder.lastIndexOf('/node_modules/'), 0))) {
    const path = join(folder, 'node_modules', name);
    if (path in locked) return path;
    if (folder === '') throw new Error(`package-lock.json has no ${name}, which ${from} needs`);
  }
}

/**
 * Returns the folders of the packages whose code is in the bundles. Reads the metafiles of esbuild: the
 * source maps of a package can name sources that are not in the package.
 */
function bundledFolders(): string[] {
  const outputs = ['programs', 'bundles', 'console'].flatMap((name) => {
    const { outputs } = JSON.parse(readFileSync(`dist/${name}.meta.json`, 'utf8')) as Metafile;
    return Object.values(outputs);
  });
  const files = outputs.flatMap(({ inputs }) =>
    Object.keys(inputs).filter((file) => inputs[file]?.bytesInOutput !== 0),
  );
  const folders = files.flatMap((file) => /^node_modules\/(?:.*\/node_modules\/)?(?:@[^/]+\/)?[^/]+/.exec(file) ?? []);
  return [...new Set(folders)];
}

type Metafile = {
  readonly outputs: Readonly<
    Record<string, { readonly inputs: Readonly<Record<string, { readonly bytesInOutput: number }>> }>
  >;
};

const sorted = (packages: readonly Package[]): Package[] =>
  [...packages].sort((a, b) => (a.folder < b.folder ? -1 : Number(a.folder > b.folder)));
